package override

import (
	"testing"

	"flashdbm/logstore/vfs"

	"github.com/stretchr/testify/require"
)

// What earlier batches have left dirty, readers may be looking at: it waits for the flush to be sealed, and only the pages of the batch
// under way are written early.
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

// A flush that was begun early and is given up leaves nothing behind: its pages are dirty again, with all that they need in memory.
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
		require.False(t, n.Borrows(), "nothing keeps the segment of a void image")
	}
	s.must(s.verifyNewest())
	s.flushAll()
	s.must(s.settle())
	s.crash(vfs.KeepNone)
	s.must(s.settle())
}
