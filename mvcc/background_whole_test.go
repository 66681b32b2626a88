package mvcc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
)

// TestBackgroundKeepsTransactionsWhole: some transactions give all keys of a group the same value, others increment
// the counter of a group. At any Seq all values of a group are equal and no increment is lost, during background
// merges, large commits, compactions, checks and checkpoints, in a file with a size limit and in one without.
func TestBackgroundKeepsTransactionsWhole(t *testing.T) {
	t.Parallel()
	const groups, members = 16, 24
	for _, d := range []Durability{Durable, WriteThrough, Buffered} {
		for _, limit := range []int64{0, 12 << 20} {
			o := Options{Durability: d, RedoLimit: 256 << 10, MemoryLimit: 4 << 20,
				Store:      logstore.Options{SegmentPages: 32, ChunkPages: 1 << 10, MaxFileSize: limit},
				Thresholds: Thresholds{BackgroundOps: 48, DeferOps: 8, PartBytes: 16 << 10}}
			o.Shares.Batch = 256 << 10
			e := newEngine(t, o)
			var all sync.WaitGroup
			var counts [groups]atomic.Int64
			var seen atomic.Int64 // how often a background merge was found running
			end, late := time.Now().Add(backgroundTime), time.Now().Add(100*backgroundTime)
			more := func() bool { return time.Now().Before(end) || seen.Load() == 0 && time.Now().Before(late) }
			key := func(g, m int) []byte { return fmt.Appendf(nil, "%03d-%02d", m*37%101, g) }
			full := func(err error) bool { return limit > 0 && logstore.IsFull(err) }
			for w := range 4 {
				all.Go(func() {
					rng := rand.New(rand.NewPCG(uint64(w), uint64(d)))
					for i := 0; more(); i++ {
						g := rng.IntN(groups)
						tx, err := e.Begin(TxOptions{})
						if !assert.NoError(t, err) {
							return
						}
						value := fmt.Append(make([]byte, rng.IntN(150)), fmt.Sprintf("=%d-%d", w, i))
						if rng.IntN(40) == 0 {
							value = append(make([]byte, 5000), value...)
						}
						put := func(n int, key func(int) []byte) {
							for m := 0; m < n && err == nil; m++ {
								err = tx.Put(key(m), value)
							}
						}
						put(members, func(m int) []byte { return key(g, m) })
						if rng.IntN(200) == 0 { // a large transaction
							put(400, func(m int) []byte { return fmt.Appendf(nil, "x-%d-%03d", w, m*7%401) })
						}
						if full(err) { // a write set larger than memory is written to the file before the commit
							tx.Rollback()
							continue
						}
						if !assert.NoError(t, err) {
							return
						}
						if err = tx.Commit(); err != nil && !full(err) {
							t.Error(err)
							return
						}
						if i%8 != 0 {
							continue
						}
						err = e.Retry(context.Background(), TxOptions{Serializable: i%16 == 0}, func(tx *Tx) (bool, error) {
							k := fmt.Appendf(nil, "count-%02d", g)
							v, _, err := tx.Get(k)
							var n int64
							if err == nil {
								fmt.Sscan(string(v), &n)
								err = tx.Put(k, fmt.Append(nil, n+1))
							}
							if err != nil {
								tx.Rollback()
								return false, err
							}
							err = tx.Commit()
							return errors.Is(err, ErrConflict), err
						})
						switch {
						case err == nil:
							counts[g].Add(1)
						case !full(err) && !errors.Is(err, ErrSnapshotTooOld):
							t.Error(err)
							return
						}
					}
				})
			}
			all.Go(func() {
				rng := rand.New(rand.NewPCG(99, uint64(d)))
				var held []*Tx
				look := func(tx *Tx) {
					g := rng.IntN(groups)
					want, _, err := tx.Get(key(g, 0))
					want = append([]byte{}, want...)
					for m := 1; m < members && err == nil; m++ {
						var v []byte
						if v, _, err = tx.Get(key(g, m)); err == nil && !assert.Equal(t, string(want), string(v)) {
							return
						}
					}
					if err != nil && !errors.Is(err, ErrSnapshotTooOld) {
						t.Error(err)
					}
				}
				for more() {
					tx, err := e.Begin(TxOptions{ReadOnly: true})
					if !assert.NoError(t, err) {
						return
					}
					if held = append(held, tx); len(held) > 5 || rng.IntN(3) == 0 {
						i := rng.IntN(len(held))
						look(held[i])
						assert.NoError(t, held[i].Rollback())
						held = append(held[:i], held[i+1:]...)
					}
					time.Sleep(time.Duration(rng.IntN(3000)) * time.Microsecond)
				}
				for _, tx := range held {
					tx.Rollback()
				}
			})
			all.Go(func() {
				for i := 0; more(); i++ {
					var err error
					switch i % 4 {
					case 0:
						err = e.Checkpoint()
					case 1:
						err = e.Compact(context.Background(), nil)
					case 2:
						err = e.Check(context.Background())
					case 3:
						err = e.Sync()
					}
					if err != nil && !full(err) {
						t.Error(i%4, err)
					}
					time.Sleep(5 * time.Millisecond)
				}
			})
			all.Go(func() {
				for more() {
					if e.tree.tables.merging() {
						seen.Add(1)
					}
					time.Sleep(100 * time.Microsecond)
				}
			})
			all.Wait()
			r := begin(t, e, TxOptions{ReadOnly: true})
			for g := range counts {
				v, _, err := r.Get(fmt.Appendf(nil, "count-%02d", g))
				require.NoError(t, err)
				var n int64
				fmt.Sscan(string(v), &n)
				require.Equal(t, counts[g].Load(), n, "increments of %d", g)
			}
			require.NoError(t, r.Rollback())
			require.Positive(t, seen.Load())
		}
	}
}

const backgroundTime = 200 * time.Millisecond
