package mvcc

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// TestFlushBehindCommits: a flush of a tree that lacks commits writes the tree as it is, in whole or in parts.
// Recovery redoes the missing commits: those in the log when the flush began, those that came during it, and those
// whose merge is still running.
func TestFlushBehindCommits(t *testing.T) {
	for _, d := range []Durability{Durable, Buffered} {
		for _, parts := range []bool{false, true} {
			t.Run(fmt.Sprint(d, parts), func(t *testing.T) {
				mem := vfs.NewMem(0)
				defer mem.Release()
				o := Options{Durability: d, Manual: true, Thresholds: Thresholds{BackgroundOps: 64, DeferOps: 1}}
				e := openOn(t, mem, o)
				want := map[string]string{}
				commit := func(from, n int) {
					tx := begin(t, e, TxOptions{})
					for i := from; i < from+n; i++ {
						key, value := fmt.Sprintf("%04d", i*7919%1009), fmt.Sprint(i, make([]byte, 100))
						require.NoError(t, tx.Put([]byte(key), []byte(value)))
						want[key] = value
					}
					require.NoError(t, tx.Commit())
				}
				flush := func(checkpoint bool) {
					e.checkpoints.mu.Lock()
					defer e.checkpoints.mu.Unlock()
					e.flusher.lag = 1 << 20
					defer func() { e.flusher.lag = 0 }()
					if parts {
						require.NoError(t, e.flusher.flushPart(4))
					} else {
						require.NoError(t, e.flusher.flush())
					}
					if checkpoint {
						require.NoError(t, e.checkpoints.checkpoint())
					}
				}
				lags := 0
				for i := 0; i < 2000; i += 50 {
					commit(i, 50)
					if d == Buffered && i%100 == 0 {
						require.NoError(t, e.Sync())
					}
					if i%450 != 400 {
						continue
					}
					flush(true)
					if e.Pending() {
						require.Less(t, e.pages.Base(), e.store.LastGroup())
						require.Positive(t, e.pages.Base())
						lags++
						base := e.pages.Base()
						flush(false) // incomplete: a crash finds only some of its groups
						require.Greater(t, e.pages.Base(), base, "recovery takes it for one that the checkpoint has")
					}
				}
				require.Positive(t, lags, "all was merged before")
				require.NoError(t, e.Sync())
				image := mem.Crash(vfs.KeepNone, 0)
				defer image.Release()
				require.NoError(t, e.Close())
				for _, m := range []*vfs.Mem{mem, image} {
					r := openOn(t, m, Options{Manual: true})
					n, err := r.Len()
					require.NoError(t, err)
					require.EqualValues(t, len(want), n)
					for key, value := range want {
						v, ok, err := r.GetCopy([]byte(key))
						require.NoError(t, err)
						require.True(t, ok, key)
						require.Equal(t, value, string(v), key)
					}
					require.NoError(t, r.Check(context.Background()))
					require.NoError(t, r.Close())
				}
			})
		}
	}
}
