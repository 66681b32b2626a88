package override

import (
	"bytes"
	"testing"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
	"flashdbm/logstore/vfs"

	"github.com/stretchr/testify/require"
)

// names returns the number of names in the table, without that of the root.
func (s *script) names() (n int) {
	s.p.table.all(func(l *link) {
		if e := l.entry; e.disk != 0 && e.id != Root {
			n++
		}
	})
	return n
}

// A fold names children by their addresses. Their old names leave the table with the flush that covers the
// fold, not before.
func TestFold(t *testing.T) {
	s := newScript(t, false)
	s.put(span(0, 80)...)
	require.Zero(t, s.foldAll(), "nothing is clean")
	s.flushAll()
	names := s.names()
	old := s.reader()
	id := s.leafOf(40)
	require.False(t, logstore.IsAddr(id))
	require.Equal(t, names, s.foldAll())
	require.Zero(t, s.foldAll(), "all is folded")
	require.True(t, logstore.IsAddr(s.leafOf(40)))
	require.Equal(t, names, s.names(), "no flush has listed them")
	s.must(s.recheck(old))

	s.put(40) // found by its new name
	s.must(s.verifyNewest())
	s.must(s.recheck(old))
	s.flushAll()
	require.Equal(t, 1, s.names())
	s.must(s.recheck(old))
	s.must(s.reclaim())
	require.NotNil(t, s.p.table.find(id), "a reader below the fold comes by it")
	old.slot.Release()
	s.must(s.reclaim())
	require.Nil(t, s.p.table.find(id))
	s.must(s.sync())
	s.crash(vfs.KeepNone)
	require.Equal(t, 1, s.names())
	s.must(s.settle())
}

// A name that is an address keeps its segment from reuse until the parent is folded.
func TestNameKeepsItsSegment(t *testing.T) {
	s := newScript(t, false)
	place := s.aloneAt()
	s.foldAll()
	s.flushAll()
	require.Equal(t, place, s.leafOf(1))
	require.False(t, s.s.Overridden(place))
	s.put(1)
	require.True(t, s.s.Overridden(place))
	s.flushAll()
	require.False(t, s.s.IsLive(place))
	cycle := func() {
		s.flushAll()
		s.checkpoint()
	}
	require.False(t, s.reuse(place, 30, cycle))
	s.must(s.verifyNewest())
	s.foldAll()
	s.flushAll()
	s.must(s.reclaim())
	require.False(t, s.s.Overridden(place))
	require.True(t, s.reuse(place, 30, cycle))
	s.must(s.settle())
}

// A name that is an address does not keep its segment from reuse for ever even if the page is dirty at every fold of
// its parent: the fold renames the page.
func TestFoldRenames(t *testing.T) {
	s := newScript(t, false)
	place := s.aloneAt()
	s.foldAll()
	s.flushAll()
	require.Equal(t, place, s.leafOf(1))
	s.put(1)
	old := s.reader()
	dirty := s.p.DirtyBytes()
	require.Positive(t, s.foldAll())
	require.False(t, logstore.IsAddr(s.leafOf(1)))
	require.Equal(t, dirty+logstore.PageSize, s.p.DirtyBytes(), "its parent, and the leaf as before")
	s.must(s.verifyNewest())
	s.must(s.recheck(old))

	s.must(s.sync())
	s.crash(vfs.KeepNone)
	require.Equal(t, place, s.leafOf(1), "no flush has written the new name")
	s.foldAll()
	require.False(t, logstore.IsAddr(s.leafOf(1)))
	born := s.leafOf(1)
	s.flushAll()
	require.False(t, s.s.IsLive(place))
	s.crash(vfs.KeepNone)
	require.Equal(t, born, s.leafOf(1))
	require.False(t, s.s.Overridden(place))

	require.True(t, s.reuse(place, 30, func() {
		s.put(1)
		s.foldAll()
		s.flushAll()
		s.checkpoint()
	}))
	s.must(s.settle())
}

// A fold takes a name away from a dirty page. A reader from before the fold still uses that name, which keeps it in
// the table.
func TestFoldRenamesBesideReader(t *testing.T) {
	s := newScript(t, false)
	place := s.aloneAt()
	s.foldAll()
	s.flushAll()
	s.put(1)
	old := s.reader()
	s.foldAll()
	s.put(1)
	s.flushAll()
	s.must(s.reclaim())
	s.must(s.recheck(old))
	require.True(t, s.s.Overridden(place))
	old.slot.Release()
	s.must(s.reclaim())
	require.False(t, s.s.Overridden(place))
	s.must(s.settle())
}

// A page is renamed while a flush writes it. Its version in memory then has no cells in the image that this flush
// replaces, and the next flush writes the new name.
func TestFoldRenamesDuringFlush(t *testing.T) {
	s := newScript(t, false)
	place := s.aloneAt()
	s.foldAll()
	s.flushAll()
	s.put(1, 40)
	s.flushUntil(false)
	s.put(1, 40)
	s.foldAll()
	require.False(t, logstore.IsAddr(s.leafOf(1)))
	require.False(t, s.borrows(1))
	s.must(s.flushWhole())
	s.must(s.verifyNewest())
	s.flushAll()
	require.False(t, s.s.IsLive(place))
	s.must(s.verifyNewest())
	s.must(s.settle())
}

// A flush whose base is below a fold does not list the names that the fold retired.
func TestFoldDuringFlush(t *testing.T) {
	for _, written := range []bool{false, true} {
		s := newScript(t, false)
		s.put(span(0, 80)...)
		s.flushAll()
		names := s.names()
		s.put(0, 40)
		s.flushUntil(written)
		require.Equal(t, names-2, s.foldAll(), "dirty children keep their names")
		s.must(s.flushWhole())
		require.Equal(t, names, s.names())
		s.must(s.sync())
		s.crash(vfs.KeepNone)
		require.Equal(t, names, s.names(), "the fold was not written")
		s.must(s.settle())
	}
}

// A node that was planned for a fold, and has since been merged or renamed, is skipped.
func TestFoldOfAGoneNode(t *testing.T) {
	s := newScript(t, false)
	s.put(span(0, 80)...)
	s.flushAll()
	leaf := s.leafOf(40)
	s.foldAll()
	require.NoError(t, s.batch(func(b *Batch) error {
		for _, id := range []btree.PageID{leaf, s.leafOf(41)} { // a name that is no longer used, and a leaf
			n, err := b.Fold(id)
			require.Zero(t, n)
			require.NoError(t, err)
		}
		return nil
	}))
	s.must(s.settle())
}

// A touched page moves with the next flush, and no other page does.
func TestTouch(t *testing.T) {
	s := newScript(t, false)
	s.put(span(0, 80)...)
	s.flushAll()
	s.must(s.reclaim())
	id := s.leafOf(40)
	place := s.p.table.find(id).place()
	r := s.reader()
	s.must(s.batch(func(b *Batch) error {
		touched, err := b.Touch(id)
		require.True(t, touched)
		require.NoError(t, err)
		touched, err = b.Touch(id)
		require.False(t, touched, "it is dirty")
		return err
	}))
	require.Zero(t, s.p.MemoryBytes())
	require.True(t, s.s.IsLive(place))
	s.put(40) // next to cells of the image
	s.flushAll()
	require.False(t, s.s.IsLive(place))
	s.must(s.recheck(r))
	r.slot.Release()

	s.foldAll()
	s.must(s.batch(func(b *Batch) error {
		touched, err := b.Touch(id)
		require.False(t, touched, "its name is folded away")
		return err
	}))
	s.must(s.settle())
}

// A tree in which a node has two parents, or is on a wrong level, ends the walk with an error.
func TestFoldPlanOfADamagedTree(t *testing.T) {
	for name, wrong := range map[string]func(root, middle btree.Node) btree.PageID{
		"has two parents": func(root, _ btree.Node) btree.PageID { return root.Child(0) },
		"is on level 0":   func(_, middle btree.Node) btree.PageID { return middle.Child(0) },
	} {
		s := newHighScript(t)
		root, err := s.p.nodeAt(Root, s.appliedSeq.Load())
		s.must(err)
		require.Equal(t, 2, root.Level())
		middle, err := s.p.nodeAt(root.Child(0), s.appliedSeq.Load())
		s.must(err)
		s.must(s.batch(func(b *Batch) error {
			b.Put(Root, root.WithChildren(b.Memory(), func(i int, id btree.PageID) btree.PageID {
				if i == 1 {
					return wrong(root, middle)
				}
				return id
			}))
			return nil
		}))
		err = s.planFolds()
		require.ErrorIs(t, err, logstore.ErrCorrupt)
		require.ErrorContains(t, err, name)
	}
}

// After an incremental flush, which may leave dirty pages behind, only clean pages get their addresses as names.
func TestFoldClean(t *testing.T) {
	s := newScript(t, false)
	s.put(span(0, 80)...)
	s.flushAll()
	s.foldAll()
	s.flushAll()
	dirty, moved := s.leafOf(5), s.leafOf(70)
	s.run(false, false, 70)
	s.flushAll()
	s.run(false, false, 5)
	require.Equal(t, moved, s.leafOf(70))
	musts := s.p.MustPages()
	s.must(s.planFolds())
	s.must(s.batch(func(b *Batch) error {
		for _, id := range s.plan {
			if _, err := b.FoldClean(id); err != nil {
				return err
			}
		}
		return nil
	}))
	require.Equal(t, dirty, s.leafOf(5))
	require.NotEqual(t, moved, s.leafOf(70))
	require.True(t, logstore.IsAddr(s.leafOf(70)))
	require.Equal(t, musts+1, s.p.MustPages(), "the parent")
	s.must(s.verifyNewest())
	s.must(s.settle())
}

// The pages that a part writes are renamed. Pages of the same parent that lie before and after the part keep their
// names until they are in a part themselves, also if the part wraps around the end of the tree.
func TestRenameOfAPart(t *testing.T) {
	s := newScript(t, false)
	s.put(span(0, 80)...)
	s.flushAll()
	const leaves = 10
	var from []byte
	round := false
	for !round {
		for range 2 { // all have addresses as names
			s.foldAll()
			s.flushAll()
		}
		s.run(false, false, span(0, 80)...)
		slot := s.registry.Acquire(&s.appliedSeq)
		snap := s.p.At(slot.Seq())
		part, err := snap.PlanPart(from, leaves)
		slot.Release()
		s.must(err)
		require.Equal(t, leaves, part.Leaves())
		require.NotEmpty(t, part.Parents)
		before := s.p.listed
		s.must(s.batch(func(b *Batch) error {
			for _, id := range part.Parents {
				if _, err := b.Rename(id, part); err != nil {
					return err
				}
			}
			return nil
		}))
		require.EqualValues(t, leaves, s.p.listed-before)
		for _, e := range part.leaves {
			require.Equal(t, removed, e.newest().kind)
		}
		f := s.p.StartPart(s.s.LastGroup(), s.count, part)
		require.Len(t, f.work, leaves+1, "and their parent")
		f.Sort()
		s.flush = &modelFlush{f: f}
		s.must(s.flushWhole())
		s.flushAll()
		round = bytes.Compare(part.Next, part.from) < 0
		from = part.Next
	}
	s.must(s.verifyNewest())
	s.must(s.settle())
}
