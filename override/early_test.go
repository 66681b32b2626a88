package override

import (
	"testing"

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
