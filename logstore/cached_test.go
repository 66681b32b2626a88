package logstore

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// TestReadOnlyAfterAFailedSync: a sync fails, the process dies, and the system still shows pages that it has not
// written. A read-only open does not show them, because a power cut would lose them even after a successful sync by
// that open. Groups that a crash has left unsynced, and that the system does write, are shown.
func TestReadOnlyAfterAFailedSync(t *testing.T) {
	readOnly := Options{SegmentPages: 8, ChunkPages: 4096, ReadOnly: true}
	for _, fails := range []bool{false, true} {
		x := newScript(t)
		x.mem.SetLoss(vfs.LoseLater, 0)
		require.NoError(t, x.s.Reserve(40, true)) // growing would sync too
		x.s.Release(40)
		durable := x.append(2)
		require.NoError(t, x.s.Sync())
		want := []uint64{durable}
		for _, pages := range []int{1, 3, 9} { // into the next segment
			if n := x.append(pages); !fails {
				want = append(want, n)
			}
		}
		if fails {
			x.mem.OnOp(func(op vfs.Op) error {
				if op.Kind == vfs.OpDatasync {
					return errors.New("lost")
				}
				return nil
			})
			require.Error(t, x.s.Sync())
			x.mem.OnOp(nil)
		}
		x.become(x.mem.Clone())
		writing := x.opts
		x.opts = readOnly
		x.open()
		require.Equal(t, want, x.groups())
		x.crash(vfs.KeepNone)
		x.open()
		require.Equal(t, want, x.groups(), "what was shown stays")
		x.s.Close()
		x.opts = writing
		x.open()
		require.Equal(t, want, x.groups())
		x.s.Close()
	}
}
