package logstore

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
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

// TestNewFileIsZeroed: the space that a new file grows into for small groups that are synced was written before; for others it is
// allocated only.
func TestNewFileIsZeroed(t *testing.T) {
	for name, c := range map[string]struct {
		synced bool
		pages  int64
		zeroed bool
	}{
		"small and synced": {true, smallReserve, true},
		"large":            {true, smallReserve + 1, false},
		"not synced":       {false, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem(16 << 20)
			defer mem.Release()
			s, _, err := Open(mem, toyPath, Options{ChunkPages: 4096, Synced: c.synced})
			require.NoError(t, err)
			defer s.Close()
			written := map[Addr]bool{}
			mem.OnOp(func(op vfs.Op) error {
				if op.Kind == vfs.OpWrite {
					for a := range op.Len / PageSize {
						written[Addr(op.Off/PageSize+a)] = true
					}
				}
				return nil
			})
			from := s.End()
			require.Less(t, from, Addr(s.segmentPages))
			for s.End() == from {
				require.NoError(t, s.Reserve(c.pages, false))
			}
			for a := from; a < 2*Addr(s.segmentPages); a++ { // it may have grown twice
				require.Equal(t, c.zeroed, written[a], "page %d", a)
			}
			require.Equal(t, c.zeroed, s.ZeroDue(), "what comes next")
		})
	}
}

// TestNewFileIsZeroedOnFullDevice: zeros that find no space are a full file like any other, not a failure.
func TestNewFileIsZeroedOnFullDevice(t *testing.T) {
	mem := vfs.NewMem(16 << 20)
	defer mem.Release()
	s, _, err := Open(mem, toyPath, Options{ChunkPages: 4096, Synced: true})
	require.NoError(t, err)
	defer s.Close()
	from := s.End()
	mem.OnOp(func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite && op.Off >= int64(from)*PageSize {
			return syscall.ENOSPC
		}
		return nil
	})
	for err = nil; err == nil; err = s.Reserve(1, false) {
	}
	require.True(t, IsFull(err), "%v", err)
	require.NoError(t, s.Failed())
	require.Equal(t, from, s.End())
	mem.OnOp(nil)
	require.NoError(t, s.Reserve(1, false))
	require.Greater(t, s.End(), from)
}
