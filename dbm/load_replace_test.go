package dbm

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLoadReplace: a load replaces all records of a keyspace or of the default one, atomically. Snapshots from
// before have the old records. A transaction that has looked up the keyspace before loses a conflict.
func TestLoadReplace(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "a"} {
		for _, sorted := range []bool{true, false} {
			db := newSpaced(t, &Options{MemoryLimit: minMemoryLimit})
			db.drops.row = rowBytes // so that everything is done in transactions: see TestLoadRows
			require.NoError(t, db.CreateKeyspace("other"))
			require.NoError(t, db.Keyspace("other").Put([]byte("k"), []byte("stays")))
			model := map[string]map[string]string{"": {}, "other": {"k": "stays"}}
			load := func(ctx context.Context, records map[string]string, meanwhile func()) error {
				into := db.Load
				if name != "" {
					into = db.Keyspace(name).Load
				}
				return into(ctx, func(yield func(k, v []byte) bool) {
					for _, k := range slices.Sorted(maps.Keys(records)) {
						if !yield([]byte(k), []byte(records[k])) {
							return
						}
					}
					meanwhile()
				}, LoadOptions{Sorted: sorted, Replace: true})
			}
			fill := func(from, to int) map[string]string {
				records := map[string]string{}
				for i := from; i < to; i++ {
					records[fmt.Sprintf("%05d", i)] = string(sized(150, byte(i)))
				}
				return records
			}
			model[name] = fill(0, 5000) // more than are deleted one by one, with write sets that leave memory
			require.NoError(t, load(t.Context(), model[name], func() {}))
			requireSpaces(t, db, model)
			old, err := db.Begin(TxOptions{ReadOnly: true})
			require.NoError(t, err)
			t.Cleanup(func() { old.Rollback() }) // otherwise Close would wait if this fails
			before, err := inSpace(old, name)
			require.NoError(t, err)

			ctx, cancel := context.WithCancelCause(t.Context())
			require.ErrorIs(t, load(ctx, fill(1, 3), func() { cancel(os.ErrDeadlineExceeded) }), os.ErrDeadlineExceeded)
			requireSpaces(t, db, model)
			late, err := db.Begin(TxOptions{})
			require.NoError(t, err)
			t.Cleanup(func() { late.Rollback() })
			in, err := inSpace(late, name)
			require.NoError(t, err)
			require.NoError(t, in.Put([]byte("00001"), []byte("late")))
			_, err = in.Get([]byte("00001"))
			require.NoError(t, err)
			had := model[name]
			model[name] = fill(4000, 6000)
			require.NoError(t, load(t.Context(), model[name], func() {}))
			require.ErrorIs(t, late.Commit(), ErrConflict)
			require.True(t, sameRecords(had, before), "what a snapshot of before has")
			require.NoError(t, old.Rollback())
			requireSpaces(t, db, model)
			require.Eventually(t, func() bool { return db.Dropping() == 0 }, patience, time.Millisecond, "in the background")
			require.NoError(t, db.Checkpoint())
			total := 0
			for _, records := range model {
				total += len(records)
			}
			extra := 2 + 1 // the mark and the serial, the name of the other keyspace,
			if name != "" {
				extra++ // and of this one
			}
			require.EqualValues(t, total+extra, db.Stats().Records, "nothing is left of what was replaced")
			require.NoError(t, db.Check(t.Context()))
		}
	}
}

func inSpace(tx *Tx, name string) (*Tx, error) {
	if name == "" {
		return tx, nil
	}
	return tx.Keyspace(name)
}
