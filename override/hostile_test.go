package override

import (
	"testing"

	"flashdbm/internal/btree"
	"flashdbm/logstore"

	"github.com/stretchr/testify/require"
)

// twin gives the second child of an inner node the name of the first.
func (s *script) twin(parent btree.PageID) {
	s.t.Helper()
	s.must(s.batch(func(b *Batch) error {
		n, err := b.Node(parent)
		if err != nil {
			return err
		}
		b.Put(parent, n.WithChildren(s.p.memory, func(i int, id btree.PageID) btree.PageID {
			if i == 1 {
				return n.Child(0)
			}
			return id
		}))
		return nil
	}))
}

// TestFoldTwins: a parent with two equal children is damage, also if these are dirty and would be renamed.
func TestFoldTwins(t *testing.T) {
	for name, dirty := range map[string]bool{"clean": false, "dirty": true} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, false)
			s.put(span(0, 80)...)
			s.flushAll()
			if dirty {
				s.foldAll()
				s.flushAll()
				s.put(0)
			}
			s.twin(Root)
			s.must(s.batch(func(b *Batch) error {
				n, err := b.Fold(Root)
				require.ErrorIs(t, err, logstore.ErrCorrupt)
				require.Zero(t, n)
				return nil
			}))
		})
	}
}

// TestSharedInnerNodes: no plan visits the same inner node twice.
func TestSharedInnerNodes(t *testing.T) {
	s := newHighScript(t)
	s.twin(Root)
	slot := s.registry.Acquire(&s.appliedSeq)
	defer slot.Release()
	snap := s.p.At(slot.Seq())
	root, err := snap.Node(Root)
	require.NoError(t, err)
	require.Equal(t, 2, root.Level())
	_, err = snap.FoldPlan(1)
	require.ErrorIs(t, err, logstore.ErrCorrupt)
	_, err = snap.PlanPart(nil, 5)
	require.ErrorIs(t, err, logstore.ErrCorrupt)
	_, _, err = snap.PlanPartFolds(&Part{})
	require.ErrorIs(t, err, logstore.ErrCorrupt)
}

// TestTwoParents: a damaged tree has a leaf with two parents. A change through one parent renames the leaf. A later
// change through the other parent, which has the old name of the leaf, neither changes nor moves it, because the old
// place is dead by then and dirty versions may have cells in the image there.
func TestTwoParents(t *testing.T) {
	for name, change := range map[string]func(s *script, b *Batch, old logstore.PageID) error{
		"touched": func(_ *script, b *Batch, old logstore.PageID) error {
			_, err := b.Touch(old)
			return err
		},
		"updated": func(s *script, b *Batch, old logstore.PageID) error {
			n, err := b.Node(old)
			if err == nil {
				b.Update(old, n.Own(s.p.memory))
			}
			return err
		},
		"removed": func(_ *script, b *Batch, old logstore.PageID) error {
			b.Remove(old)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, false)
			s.put(span(0, 80)...)
			s.flushAll()
			s.foldAll()
			s.flushAll()
			old := s.leafOf(0)
			require.True(t, logstore.IsAddr(old))
			s.put(0)
			s.foldAll()
			require.NotEqual(t, old, s.leafOf(0))
			s.flushAll()
			s.p.ReclaimAll(s.view)
			require.Nil(t, s.p.table.find(old), "no reader comes by the old name any more")
			s.must(s.batch(func(b *Batch) error { return change(s, b, old) }))
			require.ErrorIs(t, s.p.store.Failed(), logstore.ErrCorrupt)
		})
	}
}
