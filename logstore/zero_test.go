package logstore

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestZeroAhead: when the log has entered a segment, those that come next are made ready, growing the file if it has none to spare; the
// commits after that find space that was written before.
func TestZeroAhead(t *testing.T) {
	x := newScript(t)
	x.s.Rebase(x.append(1))
	for x.s.tail.header.segment == 0 || !x.s.ZeroDue() {
		x.s.Rebase(x.append(1))
	}
	require.NoError(t, x.s.ZeroAhead())
	require.False(t, x.s.ZeroDue())
	sp := x.s.space
	require.LessOrEqual(t, sp.missingAhead(), int64(0))
	require.GreaterOrEqual(t, len(sp.free), zeroAhead)
	for _, n := range sp.free[len(sp.free)-zeroAhead:] {
		require.False(t, sp.segments[n].blank, "segment %d is entered soon", n)
	}
	size := sp.end()
	for entered, segment := 0, x.s.tail.header.segment; entered < zeroAhead; {
		x.append(1)
		if n := x.s.tail.header.segment; n != segment {
			entered, segment = entered+1, n
		}
	}
	require.Equal(t, size, sp.end(), "grown by a commit")
}
