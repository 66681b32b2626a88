package dbm

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// TestDeleteRangeCrash simulates a power failure, or the death of the process, at each operation on the file, from
// before a commit that cuts a range until the cut is in the tree and covered by checkpoints. The recovered file has
// all of the transaction, which cuts the range and puts records into it and beside it, or none of it, and the same
// after a second crash. The range has values of all kinds, in the tree and in the redo of flushes that left leaves
// behind.
func TestDeleteRangeCrash(t *testing.T) {
	inTurn(t)
	for _, d := range []Durability{Durable, WriteThrough, Buffered} {
		t.Run(fmt.Sprint(d), func(t *testing.T) {
			t.Parallel()
			mem := vfs.NewMem(0)
			defer mem.Release()
			opts := (&Options{Durability: d, RedoLimit: 1 << 20}).engine()
			opts.Manual, opts.CutFrom, opts.PartBytes, opts.Store.SegmentPages, opts.Store.ChunkPages = true, 50, 8<<10, 32, 512
			db, err := openEngine(mem, "a.fdbm", opts)
			require.NoError(t, err)
			model := map[string]string{}
			put := func(tx *Tx, i, version int) error {
				size := []int{20, 20, 20, 300, 5000}[i%5]
				if i%199 == 0 {
					size = 70_000
				}
				key, value := fmt.Sprintf("k%05d", i), fmt.Sprintf("%d of %d %0*d", version, i, size, 0)
				model[key] = value
				return tx.Put([]byte(key), []byte(value))
			}
			for version, step := range []int{1, 3, 7} {
				for i := 0; i < 1000; i += 20 * step {
					require.NoError(t, db.Update(func(tx *Tx) (err error) {
						for j := i; j < i+20*step && err == nil; j += step {
							err = put(tx, j, version)
						}
						return err
					}))
				}
				switch version {
				case 0:
					require.NoError(t, db.Checkpoint())
				case 1:
					require.NoError(t, db.engine.Housekeep())
				}
			}
			require.NoError(t, db.Sync())
			before := sortedRecords(model)
			acked, looks, redone := false, 0, 0
			var after []string
			look := func(image *vfs.Mem) {
				defer image.Release()
				looks++
				var first []string
				for again := range 2 {
					db, err := openEngine(image, "a.fdbm", opts)
					require.NoError(t, err)
					stats, err := db.engine.Stats()
					require.NoError(t, err)
					redone += stats.Recovery.Ranges
					var found []string
					require.NoError(t, db.View(func(tx *Tx) error {
						found = recordsOf(tx)
						n, err := tx.Len()
						require.EqualValues(t, len(found), n)
						return err
					}))
					if again == 0 {
						first = found
						if acked || fmt.Sprint(found) != fmt.Sprint(before) {
							require.Equal(t, after, found)
						}
						require.NoError(t, db.Check(context.Background()))
					} else {
						require.Equal(t, first, found)
						require.NoError(t, db.Update(func(tx *Tx) error { return tx.DeleteRange(nil, nil) }))
						require.NoError(t, db.Check(context.Background()))
					}
					if again == 0 && looks%2 == 0 { // crash a second time
						image = image.Crash(vfs.Policies()[looks/2%len(vfs.Policies())], uint64(looks))
						defer image.Release()
					}
					require.NoError(t, db.Close())
				}
			}
			tx, err := db.Begin(TxOptions{})
			require.NoError(t, err)
			require.NoError(t, tx.DeleteRange([]byte("k00120"), []byte("k00880")))
			for k := range model {
				if k >= "k00120" && k < "k00880" {
					delete(model, k)
				}
			}
			for _, i := range []int{3, 125, 503, 504, 999} {
				require.NoError(t, put(tx, i, 9))
			}
			after = sortedRecords(model)
			busy, ops := false, 0
			mem.OnOp(func(op vfs.Op) error {
				if ops++; busy || op.Kind == vfs.OpMap {
					return nil
				}
				busy = true
				look(mem.Clone()) // the process dies
				if !testing.Short() {
					look(mem.Crash(vfs.Policies()[ops%len(vfs.Policies())], uint64(ops)))
				}
				busy = false
				return nil
			})
			require.NoError(t, tx.Commit())
			acked = d == Durable
			require.NoError(t, db.Checkpoint())
			acked = true
			require.NoError(t, db.Checkpoint())
			mem.OnOp(nil)
			t.Logf("%d images, %d ranges redone", looks, redone)
			require.NotZero(t, redone)
			require.NoError(t, db.View(func(tx *Tx) error {
				require.Equal(t, after, recordsOf(tx))
				return nil
			}))
			require.NoError(t, db.Close())
		})
	}
}
