package dbm

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAllocations: reading allocates only what the caller keeps.
func TestAllocations(t *testing.T) {
	db := newDB(t, nil)
	key := func(i int) []byte { return fmt.Appendf(nil, "key-%06d", i) }
	require.NoError(t, db.Update(func(tx *Tx) error {
		for i := range 5000 {
			if err := tx.Put(key(i), sized(100, byte(i))); err != nil {
				return err
			}
		}
		return tx.Put([]byte("long"), sized(100_000, 1))
	}))
	get := func(name string, want float64, fn func()) {
		t.Helper()
		got := -1.0
		for range 20 { // background work allocates too, and pages are checked when they are first touched
			if got = testing.AllocsPerRun(100, fn); got == want {
				return
			}
		}
		require.Equal(t, want, got, name)
	}
	for _, state := range []string{"versions in memory", "pages"} {
		k, absent := key(2500), key(9999)
		require.NoError(t, db.View(func(tx *Tx) error {
			get(state+": Tx.Get", 0, func() { tx.Get(k) })
			get(state+": Tx.Get of a run", 0, func() { tx.Get([]byte("long")) })
			get(state+": Tx.Get, absent", 0, func() { tx.Get(absent) })
			get(state+": Tx.Has", 0, func() { tx.Has(k) })
			c := tx.Cursor()
			c.Seek(k)
			get(state+": Cursor.Next", 0, func() { c.Next(); c.Key(); c.Value() })
			get(state+": Cursor.Seek", 0, func() { c.Seek(k) })
			get(state+": Tx.Range", 1, func() { // the small part of its cursor
				for range tx.Range(k, absent) {
				}
			})
			return nil
		}))
		require.NoError(t, db.Update(func(tx *Tx) error {
			require.NoError(t, tx.Put(absent, k))
			get(state+": Tx.Get beside writes", 0, func() { tx.Get(k) })
			get(state+": Tx.Get of a write", 0, func() { tx.Get(absent) })
			return tx.Delete(absent)
		}))
		get(state+": DB.Get", 1, func() { db.Get(k) })
		get(state+": DB.Get of a run", 1, func() { db.Get([]byte("long")) })
		get(state+": DB.Get, absent", 0, func() { db.Get(absent) })
		get(state+": DB.Has", 0, func() { db.Has(k) })
		require.NoError(t, db.Checkpoint())
	}
}

// TestCostOfLoneCommits: a single goroutine that commits small records writes one page and syncs once per commit,
// apart from splits and background work.
func TestCostOfLoneCommits(t *testing.T) {
	db := newWith(t, openUnsynced, nil)
	const records, commits = 2000, 200
	require.NoError(t, db.Update(func(tx *Tx) error {
		for i := range records {
			if err := tx.Put(fmt.Appendf(nil, "key-%06d", i), sized(100, 1)); err != nil {
				return err
			}
		}
		return nil
	}))
	require.NoError(t, db.Checkpoint())
	for _, kind := range []string{"overwrite", "update", "delete and insert"} {
		before := db.Stats()
		for i := range commits {
			key := fmt.Appendf(nil, "key-%06d", i*7919%records)
			switch kind {
			case "overwrite":
				require.NoError(t, db.Put(key, sized(100, byte(i))))
			case "update":
				require.NoError(t, db.Update(func(tx *Tx) error {
					v, err := tx.Get(key)
					require.NoError(t, err)
					return tx.Put(key, append([]byte{byte(i)}, v[1:]...))
				}))
			default:
				if i%2 == 0 {
					require.NoError(t, db.Delete(key))
				} else {
					require.NoError(t, db.Put(fmt.Appendf(nil, "key-%06d", (i-1)*7919%records), sized(100, byte(i))))
				}
			}
		}
		after := db.Stats()
		require.EqualValues(t, commits, after.Commits-before.Commits)
		if after.Checkpoints != before.Checkpoints || after.Flushes != before.Flushes {
			t.Errorf("%s: %d checkpoints, %d flushes", kind, after.Checkpoints-before.Checkpoints, after.Flushes-before.Flushes)
			continue
		}
		require.EqualValues(t, commits, after.PageGroups-before.PageGroups, kind)
		require.EqualValues(t, commits, after.PagesWritten-before.PagesWritten, kind)
		require.Zero(t, after.RecordGroups-before.RecordGroups, kind)
	}
}

// TestCostOfGroups: many goroutines share groups, and each group is synced once.
func TestCostOfGroups(t *testing.T) {
	db := newDB(t, nil)
	const goroutines, commits = 32, 50
	before := db.Stats()
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range commits {
				if err := db.Put(fmt.Append(nil, g, ".", i), nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	after := db.Stats()
	require.EqualValues(t, goroutines*commits, after.Commits-before.Commits)
	groups := after.RecordGroups + after.PageGroups - before.RecordGroups - before.PageGroups
	require.Less(t, groups, uint64(goroutines*commits/2))
	extra := uint64(10) // for checkpoints and growth
	require.LessOrEqual(t, after.Syncs-before.Syncs, groups+extra)
}

// TestCostOfAscendingCommits: single commits to the same leaf leave it dirty, so the device gets only their redo,
// and one flush serves many of them. Commits to other leaves are page groups again.
func TestCostOfAscendingCommits(t *testing.T) {
	db := newWith(t, openUnsynced, nil)
	const records, commits = 2000, 800
	for i := range records {
		require.NoError(t, db.Put(fmt.Appendf(nil, "key-%06d", i), sized(8, 1)))
	}
	before := db.Stats()
	for i := range commits {
		require.NoError(t, db.Put(fmt.Appendf(nil, "key-%06d", records+i), sized(8, 1)))
	}
	after := db.Stats()
	require.Less(t, after.PageGroups-before.PageGroups, uint64(commits/10))
	require.Less(t, after.PagesWritten-before.PagesWritten, uint64(commits*21/20), "pages for one each")
	require.NoError(t, db.Checkpoint())

	before = db.Stats()
	const others = 200
	for i := range others {
		require.NoError(t, db.Put(fmt.Appendf(nil, "key-%06d", i*797%records), sized(8, 2)))
	}
	after = db.Stats()
	require.Less(t, after.RecordGroups-before.RecordGroups, uint64(others/10))
}
