package dbm

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// TestLoadReplaceCrash simulates a power failure at every operation while a load replaces the records of a keyspace
// or of the default one: one commit cuts a range or drops a keyspace, and has a write set that has left memory.
// Afterwards, all of the old records are there, or all of the new ones.
func TestLoadReplaceCrash(t *testing.T) {
	inTurn(t)
	for _, name := range []string{"", "a"} {
		if testing.Short() && name == "" {
			continue
		}
		t.Run("keyspace "+name, func(t *testing.T) {
			t.Parallel()
			mem := vfs.NewMem(64 << 20)
			opts := cutOptions()
			opts.MemoryLimit = minMemoryLimit
			open := func(fs *vfs.Mem) (*DB, error) {
				db, err := openEngine(fs, "db", opts)
				if err == nil {
					err = db.keyspaces.ready()
				}
				return db, err
			}
			db, err := open(mem)
			require.NoError(t, err)
			db.drops.stop()
			db.drops.row = rowBytes // so that everything is done in transactions: see TestLoadRowsPowerCut
			require.NoError(t, db.EnableKeyspaces())
			fill := func(from, to int) map[string]string {
				records := map[string]string{}
				for i := from; i < to; i++ {
					records[fmt.Sprintf("%04d", i)] = string(sized(3000, byte(i)))
				}
				return records
			}
			load := func(records map[string]string) error {
				into := db.Load
				if name != "" {
					into = db.Keyspace(name).Load
				}
				return into(t.Context(), func(yield func(k, v []byte) bool) {
					for _, k := range slices.Sorted(maps.Keys(records)) {
						if !yield([]byte(k), []byte(records[k])) {
							return
						}
					}
				}, LoadOptions{Replace: true})
			}
			steps := cutSteps[map[string]string]{states: []map[string]string{fill(0, 60)}}
			require.NoError(t, load(steps.states[0]))
			end := cutPower(mem, func(image *vfs.Mem, where string) {
				db, err := open(image)
				require.NoError(t, err, where)
				defer db.Close()
				require.NoError(t, db.View(func(tx *Tx) error {
					in, err := inSpace(tx, name)
					require.NoError(t, err, where)
					found := map[string]string{}
					for k, v := range in.All() {
						found[string(k)] = string(v)
					}
					require.True(t, steps.possible(func(s map[string]string) bool { return maps.Equal(s, found) }), "%s: %d records", where, len(found))
					return tx.Err()
				}))
			})
			require.NoError(t, steps.next(fill(30, 150), func() error { return load(fill(30, 150)) }))
			require.NoError(t, db.FinishDrops(t.Context()))
			require.NoError(t, db.Checkpoint())
			stats, err := db.engine.Stats()
			require.NoError(t, err)
			require.Positive(t, stats.Layers, "the write set has stayed in memory")
			n := end()
			require.NoError(t, db.Check(t.Context()))
			require.NoError(t, db.Close())
			t.Logf("%d operations", n)
		})
	}
}
