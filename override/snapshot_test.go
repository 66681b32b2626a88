package override

import (
	"testing"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
	"flashdbm/logstore/vfs"

	"github.com/stretchr/testify/require"
)

// misled makes the name of a key's leaf lead to the page of another leaf.
func (s *script) misled(key, other int) {
	s.t.Helper()
	e, o := s.p.table.find(s.leafOf(key)), s.p.table.find(s.leafOf(other))
	e.show(&version{kind: atAddress, addr: o.disk})
}

// A page to which the table leads must bear the name that was looked up.
func TestWrongName(t *testing.T) {
	s := newScript(t, false)
	s.put(span(0, 60)...)
	s.flushAll()
	s.misled(10, 40)
	require.ErrorIs(t, s.verifyNewest(), logstore.ErrCorrupt)
}

// A name that has never had a meaning, or no longer has one, is an error.
func TestUnknownName(t *testing.T) {
	s := newScript(t, false)
	s.put(span(0, 60)...)
	s.flushAll()
	gone, folded := s.leafOf(30), s.leafOf(1)
	s.del(span(20, 50)...)
	s.foldAll()
	for _, id := range []btree.PageID{gone, folded, logstore.BornBit | 1<<40, 1 << 40, 0} {
		_, err := s.p.nodeAt(id, s.appliedSeq.Load())
		require.ErrorIs(t, err, logstore.ErrCorrupt, "%#x", id)
	}
}

// A reference that does not fit its run, or leads to no run, is an error.
func TestWrongReference(t *testing.T) {
	s := newScript(t, true)
	s.put(0, runKey, largeKey)
	s.flushAll()
	snap := s.p.At(s.appliedSeq.Load())
	var refs []btree.Ref
	s.must(s.walk(snap, func(_ btree.PageID, n btree.Node) error {
		for i := 1; i < n.Count(); i++ {
			refs = append(refs, n.Cell(i).Ref())
		}
		return nil
	}))
	run, large := refs[0], refs[1]
	read := func(ref btree.Ref) error {
		if ref.Kind == btree.Extents {
			_, err := snap.Extents(ref)
			return err
		}
		_, err := snap.Run(ref)
		return err
	}
	s.must(read(run))
	s.must(read(large))
	for _, change := range []func(*btree.Ref){
		func(r *btree.Ref) { r.ID++ },
		func(r *btree.Ref) { r.ID = 1 << 40 },
		func(r *btree.Ref) { r.ID |= logstore.BornBit },
		func(r *btree.Ref) { r.ValueLen++ },
		func(r *btree.Ref) { r.KeyLen = 1 << 30 },
	} {
		for _, ref := range []btree.Ref{run, large} {
			change(&ref)
			require.ErrorIs(t, read(ref), logstore.ErrCorrupt)
		}
	}
	large.Kind = btree.Run
	require.ErrorIs(t, read(large), logstore.ErrCorrupt)
	_, err := snap.RunKey(btree.Ref{ID: run.ID, KeyLen: 1 << 30})
	require.ErrorIs(t, err, logstore.ErrCorrupt)
}

// Check finds a page that is live and unused, one that is used and not live, and a wrong count of records.
func TestCheckFinds(t *testing.T) {
	s := newScript(t, true)
	s.put(append(span(0, 60), runKey, largeKey)...)
	s.flushAll()
	place := s.p.table.find(s.leafOf(30)).place()
	s.s.KillNode(place, 0)
	require.ErrorContains(t, s.checkInstalled(), "dead in the space map")
	s.s.MarkNode(place, 0)
	s.must(s.checkInstalled())
	header := logstore.Addr(s.s.SegmentPages()) // of segment 1
	s.s.MarkLive(header, 1, 0)
	require.ErrorContains(t, s.checkInstalled(), "live in the space map and in no tree")
	s.s.Kill(header, 1, 0)
	s.crash(vfs.KeepNone)
	s.must(s.checkInstalled())
	s.p.baseRecords++
	require.ErrorContains(t, s.checkInstalled(), "records counted")
}
