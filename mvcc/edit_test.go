package mvcc

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
)

// TestTreeIsEditedBelowMemtables: folds, moves and versions of the tree without changes happen between commits and
// their merge, in any order. Readers see what was committed before them, and such versions get Seqs that no commit
// has.
func TestTreeIsEditedBelowMemtables(t *testing.T) {
	for _, d := range []Durability{Durable, WriteThrough, Buffered} {
		for seed := range uint64(4) {
			e := newEngine(t, Options{Durability: d, Manual: true, Thresholds: Thresholds{BackgroundOps: 40, DeferOps: 3},
				Store: logstore.Options{SegmentPages: 8}, RedoLimit: 1 << 20})
			rng := rand.New(rand.NewPCG(seed, uint64(d)))
			want := map[string]string{}
			type reader struct {
				tx   *Tx
				want map[string]string
			}
			var readers []reader
			numbers := map[uint64]bool{}
			for i := range 300 {
				switch rng.IntN(8) {
				default:
					tx := begin(t, e, TxOptions{})
					for range 1 + rng.IntN(8) {
						k, v := fmt.Sprintf("%03d", rng.IntN(400)), fmt.Sprint(i)
						if rng.IntN(4) == 0 {
							v = fmt.Sprintf("%0*d", 300, i)
						}
						if rng.IntN(4) == 0 {
							require.NoError(t, tx.Delete([]byte(k)))
							delete(want, k)
						} else {
							require.NoError(t, tx.Put([]byte(k), []byte(v)))
							want[k] = v
						}
					}
					require.NoError(t, tx.Commit())
					seq := e.marks.committed.Load()
					require.False(t, numbers[seq], "a version of the tree has the Seq of a commit")
					numbers[seq] = true
				case 0:
					_, err := e.tree.reclaimNow()
					require.NoError(t, err)
					require.False(t, numbers[e.readers.views.Load()])
				case 1:
					e.checkpoints.mu.Lock()
					require.NoError(t, e.flusher.fold())
					e.checkpoints.mu.Unlock()
				case 2:
					if rng.IntN(3) == 0 {
						require.NoError(t, e.Housekeep())
					} else if rng.IntN(3) == 0 {
						require.NoError(t, e.Checkpoint())
					} else {
						require.NoError(t, e.tree.mergeAll())
					}
				case 3:
					now := map[string]string{}
					for k, v := range want {
						now[k] = v
					}
					readers = append(readers, reader{begin(t, e, TxOptions{ReadOnly: rng.IntN(2) == 0}), now})
				case 4:
					if len(readers) == 0 {
						break
					}
					n := rng.IntN(len(readers))
					r := readers[n]
					require.Equal(t, r.want, collect(t, r.tx))
					l, err := r.tx.Len()
					require.NoError(t, err)
					require.EqualValues(t, len(r.want), l)
					for range 20 {
						k := fmt.Sprintf("%03d", rng.IntN(400))
						require.Equal(t, r.want[k], get(t, r.tx, k))
					}
					require.NoError(t, r.tx.Rollback())
					readers = append(readers[:n], readers[n+1:]...)
				}
			}
			for _, r := range readers {
				require.Equal(t, r.want, collect(t, r.tx))
				require.NoError(t, r.tx.Rollback())
			}
		}
	}
}
