package dbm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// churn overwrites records until the given number of bytes has been written to the log.
func churn(db *DB, bytesWritten int64) error {
	for start, round := db.Stats().PagesWritten, 0; int64(db.Stats().PagesWritten-start)*4096 < bytesWritten; round++ {
		err := db.Update(func(tx *Tx) error {
			for i := range 100 {
				if err := tx.Put(fmt.Appendf(nil, "key %04d", (round*100+i)%2000), sized(500, byte(round))); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// TestMaxSnapshotAge: a transaction that is too old gets an error from its next call, whichever call that is. What it
// has returned stays valid, and the space that it held is free. On a busy machine even Begin may take too long; then
// the test is repeated with a larger age.
func TestMaxSnapshotAge(t *testing.T) {
	for age := 30 * time.Millisecond; !maxSnapshotAge(t, age) && !t.Failed(); age *= 2 {
		require.Less(t, age, patience, "no transaction gets anywhere")
	}
}

func maxSnapshotAge(t *testing.T, age time.Duration) (begun bool) {
	var log bytes.Buffer
	var logged sync.Mutex
	db := newDB(t, &Options{
		Durability: Buffered, MaxSnapshotAge: age, TraceSnapshots: true, RedoLimit: 1 << 20,
		Events: LogEvents(slog.New(slog.NewTextHandler(lockedWriter{&logged, &log}, nil))),
	})
	require.NoError(t, churn(db, 2<<20))
	require.NoError(t, db.Put([]byte("key large"), sized(2<<20, 'l')))
	key := []byte("key 0007")
	begun = true
	for name, next := range map[string]func(tx *Tx, c *Cursor, r io.Reader) error{
		"get":    func(tx *Tx, _ *Cursor, _ io.Reader) error { _, err := tx.Get(key); return err },
		"has":    func(tx *Tx, _ *Cursor, _ io.Reader) error { _, err := tx.Has(key); return err },
		"insert": func(tx *Tx, _ *Cursor, _ io.Reader) error { return tx.Insert(key, nil) },
		"len":    func(tx *Tx, _ *Cursor, _ io.Reader) error { _, err := tx.Len(); return err },
		"reader": func(tx *Tx, _ *Cursor, _ io.Reader) error { _, _, err := tx.ValueReader(key); return err },
		"read":   func(_ *Tx, _ *Cursor, r io.Reader) error { _, err := io.ReadAll(r); return err },
		"next":   func(_ *Tx, c *Cursor, _ io.Reader) error { c.Next(); return c.Err() },
		"key":    func(_ *Tx, c *Cursor, _ io.Reader) error { c.Key(); return c.Err() },
		"first":  func(_ *Tx, c *Cursor, _ io.Reader) error { c.First(); return c.Err() },
		"last":   func(_ *Tx, c *Cursor, _ io.Reader) error { c.Last(); return c.Err() },
		"prev":   func(_ *Tx, c *Cursor, _ io.Reader) error { c.Prev(); return c.Err() },
		"seek":   func(_ *Tx, c *Cursor, _ io.Reader) error { c.Seek(key); return c.Err() },
		"value":  func(_ *Tx, c *Cursor, _ io.Reader) error { c.Value(); return c.Err() },
		"delete": func(_ *Tx, c *Cursor, _ io.Reader) error { return c.Delete() },
		"all": func(tx *Tx, _ *Cursor, _ io.Reader) error {
			for range tx.All() {
				return errors.New("a record")
			}
			return tx.Err()
		},
		"commit": func(tx *Tx, _ *Cursor, _ io.Reader) error { return tx.Commit() },
	} {
		t.Run(name, func(t *testing.T) {
			var tx *Tx
			var c *Cursor
			var r io.Reader
			var given, ck, cv []byte
			for try := 0; ; try++ {
				var err, rerr error
				tx, err = db.Begin(TxOptions{})
				require.NoError(t, err)
				given, err = tx.Get(key)
				c = tx.Cursor()
				c.Seek(key)
				ck, cv = c.Key(), c.Value()
				r, _, rerr = tx.ValueReader([]byte("key large"))
				if rerr == nil {
					_, rerr = r.Read(make([]byte, 10))
				}
				if err = errors.Join(err, rerr, c.Err()); err == nil {
					break
				}
				require.ErrorIs(t, err, ErrSnapshotTooOld)
				require.NoError(t, tx.Rollback())
				if begun = begun && try < 20; !begun {
					return
				}
			}
			require.NoError(t, tx.Put([]byte("mine"), nil))
			other := bytes.Clone(given)
			require.Equal(t, given, cv)
			time.Sleep(age + age/2)
			require.NoError(t, churn(db, 3<<20))
			require.ErrorIs(t, next(tx, c, r), ErrSnapshotTooOld)
			require.Equal(t, other, given)
			require.Equal(t, other, cv)
			require.Equal(t, key, ck)
			require.NoError(t, tx.Rollback())
			ok, err := db.Has([]byte("mine"))
			require.NoError(t, err)
			require.False(t, ok)
		})
	}
	if !begun || t.Failed() {
		return begun
	}
	tx, err := db.Begin(TxOptions{}) // it makes no calls
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		logged.Lock()
		defer logged.Unlock()
		s := log.String()
		return strings.Contains(s, "snapshot ended") && strings.Contains(s, "took=") && strings.Contains(s, "maxSnapshotAge")
	}, patience, time.Millisecond)
	require.NoError(t, tx.Rollback())
	require.Eventually(t, func() bool { return db.Stats().OpenSnapshots == 0 }, patience, time.Millisecond) // flushes have snapshots, too

	// A transaction that reads nothing does not depend on its snapshot.
	tx, err = db.Begin(TxOptions{})
	require.NoError(t, err)
	require.NoError(t, tx.Put([]byte("blind"), nil))
	time.Sleep(2 * age)
	require.NoError(t, tx.Commit())
	ok, err := db.Has([]byte("blind"))
	require.NoError(t, err)
	require.True(t, ok)
	require.ErrorIs(t, db.View(func(tx *Tx) error {
		time.Sleep(2 * age)
		tx.Get(key)
		return nil
	}), ErrSnapshotTooOld)
	require.NoError(t, db.Check(t.Context()))
	return true
}

type lockedWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// TestReaderHeldForTenTurns: a reader is held while the log reuses the whole file ten times. The size of the file
// stays bounded: either the reader is told to end, if that is configured, or it holds only the pages that it sees.
func TestReaderHeldForTenTurns(t *testing.T) {
	t.Parallel()
	const turn = 4 << 20 // length of log after which the file could be reused from its beginning
	t.Run("reader told", func(t *testing.T) {
		db := newDB(t, &Options{Durability: Buffered, RedoLimit: 1 << 20, MaxSnapshotAge: 50 * time.Millisecond})
		require.NoError(t, churn(db, 3*turn))
		require.NoError(t, db.Checkpoint())
		before := db.Stats().FileBytes
		tx, err := db.Begin(TxOptions{ReadOnly: true})
		require.NoError(t, err)
		require.NoError(t, churn(db, turn))
		time.Sleep(100 * time.Millisecond)
		require.NoError(t, churn(db, 9*turn))
		require.Less(t, db.Stats().FileBytes, before+5*turn)
		require.Eventually(t, func() bool { return db.Stats().HeldBytes == 0 }, patience, 10*time.Millisecond)
		_, err = tx.Get([]byte("key 0001"))
		require.ErrorIs(t, err, ErrSnapshotTooOld)
		require.ErrorIs(t, tx.Commit(), ErrSnapshotTooOld)
	})
	t.Run("reader holds what it sees", func(t *testing.T) {
		db := newDB(t, &Options{Durability: Buffered, RedoLimit: 1 << 20, MaxFileSize: 24 << 20, TraceSnapshots: true})
		require.NoError(t, churn(db, turn))
		require.NoError(t, db.Checkpoint())
		tx, err := db.Begin(TxOptions{ReadOnly: true})
		require.NoError(t, err)
		defer tx.Rollback()
		var keys, values [][]byte
		for k, v := range tx.All() {
			keys, values = append(keys, bytes.Clone(k)), append(values, bytes.Clone(v))
		}
		require.NoError(t, churn(db, 10*turn))
		s := db.Stats()
		require.LessOrEqual(t, s.FileBytes, int64(24<<20))
		require.Greater(t, s.HeldBytes, int64(500<<10)) // of 1 MB of records
		require.Less(t, s.HeldBytes, int64(5<<20))
		require.Positive(t, s.OldestSnapshotAge)
		require.Contains(t, s.OldestSnapshot, "TestReaderHeldForTenTurns")
		n := 0
		for k, v := range tx.All() {
			require.True(t, bytes.Equal(keys[n], k) && bytes.Equal(values[n], v))
			n++
		}
		require.Equal(t, len(keys), n)
		require.NoError(t, tx.Rollback())
		require.NoError(t, churn(db, 10*turn))
		require.Eventually(t, func() bool { return db.Stats().HeldBytes == 0 }, patience, 10*time.Millisecond) // by two checkpoints, for which no commits are needed
		require.NoError(t, db.Check(t.Context()))
	})
}

// TestSlicesOfAgedTransactionsStay: what a transaction was given stays unchanged even after its snapshot has been
// taken back and the space of the data has been overwritten.
func TestSlicesOfAgedTransactionsStay(t *testing.T) {
	const age = 30 * time.Millisecond
	db := newDB(t, &Options{Durability: Buffered, MaxSnapshotAge: age, RedoLimit: 1 << 20, MemoryLimit: 1 << 20})
	require.NoError(t, churn(db, 2<<20))
	for begin := time.Now(); ; {
		tx, err := db.Begin(TxOptions{})
		require.NoError(t, err)
		var given [][]byte
		for i := 0; i < 2000 && err == nil; i += 100 { // of many pages, some of which are overwritten
			var value []byte
			value, err = tx.Get(fmt.Appendf(nil, "key %04d", i))
			given = append(given, value)
		}
		if err != nil { // on a busy machine the snapshot may be gone at once
			require.ErrorIs(t, err, ErrSnapshotTooOld)
			require.NoError(t, tx.Rollback())
			require.Less(t, time.Since(begin), patience)
			continue
		}
		var want [][]byte
		for _, value := range given {
			want = append(want, bytes.Clone(value))
		}
		time.Sleep(age + age/2)
		for range 10 { // the space may happen to have the same contents again
			require.NoError(t, churn(db, 3<<20))
			require.Equal(t, want, given)
		}
		_, err = tx.Get([]byte("key 0000"))
		require.ErrorIs(t, err, ErrSnapshotTooOld)
		require.NoError(t, tx.Rollback())
		return
	}
}

// TestAgingUnderLoad: readers lose their snapshots at any moment during their calls, while others write. All
// results of one reader belong to the same commit. How many readers lose theirs depends on the machine: with an age
// of a millisecond it may be all of them, or none.
func TestAgingUnderLoad(t *testing.T) {
	age, tooOld, whole := time.Millisecond, 0, 0
	for tooOld == 0 || whole == 0 {
		o, w := agingUnderLoad(t, age)
		tooOld, whole = tooOld+o, whole+w
		if age *= 2; tooOld == 0 {
			age /= 4
		}
		require.Greater(t, age, time.Microsecond, "nobody is too old")
		require.Less(t, age, patience, "nobody gets through")
	}
}

func agingUnderLoad(t *testing.T, age time.Duration) (tooOld, whole int) {
	db, err := Open(filepath.Join(t.TempDir(), "a"), &Options{Durability: Buffered, RedoLimit: 1 << 20, MemoryLimit: 1 << 20, MaxSnapshotAge: age})
	require.NoError(t, err)
	write := func(round int) error {
		return db.Update(func(tx *Tx) error {
			for i := range 50 {
				if err := tx.Put(fmt.Appendf(nil, "%02d", i), fmt.Appendf(nil, "%d:%s", round, strings.Repeat(fmt.Sprint(round%10), 50*(i%30)))); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, write(0))
	done := make(chan struct{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				err := db.View(func(tx *Tx) error {
					of := ""
					for _, v := range tx.All() {
						number, rest, _ := strings.Cut(string(v), ":")
						if of == "" {
							of = number
						}
						if number != of || strings.Trim(rest, of[len(of)-1:]) != "" {
							t.Errorf("a value of %s after one of %s", number, of)
						}
						runtime.Gosched()
					}
					return nil
				})
				mu.Lock()
				if err == nil {
					whole++
				} else if tooOld++; !errors.Is(err, ErrSnapshotTooOld) {
					t.Error(err)
				}
				mu.Unlock()
			}
		})
	}
	began := time.Now()
	for round := 1; round < 100 || time.Since(began) < 500*time.Millisecond; round++ {
		require.NoError(t, write(round))
		if round%20 == 0 {
			require.NoError(t, db.Checkpoint())
		}
	}
	close(done)
	wg.Wait()
	require.NoError(t, db.Check(t.Context()))
	require.NoError(t, db.Close())
	return tooOld, whole
}
