package mvcc

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// TestLargeValuesAreSyncedFirst cuts the power at every operation of a commit of a large value; the last write may be
// kept while earlier ones are lost. Recovery accepts the group that lists the value if the group is complete, and does
// not read the value. Therefore the value must be synced before the group is written, in every durability mode.
func TestLargeValuesAreSyncedFirst(t *testing.T) {
	inTurn(t)
	for _, d := range []Durability{Durable, WriteThrough, Buffered} {
		mem := vfs.NewMem(0)
		opts := tiny(d)
		opts.Manual = true
		e := openOn(t, mem, opts)
		put(t, e, "small", "value")
		require.NoError(t, e.Checkpoint())
		require.NoError(t, e.Checkpoint())
		want := strings.Repeat("large", 20_000)
		found, missing := 0, 0
		look := func() {
			for seed := range uint64(20) {
				policy := vfs.KeepSuffix
				if seed == 0 {
					policy = vfs.KeepAll
				}
				image := mem.Crash(policy, seed)
				now := openOn(t, image, opts)
				require.NoError(t, now.Check(context.Background()), "%v: behind a power cut", d)
				tx := begin(t, now, TxOptions{ReadOnly: true})
				if v := get(t, tx, "large"); v == "" {
					missing++
				} else {
					require.True(t, v == want, "%v: the value has other bytes", d)
					found++
				}
				require.Equal(t, "value", get(t, tx, "small"))
				require.NoError(t, tx.Rollback())
				require.NoError(t, now.Close())
				image.Release()
			}
		}
		mem.OnOp(func(vfs.Op) error {
			look()
			return nil
		})
		put(t, e, "large", want)
		require.NoError(t, e.Sync())
		mem.OnOp(nil)
		require.Positive(t, found, "%v: the group is there before its sync", d)
		require.Greater(t, missing, 20)
		require.NoError(t, e.Close())
		mem.Release()
	}
}

// TestLayersAreRedoneInOrder kills the process at every operation of a commit whose write set is in layers. Earlier
// small commits have written some of its keys, and their redo is still needed. Recovery must find what the last commit
// has left of each key.
func TestLayersAreRedoneInOrder(t *testing.T) {
	const many, both = 2000, 700
	for _, d := range []Durability{WriteThrough, Buffered} {
		mem := vfs.NewMem(0)
		opts := spilling(d)
		e := openOn(t, mem, opts)
		put(t, e, "many00700", "old")
		put(t, e, "only", "old")
		tx := begin(t, e, TxOptions{})
		putMany(t, tx, many, "new")
		require.NoError(t, tx.Delete([]byte("only")))
		require.NotNil(t, tx.set.Spilled())
		redone := 0
		mem.OnOp(func(op vfs.Op) error {
			image := mem.Crash(vfs.KeepAll, 1)
			defer image.Release()
			now := openOn(t, image, opts)
			s, err := now.Stats()
			require.NoError(t, err)
			view := begin(t, now, TxOptions{ReadOnly: true})
			n, err := view.Len()
			require.NoError(t, err)
			if key := fmt.Sprintf("many%05d", both); n == many {
				require.Equal(t, "new", get(t, view, key), "%v: at %v", d, op)
				require.Equal(t, "", get(t, view, "only"), "%v: at %v", d, op)
			} else {
				require.LessOrEqual(t, n, int64(2), "%v: at %v", d, op)
			}
			if s.Recovery.Layers > 0 {
				redone++
				require.EqualValues(t, many, n)
			}
			require.NoError(t, view.Rollback())
			require.NoError(t, now.Check(context.Background()))
			require.NoError(t, now.Close())
			return nil
		})
		require.NoError(t, tx.Commit())
		mem.OnOp(nil)
		require.Positive(t, redone, "%v", d)
		require.NoError(t, e.Close())
		mem.Release()
	}
}
