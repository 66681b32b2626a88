package dbm

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/mvcc"
)

// fillExpiring puts records, every other one of which expires in a minute.
func fillExpiring(t *testing.T, db *DB, from, to int) {
	t.Helper()
	require.NoError(t, db.Update(func(tx *Tx) error {
		for i := from; i < to; i++ {
			key, value := fmt.Appendf(nil, "%04d", i), fmt.Appendf(nil, "value %d", i)
			if i%2 == 0 {
				if err := tx.PutTTL(key, value, time.Minute); err != nil {
					return err
				}
			} else if err := tx.Put(key, value); err != nil {
				return err
			}
		}
		return nil
	}))
}

// requireFilled requires all records of fillExpiring, or only those that do not expire.
func requireFilled(t *testing.T, db *DB, to int, over bool) {
	t.Helper()
	require.NoError(t, db.View(func(tx *Tx) error {
		n, step := 0, 1
		if over {
			n, step = 1, 2
		}
		for key, value := range tx.All() {
			require.Equal(t, fmt.Sprintf("%04d", n), string(key))
			require.Equal(t, fmt.Sprintf("value %d", n), string(value))
			n += step
			_, expires, err := tx.TTL(key)
			require.NoError(t, err)
			require.Equal(t, key[3]%2 == 0, expires)
		}
		require.Equal(t, to, n/step*step)
		return tx.Err()
	}))
	for i := range to {
		key := fmt.Appendf(nil, "%04d", i)
		_, err := db.Get(key)
		ok, herr := db.Has(key)
		require.NoError(t, herr)
		require.Equal(t, ok, err == nil)
		require.Equal(t, !over || i%2 == 1, ok)
	}
}

// TestExpiryBackup: backups, increments and followers keep the times of expiry, even if the first record that
// expires was put in between. A copy to which increments are applied hides expired records and deletes nothing by
// itself until it is written.
func TestExpiryBackup(t *testing.T) {
	dir := t.TempDir()
	db, err := openUnsynced(filepath.Join(dir, "a.fdbm"), nil)
	require.NoError(t, err)
	defer db.Close()
	clock := newClock(db)
	fill := func(from, to int) { fillExpiring(t, db, from, to) }
	require.NoError(t, db.Put([]byte("0001"), []byte("value 1")))
	var full bytes.Buffer
	token, err := db.Backup(t.Context(), &full)
	require.NoError(t, err)
	copied := filepath.Join(dir, "copy.fdbm")
	have, err := Restore(t.Context(), copied, &full)
	require.NoError(t, err)
	to, err := openUnsynced(copied, nil)
	require.NoError(t, err)
	defer to.Close()
	to.expiry.now = clock.at.Load
	for i := range 3 {
		fill(100*i, 100*i+100)
		var increment bytes.Buffer
		token, err = db.BackupSince(t.Context(), token, &increment)
		require.NoError(t, err)
		have, err = to.ApplyBackup(t.Context(), have, &increment)
		require.NoError(t, err)
		require.Equal(t, token, have)
		requireFilled(t, to, 100*i+100, false)
		require.Len(t, indexOf(t, to), 50*i+50)
	}
	clock.pass(time.Minute)
	requireFilled(t, db, 300, true)
	requireFilled(t, to, 300, true)
	require.False(t, to.expirer.under.Load())
	require.Len(t, indexOf(t, to), 150, "nothing was deleted")
	n, err := db.DeleteExpired(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 150, n)
	var increment bytes.Buffer
	_, err = db.BackupSince(t.Context(), token, &increment)
	require.NoError(t, err)
	_, err = to.ApplyBackup(t.Context(), have, &increment)
	require.NoError(t, err)
	require.Empty(t, indexOf(t, to), "the deletes came with the increment")
	requireFilled(t, to, 300, true)
	require.NoError(t, to.PutTTL([]byte("0300"), nil, time.Millisecond)) // from now on it is an independent database
	clock.pass(time.Second)
	require.NoError(t, to.Put([]byte("k"), nil))
	require.Eventually(t, func() bool { return len(indexOf(t, to)) == 0 }, patience, time.Millisecond)
	require.NoError(t, to.Check(t.Context()))
}

// TestExpirySalvage: records recovered from a damaged file keep their times of expiry, even if the mark is lost.
func TestExpirySalvage(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.fdbm")
	db, err := openUnsynced(path, nil)
	require.NoError(t, err)
	clock := newClock(db)
	fillExpiring(t, db, 0, 1000)
	require.NoError(t, db.Close())
	eachSalvaged(t, path, func(to *DB, marked bool) {
		clock.has(to)
		if marked {
			requireFilled(t, to, 1000, false)
		}
		n := 0
		require.NoError(t, to.View(func(tx *Tx) error {
			for key, value := range tx.All() {
				require.Regexp(t, `^value \d+$`, string(value))
				_, expires, err := tx.TTL(key)
				require.NoError(t, err)
				require.Equal(t, key[3]%2 == 0, expires)
				n++
			}
			return nil
		}))
		require.Greater(t, n, 500)
	})
}

// TestExpiryBeside: readers beside a writer hide expired records by their own clock, from the moment at which the
// first record that expires was put.
func TestExpiryBeside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.fdbm")
	db, err := openUnsynced(path, nil)
	require.NoError(t, err)
	defer db.Close()
	clock := newClock(db)
	require.NoError(t, db.Put([]byte("k"), nil))
	beside, err := openUnsynced(path, &Options{Beside: true})
	require.NoError(t, err)
	defer beside.Close()
	beside.expiry.now = clock.at.Load
	require.NoError(t, db.Delete([]byte("k")))
	early, err := beside.Begin(TxOptions{ReadOnly: true})
	require.NoError(t, err)
	defer early.Rollback()
	fillExpiring(t, db, 0, 300)
	v, err := beside.Get([]byte("0002"))
	require.NoError(t, err)
	require.Equal(t, "value 2", string(v))
	requireFilled(t, beside, 300, false)
	clock.pass(time.Minute)
	requireFilled(t, beside, 300, true)
	n, err := beside.Len()
	require.NoError(t, err)
	require.EqualValues(t, 150, n)
	_, err = beside.DeleteExpired(t.Context())
	require.ErrorIs(t, err, ErrReadOnly)
	require.ErrorIs(t, beside.EnableExpiry(), ErrReadOnly)

	// A transaction that has read nothing is moved to a newer snapshot, as happens if the writer is too fast for
	// it.
	require.False(t, early.spaced)
	require.True(t, early.again(mvcc.ErrSnapshotTooOld))
	require.True(t, early.spaced)
	require.NotZero(t, early.stamp)
	_, err = early.Get([]byte("0002"))
	require.Equal(t, ErrNotFound, err)
	require.Len(t, keysByAll(t, early), 150)

	readOnly := filepath.Join(t.TempDir(), "b.fdbm")
	require.NoError(t, db.Checkpoint())
	file, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(readOnly, file, 0o600))
	ro, err := openUnsynced(readOnly, &Options{ReadOnly: true})
	require.NoError(t, err)
	clock.has(ro)
	requireFilled(t, ro, 300, true)
	require.ErrorIs(t, ro.PutTTL([]byte("k"), nil, time.Second), ErrReadOnly)
	require.NoError(t, ro.Close())
}

// TestExpirySnapshot: all transactions of a snapshot use the time of its beginning.
func TestExpirySnapshot(t *testing.T) {
	db, clock := newExpiring(t, nil)
	fillExpiring(t, db, 0, 20)
	s, err := db.Snapshot()
	require.NoError(t, err)
	defer s.Close()
	tx, err := db.Begin(TxOptions{})
	require.NoError(t, err)
	defer tx.Rollback()
	clock.pass(time.Minute)
	require.NoError(t, s.View(func(tx *Tx) error {
		require.Len(t, keysByAll(t, tx), 20)
		return nil
	}))
	require.Len(t, keysByAll(t, tx), 20)
	_, err = db.DeleteExpired(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.View(func(tx *Tx) error {
		require.Len(t, keysByAll(t, tx), 20)
		return nil
	}))
	requireFilled(t, db, 20, true)
}

// TestExpiryDrop: the records of a dropped keyspace leave entries in the index of times, which are deleted when
// their time comes.
func TestExpiryDrop(t *testing.T) {
	db, clock := newExpiring(t, nil)
	require.NoError(t, db.CreateKeyspace("a"))
	require.NoError(t, db.Keyspace("a").PutTTL([]byte("k"), nil, time.Minute))
	require.NoError(t, db.DropKeyspace("a"))
	require.NoError(t, db.FinishDrops(t.Context()))
	require.Len(t, indexOf(t, db), 1)
	clock.pass(time.Minute)
	n, err := db.DeleteExpired(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
	require.Empty(t, indexOf(t, db))
}
