package logstore

import (
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// TestZeroAhead: when the log has entered a segment, the next segments are filled with zeros; if no segment is free,
// the file grows first. Later commits then write into space that was written before.
func TestZeroAhead(t *testing.T) {
	x := newScript(t)
	x.s.Rebase(x.append(1))
	for x.s.tail.header.segment == 0 || !x.s.ZeroDue() {
		x.s.Rebase(x.append(1))
	}
	require.NoError(t, x.s.ZeroAhead())
	require.False(t, x.s.ZeroDue())
	sp := x.s.space
	require.LessOrEqual(t, sp.Missing(zeroAhead+1), int64(0))
	require.GreaterOrEqual(t, x.s.SpaceStats().FreeSegments, zeroAhead)
	c := sp.Counts()
	require.GreaterOrEqual(t, c.Available-c.Promised-c.Kept, int64(2*x.s.segmentPages), "a segment can be done without")
	n, blank := sp.TakeBlank(zeroAhead)
	require.False(t, blank, "segment %d is entered soon", n)
	size := sp.End()
	for entered, segment := 0, x.s.tail.header.segment; entered < zeroAhead; {
		x.append(1)
		if n := x.s.tail.header.segment; n != segment {
			entered, segment = entered+1, n
		}
	}
	require.Equal(t, size, sp.End(), "grown by a commit")
}

// TestZerosBehindSmallGroups: in a segment that was never written, a small synced group also writes zeros after
// it, so that later groups find written space. The zeros stay within the segment and within its allocated
// space.
func TestZerosBehindSmallGroups(t *testing.T) {
	for name, c := range map[string]struct {
		synced bool
		pages  int
	}{
		"small and synced": {true, smallGroup},
		"large":            {true, smallGroup + 1},
		"not synced":       {false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem(16 << 20)
			defer mem.Release()
			s, rec, err := Open(mem, toyPath, Options{SegmentPages: 128, ChunkPages: 4096, Synced: c.synced})
			require.NoError(t, err)
			defer s.Close()
			require.NoError(t, s.EndRecovery(rec))
			written := map[Addr]bool{}
			var unwritten, groups int
			mem.OnOp(func(op vfs.Op) error {
				if op.Kind != vfs.OpWrite && op.Kind != vfs.OpWriteVec {
					return nil
				}
				require.LessOrEqual(t, op.Off+op.Len, int64(s.End())*PageSize)
				groups++
				if !written[Addr(op.Off/PageSize)] {
					unwritten++
				}
				for a := range op.Len / PageSize {
					written[Addr(op.Off/PageSize+a)] = true
				}
				return nil
			})
			x := &script{t: t, mem: mem, s: s}
			for s.tail.header.sequence < 6 {
				x.append(c.pages)
			}
			if c.synced && c.pages <= smallGroup {
				require.Less(t, unwritten, 3*6+3, "of %d groups: one for 64 pages, and where the file ended", groups)
			} else {
				require.Equal(t, groups, unwritten)
			}
		})
	}
}

// TestGrowAhead: while there is a free segment, no commit waits for growth, and growing ahead provides such a segment
// again. A file with a limit does not grow ahead.
func TestGrowAhead(t *testing.T) {
	x := newScript(t)
	for x.s.End() < growsFrom*uint64(x.s.segmentPages) {
		require.False(t, x.s.GrowDue(0), "a small file")
		require.NoError(t, x.s.Reserve(1, false))
	}
	for range 20 {
		require.NoError(t, x.s.GrowAhead(0))
		require.False(t, x.s.GrowDue(0))
		size := x.s.End()
		for !x.s.GrowDue(0) {
			require.NoError(t, x.s.Reserve(1, false))
		}
		require.NoError(t, x.s.Reserve(int64(x.s.segmentPages)-1, false))
		require.Equal(t, size, x.s.End())
		require.NoError(t, x.s.GrowAhead(0))
		require.Greater(t, x.s.End(), size)
	}
	asked := int64(x.s.segmentPages)
	for !x.s.GrowDue(asked) {
		require.NoError(t, x.s.Reserve(1, false))
	}
	require.False(t, x.s.GrowDue(0), "who asks for more is to find more")
	require.NoError(t, x.s.GrowAhead(asked))
	size := x.s.End()
	for range growsFrom / 2 {
		require.NoError(t, x.s.Reserve(asked, false))
	}
	require.Equal(t, size, x.s.End())
	require.NoError(t, x.s.Reserve(1, true))
	for !x.s.GrowDue(0) {
		require.NoError(t, x.s.Reserve(1, false))
	}
}

// growsFrom is the length in segments at which a file first grows ahead of commits that are not synced.
const growsFrom = 8
