package override

import (
	"syscall"
	"testing"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
	"flashdbm/logstore/vfs"

	"github.com/stretchr/testify/require"
)

// A flush writes the tree as of its base, including pages that were changed or removed after it.
func TestFlushWritesItsBase(t *testing.T) {
	for _, policy := range []vfs.Policy{vfs.KeepNone, vfs.KeepAll} {
		s := newScript(t, true)
		s.put(span(0, 60)...)
		s.flushUntil(false)
		s.put(span(10, 20)...)
		s.del(span(30, 60)...)
		s.must(s.flushWhole())
		s.must(s.checkInstalled())
		require.NotZero(t, s.p.DirtyBytes(), "what was changed after the base is dirty still")
		s.must(s.sync())
		s.crash(policy)
		require.NotZero(t, s.p.DirtyBytes(), "and is redone")
		s.must(s.settle())
	}
}

// Recovery ignores a flush without its last part, and does not take its parts for parts of a later flush.
func TestFlushCutOff(t *testing.T) {
	s := newScript(t, true)
	s.put(span(0, 60)...)
	s.must(s.flushStep())
	for range 4 { // two parts
		s.must(s.flushStep())
	}
	base := s.p.Base()
	s.must(s.sync())
	s.crash(vfs.KeepAll)
	require.Equal(t, base, s.p.Base())
	s.del(span(0, 50)...)
	s.flushAll()
	s.crash(vfs.KeepNone)
	require.Zero(t, s.p.DirtyBytes())
	s.must(s.settle())
}

// The image that an installation replaces is kept while a reader at the newest Seq may have a node whose cells are in
// it.
func TestReaderKeepsBorrowedImage(t *testing.T) {
	for name, is := range map[string]struct{ newer, renamed bool }{
		"the version written": {}, "a newer one": {newer: true},
		"the version written, of a page renamed": {renamed: true}, "a newer one, of a page renamed": {newer: true, renamed: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, false)
			place := s.aloneAt()
			if is.renamed {
				s.foldAll()
				s.flushAll()
			}
			s.put(1)
			if is.renamed {
				s.foldAll()
				require.False(t, logstore.IsAddr(s.leafOf(1)))
			}
			if is.newer {
				s.flushUntil(false)
				s.put(1)
			}
			r := s.reader()
			s.flushAll()
			cycle := func() {
				s.flushAll()
				s.checkpoint()
			}
			require.False(t, s.reuse(place, 30, cycle), "the segment is in use")
			s.must(s.recheck(r))
			r.slot.Release()
			require.True(t, s.reuse(place, 30, cycle), "nothing keeps the segment")
			s.must(s.settle())
		})
	}
}

// The place of a removed page is kept while a reader sees the page.
func TestReaderKeepsRemovedPage(t *testing.T) {
	s := newScript(t, false)
	page := s.aloneAt()
	id := s.leafOf(1)
	r := s.reader()
	s.del(span(0, 9)...)
	s.flushAll()
	require.Equal(t, removed, s.p.table.find(id).newest().kind)
	require.False(t, s.s.IsLive(page))
	cycle := func() {
		s.flushAll()
		s.checkpoint()
	}
	require.False(t, s.reuse(page, 30, cycle))
	s.must(s.recheck(r))
	r.slot.Release()
	require.True(t, s.reuse(page, 30, cycle))
	s.must(s.settle())
}

// A version made after the base may have cells in the image that the flush replaces. The version is changed to use the
// cells of the new image, so that the old place can be reused before the next flush.
func TestNewerVersionLeavesTheOldImage(t *testing.T) {
	s := newScript(t, false)
	place := s.aloneAt()
	s.put(1)
	s.flushUntil(false)
	s.put(1)
	require.True(t, s.borrows(1))
	s.must(s.flushWhole())
	require.True(t, s.borrows(1))
	require.True(t, s.reuse(place, 60, s.checkpoint))
	n := int64(place) / int64(s.s.SegmentPages())
	for range 60 { // until the segment is not only free but entered again
		if s.segments[n] {
			break
		}
		s.put(span(60, 80)...)
		s.checkpoint()
	}
	require.True(t, s.segments[n])
	require.True(t, s.borrows(1), "no flush has written it")
	s.must(s.verifyNewest())
	s.must(s.settle())
}

// A value that was dropped before the base of a flush dies with that flush, one that was dropped later with the next
// flush, and none dies by redo.
func TestDeathsOfValues(t *testing.T) {
	s := newScript(t, true)
	live := func() int64 { return s.s.SpaceStats().LiveBytes / logstore.PageSize }
	s.put(0)
	s.flushAll()
	empty := live()
	s.put(runKey, largeKey)
	s.flushAll()
	full := live()
	require.Greater(t, full, empty+4)

	s.del(runKey)
	s.flushUntil(false)
	s.del(largeKey)
	s.must(s.flushWhole())
	s.must(s.checkInstalled())
	s.must(s.sync())
	s.crash(vfs.KeepNone)
	require.Greater(t, live(), empty+4, "the large value is in the installed tree")
	s.flushAll()
	require.Equal(t, empty, live())

	s.put(runKey, largeKey)
	s.del(runKey, largeKey)
	s.must(s.sync())
	s.crash(vfs.KeepNone)
	require.Greater(t, live(), empty+4, "born and dropped, and no flush has said so")
	s.flushAll()
	s.crash(vfs.KeepNone)
	require.Equal(t, empty, live())
	s.must(s.settle())
}

// Deleting a value whose pages are damaged works; the extents of a list that cannot be read stay live.
func TestDropDamagedValue(t *testing.T) {
	s := newScript(t, true)
	s.put(0, runKey, largeKey)
	s.flushAll()
	s.checkpoint()
	s.checkpoint()
	refs := map[int]btree.Ref{}
	snap := s.p.At(s.appliedSeq.Load())
	s.must(s.walk(snap, func(_ btree.PageID, n btree.Node) error {
		for i := range n.Count() {
			if c := n.Cell(i); c.Kind() != btree.Inline {
				refs[runKey+5*len(refs)] = c.Ref()
			}
		}
		return nil
	}))
	require.Len(t, refs, 2)
	live := s.s.SpaceStats().LiveBytes
	s.crash(vfs.KeepAll) // so that no page counts as verified
	for _, ref := range refs {
		s.must(s.damage(int64(ref.ID)))
	}
	s.del(runKey, largeKey)
	s.flushAll()
	runPages := logstore.RunPages(int64(refs[runKey].ValueLen))
	require.Equal(t, live-runPages*logstore.PageSize, s.s.SpaceStats().LiveBytes)
	s.must(s.verifyNewest())
}

// The pages that a flush takes are bounded in advance, including those for the extents of large values that
// died.
func TestFlushBound(t *testing.T) {
	s := newScript(t, true)
	s.put(0)
	for range 12 {
		s.put(span(largeKey, scriptKeys)...)
	}
	before := s.s.Counters().Pages
	bound := s.p.Unwritten()
	deaths := len(s.p.deaths.refs)
	s.must(s.flushStep())
	s.must(s.flushStep())
	f := s.flush.f
	s.must(s.flushWhole())
	require.Greater(t, len(f.dying), 2*deaths)
	require.LessOrEqual(t, len(f.dying), f.deaths.entries)
	require.LessOrEqual(t, int64(s.s.Counters().Pages-before), bound)
	s.must(s.settle())
}

// A flush that cannot be written is abandoned. Readers continue, and recovery finds what was synced.
func TestFlushFails(t *testing.T) {
	s := newScript(t, true)
	s.put(span(0, 60)...)
	s.must(s.sync())
	s.flushUntil(false)
	s.flush.f.Encode()
	s.mem.OnOp(func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite || op.Kind == vfs.OpWriteVec {
			return syscall.EIO
		}
		return nil
	})
	err := s.reserved(s.flush.f.Pages(), func() error {
		_, err := s.flush.f.Write()
		return err
	})
	require.ErrorIs(t, err, logstore.ErrFailed)
	require.ErrorIs(t, err, syscall.EIO)
	s.flush.f.Abandon()
	require.Zero(t, s.registry.Count())
	s.must(s.reclaim())
	s.must(s.verifyNewest())
	s.crash(vfs.KeepAll)
	s.must(s.settle())
}
