package dbm

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// readWays read all records, and their number, in all ways that a transaction offers.
var readWays = map[string]func(tx *Tx) (fingerprint, error){
	"all": func(tx *Tx) (f fingerprint, err error) {
		for k, v := range tx.All() {
			f.add(k, v)
		}
		return f, tx.Err()
	},
	"backward": func(tx *Tx) (f fingerprint, err error) {
		for k, v := range tx.Backward(nil, nil) {
			f.add(k, v)
		}
		return f, tx.Err()
	},
	"cursor and get": func(tx *Tx) (f fingerprint, err error) {
		c := tx.Cursor()
		for ok := c.First(); ok; ok = c.Next() {
			v, err := tx.Get(c.Key())
			if err != nil {
				return f, err
			}
			f.add(c.Key(), v)
		}
		return f, c.Err()
	},
	"scan and length": func(tx *Tx) (fingerprint, error) { return scanTx(tx, nil) },
}

// overwriteAll puts records with values of all kinds, different ones in each round, and deletes some.
func overwriteAll(db *DB, round int) error {
	return db.Update(func(tx *Tx) error {
		for i := range 60 {
			key := fmt.Appendf(nil, "key %03d", (i*7+round)%80)
			if (i+round)%5 == 0 {
				if err := tx.Delete(key); err != nil {
					return err
				}
				continue
			}
			if err := tx.Put(key, sized([]int{10, 300, 3000, 20_000}[(i+round)%4], byte(round))); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestSnapshot: several goroutines read one snapshot in all ways while its records are overwritten, flushed and
// cleaned up. All see the same.
func TestSnapshot(t *testing.T) {
	allDurabilities(t, func(t *testing.T, db *DB) {
		for round := range 3 {
			require.NoError(t, overwriteAll(db, round))
		}
		require.NoError(t, db.Sync())
		s, err := db.Snapshot()
		require.NoError(t, err)
		defer s.Close()
		var want fingerprint
		require.NoError(t, s.View(func(tx *Tx) (err error) {
			want, err = scanTx(tx, nil)
			return err
		}))
		require.NotZero(t, want.records)
		var readers sync.WaitGroup
		var stop atomic.Bool
		for name, read := range readWays {
			readers.Go(func() {
				for !stop.Load() {
					err := s.View(func(tx *Tx) error {
						f, err := read(tx)
						if name != "scan and length" && err == nil && f.records != want.records {
							err = fmt.Errorf("%d records, want %d", f.records, want.records)
						}
						if err == nil && f != want {
							err = errors.New("other records")
						}
						return err
					})
					if err != nil {
						t.Errorf("%s: %v", name, err)
						return
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
		for round := range scaled(60) {
			require.NoError(t, overwriteAll(db, 3+round))
			if round%10 == 0 {
				require.NoError(t, db.Checkpoint())
			}
		}
		stop.Store(true)
		readers.Wait()
		require.NoError(t, s.Close())
		require.NoError(t, db.View(func(tx *Tx) error {
			f, err := scanTx(tx, nil)
			require.NotEqual(t, want, f)
			return err
		}))
		require.NoError(t, db.Check(t.Context()))
	})
}

// TestSnapshotClosedWhileRead: reads that have begun continue to their end with what the snapshot shows, later ones
// are refused, and what the snapshot held is held until the last has ended.
func TestSnapshotClosedWhileRead(t *testing.T) {
	db := newDB(t, &Options{Durability: Buffered, RedoLimit: 1 << 20})
	require.NoError(t, overwriteAll(db, 0))
	require.NoError(t, db.Sync())
	for range scaled(50) {
		s, err := db.Snapshot()
		require.NoError(t, err)
		var want fingerprint
		require.NoError(t, s.View(func(tx *Tx) (err error) {
			want, err = scanTx(tx, nil)
			return err
		}))
		var readers sync.WaitGroup
		for _, read := range readWays {
			readers.Go(func() {
				for {
					err := s.View(func(tx *Tx) error {
						f, err := read(tx)
						if err == nil && f != want {
							err = errors.New("other records")
						}
						return err
					})
					if errors.Is(err, ErrTxDone) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		require.NoError(t, overwriteAll(db, 1))
		require.NoError(t, s.Close())
		require.NoError(t, s.Close())
		readers.Wait()
		_, err = s.Begin()
		require.ErrorIs(t, err, ErrTxDone)
		require.NoError(t, overwriteAll(db, 0))
		require.NoError(t, db.Sync())
	}
	require.Eventually(t, func() bool { return db.Stats().OpenSnapshots == 0 }, patience/4, time.Millisecond)
}

// TestSnapshotIsCounted: in Stats, a snapshot and its transactions count as one open snapshot, from its beginning
// until the last of them has ended.
func TestSnapshotIsCounted(t *testing.T) {
	db := newDB(t, nil)
	require.NoError(t, db.Put([]byte("k"), []byte("v")))
	s, err := db.Snapshot()
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, db.Put([]byte("k"), []byte("w")))
	require.Equal(t, 1, db.Stats().OpenSnapshots)
	require.Positive(t, db.Stats().OldestSnapshotAge)
	tx, err := s.Begin()
	require.NoError(t, err)
	defer tx.Rollback()
	require.Equal(t, 1, db.Stats().OpenSnapshots)
	require.NoError(t, s.Close())
	require.Equal(t, 1, db.Stats().OpenSnapshots)
	v, err := tx.Get([]byte("k"))
	require.NoError(t, err)
	require.Equal(t, "v", string(v))
	require.NoError(t, tx.Rollback())
	require.Zero(t, db.Stats().OpenSnapshots)
}

// TestSnapshotHoldsBytes: what only a snapshot holds is counted, and freed once it and its transactions have ended.
func TestSnapshotHoldsBytes(t *testing.T) {
	db := newDB(t, &Options{Durability: WriteThrough, RedoLimit: 1 << 20})
	require.NoError(t, churn(db, 2<<20))
	s, err := db.Snapshot()
	require.NoError(t, err)
	defer s.Close()
	tx, err := s.Begin()
	require.NoError(t, err)
	defer tx.Rollback()
	for began := time.Now(); db.Stats().HeldBytes == 0 && time.Since(began) < patience; {
		require.NoError(t, churn(db, 1<<20))
		require.NoError(t, db.Checkpoint())
	}
	require.Positive(t, db.Stats().HeldBytes)
	require.NoError(t, s.Close())
	require.Positive(t, db.Stats().HeldBytes, "held by the transaction")
	_, err = scanTx(tx, nil)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	require.Eventually(t, func() bool { return db.Stats().HeldBytes == 0 }, patience/4, time.Millisecond)
}

// TestSnapshotOfClosingDatabase: Close waits for a snapshot, which can still be read.
func TestSnapshotOfClosingDatabase(t *testing.T) {
	db, err := Open(filepath.Join(t.TempDir(), "a.fdbm"), nil)
	require.NoError(t, err)
	require.NoError(t, db.Put([]byte("k"), []byte("v")))
	s, err := db.Snapshot()
	require.NoError(t, err)
	closed := make(chan error, 1)
	go func() { closed <- db.Close() }()
	require.Eventually(t, func() bool { return errors.Is(db.Put(nil, nil), ErrClosed) }, patience/4, time.Millisecond)
	for range 100 {
		require.NoError(t, s.View(func(tx *Tx) error {
			v, err := tx.Get([]byte("k"))
			require.Equal(t, "v", string(v))
			require.ErrorIs(t, tx.Put(nil, nil), ErrTxReadOnly)
			return err
		}))
	}
	tx, err := s.Begin()
	require.NoError(t, err)
	require.NoError(t, s.Close())
	select {
	case err := <-closed:
		t.Fatal("closed under an open transaction: ", err)
	case <-time.After(20 * time.Millisecond):
	}
	_, err = tx.Get([]byte("k"))
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	require.NoError(t, <-closed)
	_, err = db.Snapshot()
	require.ErrorIs(t, err, ErrClosed)
}

// TestSnapshotDropped: a snapshot to which there are no references any more is ended by the garbage collector, and
// so are its transactions.
func TestSnapshotDropped(t *testing.T) {
	db := newDB(t, nil)
	func() {
		s, err := db.Snapshot()
		require.NoError(t, err)
		_, err = s.Begin()
		require.NoError(t, err)
	}()
	require.Eventually(t, func() bool {
		runtime.GC()
		return db.Stats().OpenSnapshots == 0
	}, patience/4, time.Millisecond)
}

// TestSnapshotTooOld: the maximum age applies to a snapshot as to a transaction, and to transactions that began at
// it, however late.
func TestSnapshotTooOld(t *testing.T) {
	const age = 200 * time.Millisecond
	db := newDB(t, &Options{MaxSnapshotAge: age, TraceSnapshots: true})
	require.NoError(t, db.Put([]byte("k"), []byte("v")))
	taken := time.Now()
	s, err := db.Snapshot()
	require.NoError(t, err)
	defer s.Close()
	time.Sleep(age / 2)
	tx, err := s.Begin()
	if err == nil { // otherwise this machine is too busy to begin one in time
		began := time.Now()
		for err == nil {
			require.Less(t, time.Since(began), patience)
			time.Sleep(time.Millisecond)
			_, err = tx.Get([]byte("k"))
		}
		require.GreaterOrEqual(t, time.Since(taken), age)
		require.NoError(t, tx.Rollback())
	}
	require.ErrorIs(t, err, ErrSnapshotTooOld)
	_, err = s.Begin()
	require.ErrorIs(t, err, ErrSnapshotTooOld)
	require.ErrorIs(t, s.View(func(*Tx) error { return nil }), ErrSnapshotTooOld)
	require.NoError(t, s.Close())
	require.Eventually(t, func() bool { return db.Stats().OpenSnapshots == 0 }, patience/4, time.Millisecond)
}

// TestSnapshotAskedToEnd: if snapshots hold room that a put needs, the oldest is asked to end, with all that began
// at it.
func TestSnapshotAskedToEnd(t *testing.T) {
	h := newHeldRun(t, &Options{Durability: Buffered, RedoLimit: 1 << 20, MaxFileSize: 26 << 20}, 0, 500)
	told := make(chan error, 100)
	stop := make(chan struct{})
	var all sync.WaitGroup
	defer all.Wait()
	defer close(stop)
	for i := 0; i < 6000 && len(told) == 0; i++ {
		if i%100 == 0 {
			s, err := h.db.Snapshot()
			require.NoError(t, err)
			tx, err := s.Begin()
			require.NoError(t, err)
			all.Go(func() { // a reader that reads a record from time to time
				defer s.Close()
				defer tx.Rollback()
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Millisecond):
					}
					if _, err := tx.Get([]byte("none")); !errors.Is(err, ErrNotFound) {
						if _, late := s.Begin(); !errors.Is(late, ErrSnapshotTooOld) {
							err = fmt.Errorf("a transaction begins at a snapshot that was asked to end: %v", late)
						}
						told <- err
						return
					}
				}
			})
		}
		require.NoError(t, h.put(20, func(int) int { return h.r.IntN(h.records) }), i)
	}
	require.NotEmpty(t, told, "nobody was asked")
	require.ErrorIs(t, <-told, ErrSnapshotTooOld)
}

// TestSnapshotBeside: beside a writer, all transactions of a snapshot see the same moment, even those that have not
// returned anything yet.
func TestSnapshotBeside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.fdbm")
	writer, err := Open(path, nil)
	require.NoError(t, err)
	defer writer.Close()
	require.NoError(t, writer.Put([]byte("k"), []byte("1")))
	reader, err := Open(path, &Options{Beside: true})
	require.NoError(t, err)
	defer reader.Close()
	s, err := reader.Snapshot()
	require.NoError(t, err)
	defer s.Close()
	tooOld := 0
	for round := range 30 {
		require.NoError(t, writer.Put([]byte("k"), []byte("2")))
		require.NoError(t, overwriteAll(writer, round))
		require.NoError(t, writer.Checkpoint())
		require.NoError(t, reader.View(func(tx *Tx) error { // this follows the log or loads the file again
			v, err := tx.Get([]byte("k"))
			require.Equal(t, "2", string(v))
			return err
		}))
		err := s.View(func(tx *Tx) error {
			v, err := tx.Get([]byte("k"))
			if err == nil && string(v) != "1" {
				err = fmt.Errorf("the snapshot has moved: %q", v)
			}
			return err
		})
		if errors.Is(err, ErrSnapshotTooOld) {
			tooOld++
			continue
		}
		require.NoError(t, err)
	}
	t.Logf("%d reads of 30 came too late", tooOld)
	require.NoError(t, s.Close())
}
