package dbm

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// TestExpiryCrash simulates a power failure at every operation while records with a time of expiry are put for the
// first time in a file, put again, overwritten and deleted, and while expired ones are deleted in the background.
// At each of three times, the contents found equal one of the states that there were, as they would be read at that
// time, and not an older one than the last step that had returned. Each record that expires has its entry in the
// index. After all of them have expired, neither records nor entries are left.
func TestExpiryCrash(t *testing.T) {
	inTurn(t)
	t.Parallel()
	mem := vfs.NewMem(64 << 20)
	opts := cutOptions()
	var clock testClock
	clock.at.Store(1000)
	open := func(fs *vfs.Mem) (*DB, error) {
		db, err := openEngine(fs, "db", opts)
		if err == nil {
			clock.has(db)
			err = db.keyspaces.ready()
		}
		return db, err
	}
	db, err := open(mem)
	require.NoError(t, err)
	steps := cutSteps[timedModel]{states: []timedModel{{}}}
	for i, k := range []string{"a", "\xff", "\xff\xfft"} {
		steps.states[0][k] = timedValue{value: fmt.Sprint(i)}
		require.NoError(t, db.Put([]byte(k), []byte(fmt.Sprint(i))))
	}
	enable := true
	check := func(image *vfs.Mem, where string) {
		db, err := open(image)
		require.NoError(t, err, where)
		defer db.Close()
		if enable = !enable; enable { // continues where it was interrupted
			require.NoError(t, db.EnableExpiry(), where)
		}
		indexOf(t, db)
		was := clock.at.Load()
		defer clock.at.Store(was)
		var found []map[string]string
		read := func() map[string]string {
			records := map[string]string{}
			require.NoError(t, db.View(func(tx *Tx) error {
				for k, v := range tx.All() {
					records[string(k)] = string(v)
				}
				n, err := tx.Len()
				require.NoError(t, err, where)
				require.EqualValues(t, len(records), n, where)
				return tx.Err()
			}))
			return records
		}
		times := []int64{was, 5000, 1 << 30}
		for _, at := range times {
			clock.at.Store(at)
			found = append(found, read())
		}
		fits := func(s timedModel) bool {
			for i, at := range times {
				if !maps.Equal(s.at(at), found[i]) {
					return false
				}
			}
			return true
		}
		require.True(t, steps.possible(fits), "%s: none of the states from %d to %d: %q", where, steps.returned, len(steps.states)-1, found)
		image.OnOp(nil) // the checks below change the clock, and what is expired then was not at that operation
		_, err = db.DeleteExpired(t.Context())
		require.NoError(t, err, where)
		require.Empty(t, indexOf(t, db), where)
		require.Equal(t, found[2], read(), where)
	}
	end := cutPower(mem, check)
	require.NoError(t, db.EnableExpiry())
	step := func(change func(next timedModel, tx *Tx) error) {
		t.Helper()
		next := maps.Clone(steps.last())
		require.NoError(t, change(next, nil))
		require.NoError(t, steps.next(next, func() error { return db.Update(func(tx *Tx) error { return change(nil, tx) }) }))
	}
	puts := func(from, to int, ttl time.Duration) func(timedModel, *Tx) error {
		return func(next timedModel, tx *Tx) error {
			for i := from; i < to; i++ {
				k, v := fmt.Sprint(i), fmt.Sprint("value ", i, " for ", ttl)
				if tx == nil {
					next[k] = timedValue{v, clock.at.Load() + ttl.Milliseconds()}
				} else if err := tx.PutTTL([]byte(k), []byte(v), ttl); err != nil {
					return err
				}
			}
			return nil
		}
	}
	step(puts(0, 40, time.Second))
	step(puts(20, 60, 6*time.Second))
	step(puts(60, 61, time.Second))
	step(func(next timedModel, tx *Tx) error {
		if tx == nil {
			next["0"] = timedValue{value: "for good"}
			delete(next, "1")
			return nil
		}
		if err := tx.Delete([]byte("1")); err != nil {
			return err
		}
		return tx.Put([]byte("0"), []byte("for good"))
	})
	clock.pass(time.Second)
	steps.forget() // expired records may be deleted, which the earlier states do not show
	_, err = db.DeleteExpired(t.Context())
	require.NoError(t, err)
	require.NoError(t, db.Checkpoint())
	for i := range 3 { // times before those of other records, and after them
		step(puts(10*i, 30, time.Duration(1+i%2)*time.Second))
		step(puts(0, 20, time.Duration(2-i%2)*time.Second))
		clock.pass(time.Second)
		_, err = db.DeleteExpired(t.Context())
		require.NoError(t, err)
		require.NoError(t, db.Checkpoint())
	}
	n := end()
	require.NoError(t, db.Close())
	check(mem, "at the end")
	t.Logf("%d operations", n)
}
