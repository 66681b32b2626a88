package dbm

import (
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// TestKeyspaceCrash simulates a power failure at every operation while keyspaces are introduced in an old file,
// while keyspaces are created, written, renamed and dropped, and while the records of dropped ones are deleted. The
// state found is one of those that there were, and not an older one than the last that had returned. The same holds
// if the power fails again at some operation of the open that finds it.
func TestKeyspaceCrash(t *testing.T) {
	inTurn(t)
	t.Parallel()
	type spaces = map[string]map[string]string
	mem := vfs.NewMem(64 << 20)
	opts := cutOptions()
	open := func(fs *vfs.Mem) (*DB, error) {
		db, err := openEngine(fs, "db", opts)
		if err == nil {
			err = db.keyspaces.ready()
		}
		return db, err
	}
	shift := true
	db, err := open(mem)
	require.NoError(t, err)
	steps := cutSteps[spaces]{states: []spaces{{"": {}}}}
	for i, k := range []string{"", "a", "\xff", "\xff\x00", "\xff\x01", "\xff\xffn", "\xff\xff\xff"} {
		steps.states[0][""][k] = fmt.Sprint(i)
		require.NoError(t, db.Put([]byte(k), []byte(fmt.Sprint(i))))
	}
	require.NoError(t, db.Close())

	check := func(image *vfs.Mem, where string) {
		db, err := open(image)
		require.NoError(t, err, where)
		defer db.Close()
		if shift = !shift; shift { // continues where it was interrupted
			require.NoError(t, db.EnableKeyspaces(), where)
		}
		found := spaces{}
		require.NoError(t, db.View(func(tx *Tx) error {
			read := func(in *Tx) map[string]string {
				records := map[string]string{}
				for k, v := range in.All() {
					records[string(k)] = string(v)
				}
				require.NoError(t, in.Err(), where)
				return records
			}
			found[""] = read(tx)
			for name := range tx.Keyspaces() {
				in, err := tx.Keyspace(name)
				require.NoError(t, err, where)
				found[name] = read(in)
			}
			return tx.Err()
		}))
		require.True(t, steps.possible(func(s spaces) bool {
			return maps.EqualFunc(s, found, func(a, b map[string]string) bool { return maps.Equal(a, b) })
		}), "%s: none of the states from %d to %d: %q", where, steps.returned, len(steps.states)-1, found)
	}
	end := cutPower(mem, check)
	db, err = open(mem)
	require.NoError(t, err)
	require.NoError(t, db.EnableKeyspaces())
	step := func(change func(tx *Tx, next spaces) error) {
		t.Helper()
		next := spaces{}
		for name, records := range steps.last() {
			next[name] = maps.Clone(records)
		}
		require.NoError(t, change(nil, next))
		require.NoError(t, steps.next(next, func() error { return db.Update(func(tx *Tx) error { return change(tx, nil) }) }))
	}
	put := func(name string, from, to int) func(tx *Tx, next spaces) error {
		return func(tx *Tx, next spaces) error {
			in := tx
			if tx != nil && name != "" {
				var err error
				if in, err = tx.Keyspace(name); err != nil {
					return err
				}
			}
			for i := from; i < to; i++ {
				k, v := fmt.Sprintf("\xff%d", i), fmt.Sprint(name, i)
				if tx == nil {
					next[name][k] = v
				} else if err := in.Put([]byte(k), []byte(v)); err != nil {
					return err
				}
			}
			return nil
		}
	}
	create := func(name string) func(tx *Tx, next spaces) error {
		return func(tx *Tx, next spaces) error {
			if tx == nil {
				next[name] = map[string]string{}
				return nil
			}
			_, err := tx.CreateKeyspace(name)
			return err
		}
	}
	drop := func(name string) func(tx *Tx, next spaces) error {
		return func(tx *Tx, next spaces) error {
			if tx == nil {
				delete(next, name)
				return nil
			}
			return tx.DropKeyspace(name)
		}
	}
	step(create("a"))
	step(put("a", 0, 1200))
	step(create("b"))
	step(put("b", 0, 3))
	step(put("", 0, 3))
	step(func(tx *Tx, next spaces) error {
		if tx == nil {
			next["c"] = next["b"]
			delete(next, "b")
			return nil
		}
		return tx.RenameKeyspace("b", "c")
	})
	db.drops.piece = 500
	db.drops.stop() // only one goroutine may use the file, so that images are of a definite moment
	step(drop("a"))
	require.NoError(t, db.FinishDrops(t.Context()))
	step(create("a"))
	step(put("a", 1, 2))
	step(drop("c"))
	require.NoError(t, db.Checkpoint())
	n := end()
	require.NoError(t, db.Close())
	check(mem, "at the end")
	t.Logf("%d operations", n)
}
