package override

import (
	"testing"

	"flashdbm/internal/btree"
	"flashdbm/logstore/vfs"

	"github.com/stretchr/testify/require"
)

// Readers may be looking at versions of earlier batches, so these wait until the flush is sealed; only pages of
// the batch in progress are written early.
func TestEarlyLeavesEarlierSeqs(t *testing.T) {
	s := newScript(t, false)
	s.put(span(0, 60)...)
	require.NotEmpty(t, s.p.dirty.pages)
	earlier := s.p.dirty.len()
	require.Positive(t, s.p.EarlyPages(AllLevels), "the batch that was the last one")
	s.p.Begin(s.p.Seq() + 1)
	require.Zero(t, s.p.EarlyPages(AllLevels))
	f := s.p.StartEarly()
	written, err := f.WriteEarly(AllLevels)
	require.NoError(t, err)
	require.Zero(t, written)
	require.Equal(t, earlier, s.p.dirty.len())
	f.Abandon()
}

// An early flush that is recalled has no effect: its pages are in memory and dirty again.
func TestRecall(t *testing.T) {
	s := newScript(t, true)
	s.put(span(0, 80)...)
	s.flushAll()
	s.put(span(0, 60)...)
	dirty := s.p.dirty.len()
	f := s.p.StartEarly()
	s.must(s.reserved(2*int64(dirty)+8, func() error {
		_, err := f.WriteEarly(AllLevels)
		return err
	}))
	require.Empty(t, s.p.dirty.pages)
	early := f.early
	require.Len(t, early, dirty)
	f.Recall()
	require.Len(t, s.p.dirty.pages, dirty)
	for _, x := range early {
		n, err := s.p.nodeAt(x.entry.id, s.p.Seq())
		s.must(err)
		require.False(t, n.Borrows(), "nothing keeps the segment of a recalled image")
	}
	s.must(s.verifyNewest())
	s.flushAll()
	s.must(s.settle())
	s.crash(vfs.KeepNone)
	s.must(s.settle())
}

// A page that was written early and that the batch then changed again has to be written after a Recall, because
// the epoch in which it first became dirty is forgotten.
func TestRecallOfAPageChangedAgain(t *testing.T) {
	s := newScript(t, true)
	s.put(span(0, 80)...)
	s.flushAll()
	require.Equal(t, s.leafOf(4), s.leafOf(5))
	s.put(4)
	s.flushPart()
	require.Equal(t, 1, s.p.dirty.len(), "left behind")
	require.Less(t, s.p.RedoStart(), s.p.Base())
	s.put(5)
	f := s.p.StartEarly()
	s.must(s.reserved(8, func() error {
		_, err := f.WriteEarly(AllLevels)
		return err
	}))
	require.Len(t, f.early, 1)
	c := s.beginCommit()
	c.change(&s.records, 5, false)
	c.ops[0].version--
	_, err := btree.Apply(s.p.SameBatch(), Root, s.treeOps(c.ops))
	s.must(err)
	f.Recall()
	s.must(s.verifyNewest())
	s.flushPart()
	s.crash(vfs.KeepNone)
	s.must(s.settle())
}

// flushPart flushes the pages that have to be written, leaves all others behind, and syncs.
func (s *script) flushPart() {
	s.t.Helper()
	f := s.p.StartPart(s.s.LastGroup(), s.count, &Part{})
	f.Sort()
	s.flush = &modelFlush{f: f}
	for s.flush != nil {
		s.must(s.flushStep())
	}
	s.must(s.sync())
}
