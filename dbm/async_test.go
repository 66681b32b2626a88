package dbm

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

var durabilities = []Durability{Durable, WriteThrough, Buffered}

// openAsync returns a database in mem in which only commits and Sync make anything durable.
func openAsync(t *testing.T, d Durability) (*vfs.Mem, *DB) {
	mem := vfs.NewMem(2 << 30)
	t.Cleanup(mem.Release)
	db, err := open(mem, "db", &Options{Durability: d, FlushInterval: time.Hour})
	require.NoError(t, err)
	return mem, db
}

// The function of each commit is called once, in the order of the commits, and what it was called for survives a
// power failure.
func TestCommitAsync(t *testing.T) {
	for _, d := range durabilities {
		t.Run(fmt.Sprint(d), func(t *testing.T) {
			mem, db := openAsync(t, d)
			const n = 2000
			var calls []int
			ended := make(chan struct{})
			called := func(i int) func(error) {
				return func(err error) {
					if err != nil || len(calls) >= n {
						panic(fmt.Sprint(i, " ", err))
					}
					if calls = append(calls, i); len(calls) == n {
						close(ended)
					}
				}
			}
			key := func(i int) []byte { return fmt.Appendf(nil, "%04d", i*7919%n) }
			batch := db.Batch()
			for i := range n {
				switch i % 4 {
				case 0:
					require.NoError(t, db.PutAsync(key(i), []byte("value"), called(i)))
				case 1:
					tx, err := db.Begin(TxOptions{})
					require.NoError(t, err)
					v, err := tx.Get(key(i - 1))
					if err == nil { // otherwise the outcome of the previous commit is not known
						require.Equal(t, "value", string(v))
					}
					require.NoError(t, tx.Put(key(i), make([]byte, 10*i)))
					require.NoError(t, tx.CommitAsync(called(i)))
					require.ErrorIs(t, tx.Put(key(i), nil), ErrTxDone)
					require.ErrorIs(t, tx.CommitAsync(called(i)), ErrTxDone)
				case 2:
					require.NoError(t, batch.Put(key(i), []byte("batch")))
					require.NoError(t, batch.CommitAsync(called(i)))
					require.Zero(t, batch.Len())
				case 3:
					require.NoError(t, db.DeleteAsync(key(i-3), called(i)))
				}
			}
			<-ended
			for i, c := range calls {
				require.Equal(t, i, c)
			}
			image := mem.Crash(vfs.KeepNone, 1)
			defer image.Release()
			after, err := open(image, "db", nil)
			require.NoError(t, err)
			for i := range n {
				v, err := after.Get(key(i))
				if i%4 == 0 || i%4 == 3 {
					require.ErrorIs(t, err, ErrNotFound, i)
				} else {
					require.NoError(t, err, i)
					require.NotEmpty(t, v)
				}
			}
			require.NoError(t, after.Check(t.Context()))
			require.NoError(t, after.Close())
			require.NoError(t, db.Close())
		})
	}
}

// TestCommitAsyncIsDurable: a commit survives a power failure at the moment at which its function is called. No other
// commit has anything synced.
func TestCommitAsyncIsDurable(t *testing.T) {
	for _, d := range durabilities {
		t.Run(fmt.Sprint(d), func(t *testing.T) {
			mem, db := openAsync(t, d)
			for i := range 3 {
				key := fmt.Append(nil, i)
				images := make(chan *vfs.Mem)
				require.NoError(t, db.PutAsync(key, []byte("value"), func(err error) {
					must(t, err)
					images <- mem.Crash(vfs.KeepNone, 1)
				}))
				image := <-images
				after, err := open(image, "db", nil)
				require.NoError(t, err)
				v, err := after.Get(key)
				require.NoError(t, err)
				require.Equal(t, "value", string(v))
				require.NoError(t, after.Close())
				image.Release()
			}
			require.NoError(t, db.Close())
		})
	}
}

// Commits of many goroutines, some of which wait, run concurrently. The function of each is called once, and in
// order for each goroutine.
func TestCommitAsyncBeside(t *testing.T) {
	for _, d := range durabilities {
		t.Run(fmt.Sprint(d), func(t *testing.T) {
			db, err := openUnsynced(filepath.Join(t.TempDir(), "db"), &Options{Durability: d, FlushInterval: time.Millisecond})
			require.NoError(t, err)
			const each = 300
			var all sync.WaitGroup
			var called, lost atomic.Int64
			for g := range 8 {
				all.Go(func() {
					next := 0
					for i := range each {
						key := fmt.Appendf(nil, "%d", (g*each+i)%50)
						switch g % 4 {
						case 0:
							must(t, db.Put(key, []byte("value")))
							called.Add(1)
						case 1:
							must(t, db.PutAsync(key, []byte("value"), func(err error) {
								must(t, err)
								if next != i {
									t.Error("out of order")
								}
								next++
								called.Add(1)
							}))
						default: // reads and writes
							tx, err := db.Begin(TxOptions{})
							must(t, err)
							if _, err := tx.Get(key); err != nil && !errors.Is(err, ErrNotFound) {
								t.Error(err)
							}
							must(t, tx.Put(key, []byte("other")))
							err = tx.CommitAsync(func(err error) {
								must(t, err)
								called.Add(1)
							})
							if errors.Is(err, ErrConflict) {
								lost.Add(1)
							} else {
								must(t, err)
							}
						}
					}
				})
			}
			all.Wait()
			require.NoError(t, db.Close())
			require.EqualValues(t, 8*each, called.Load()+lost.Load())
		})
	}
}

func must(t *testing.T, err error) {
	if err != nil {
		t.Error(err)
	}
}

// A transaction that loses a conflict gets the error at once, and its function is not called.
func TestCommitAsyncConflict(t *testing.T) {
	db := newDB(t, nil)
	tx, err := db.Begin(TxOptions{})
	require.NoError(t, err)
	_, err = tx.Get([]byte("key"))
	require.ErrorIs(t, err, ErrNotFound)
	require.NoError(t, tx.Put([]byte("key"), []byte("lost")))
	require.NoError(t, db.Put([]byte("key"), []byte("won")))
	require.ErrorIs(t, tx.CommitAsync(func(error) { t.Error("called") }), ErrConflict)
	require.NoError(t, db.Update(func(tx *Tx) error {
		require.Error(t, tx.CommitAsync(func(error) { t.Error("called") }))
		return nil
	}))
	v, err := db.Get([]byte("key"))
	require.NoError(t, err)
	require.Equal(t, "won", string(v))
}

// The function of a transaction that wrote nothing is called like any other, once what the transaction has seen is
// durable.
func TestCommitAsyncReads(t *testing.T) {
	for _, d := range durabilities {
		db := newDB(t, &Options{Durability: d})
		for _, readOnly := range []bool{false, true} {
			tx, err := db.Begin(TxOptions{ReadOnly: readOnly})
			require.NoError(t, err)
			ended := make(chan error, 1)
			require.NoError(t, tx.CommitAsync(func(err error) { ended <- err }))
			require.NoError(t, <-ended)
		}
	}
}

// When a sync fails, the functions of all outstanding commits are called with the error.
func TestCommitAsyncFails(t *testing.T) {
	for _, d := range durabilities {
		t.Run(fmt.Sprint(d), func(t *testing.T) {
			mem, db := openAsync(t, d)
			ended := make(chan error, 100)
			for range 2 { // so that there is room and nothing has to grow
				for range 2000 {
					require.NoError(t, db.PutAsync([]byte("first"), make([]byte, 500), func(err error) { must(t, err) }))
				}
				require.NoError(t, db.Checkpoint())
			}
			require.NoError(t, db.PutAsync([]byte("last"), nil, func(err error) { ended <- err }))
			require.NoError(t, <-ended)
			mem.OnOp(func(op vfs.Op) error {
				if op.Kind == vfs.OpDatasync {
					return errors.New("broken")
				}
				return nil
			})
			pushed := 0
			for i := range cap(ended) {
				err := db.PutAsync(fmt.Append(nil, i), nil, func(err error) { ended <- err })
				if err == nil {
					pushed++
				} else {
					require.ErrorIs(t, err, ErrFailed)
				}
			}
			require.Positive(t, pushed)
			for range pushed {
				require.ErrorIs(t, <-ended, ErrFailed)
			}
			require.ErrorIs(t, db.Close(), ErrFailed)
			require.Empty(t, ended)
		})
	}
}

// There is a limit for the number of outstanding commits. A commit that waits continues when one has ended; one
// that does not wait gets an error and may try again. Close waits for all of them.
func TestCommitAsyncBacklog(t *testing.T) {
	const most = 1 << 14
	db := newDB(t, &Options{Durability: Buffered})
	hold := make(chan struct{})
	var called atomic.Int64
	done := func(err error) {
		must(t, err)
		<-hold
		called.Add(1)
	}
	for range most + 1 { // the first one has made room for another before its call
		require.NoError(t, db.PutAsync([]byte("key"), []byte("value"), done))
	}
	tx, err := db.Begin(TxOptions{})
	require.NoError(t, err)
	require.NoError(t, tx.Put([]byte("key"), []byte("last")))
	require.ErrorIs(t, tx.TryCommitAsync(done), ErrBacklog)
	require.ErrorIs(t, tx.TryCommitAsync(done), ErrBacklog)
	waits := make(chan error)
	go func() { waits <- db.PutAsync([]byte("key"), []byte("waits"), done) }()
	select {
	case <-waits:
		t.Fatal("nobody has ended")
	case <-time.After(50 * time.Millisecond):
	}
	close(hold)
	require.NoError(t, <-waits)
	for err := tx.TryCommitAsync(done); err != nil; err = tx.TryCommitAsync(done) {
		require.ErrorIs(t, err, ErrBacklog)
	}
	require.NoError(t, db.Close())
	require.EqualValues(t, most+3, called.Load())
}

// The function may begin other commits.
func TestCommitAsyncFromCall(t *testing.T) {
	for _, d := range durabilities {
		db := newDB(t, &Options{Durability: d})
		ended := make(chan error, 1)
		n := 0
		var again func(err error)
		again = func(err error) {
			if n++; err != nil || n == 100 {
				ended <- err
				return
			}
			tx, err := db.Begin(TxOptions{})
			must(t, err)
			must(t, tx.Put([]byte("key"), fmt.Append(nil, n)))
			must(t, tx.TryCommitAsync(again))
		}
		require.NoError(t, db.PutAsync([]byte("key"), nil, again))
		require.NoError(t, <-ended)
		require.NoError(t, db.Close())
	}
}

// The functions of large values and of transactions that do not fit in memory are called like others.
func TestCommitAsyncLarge(t *testing.T) {
	records, limit := 40_000, int64(8<<20)
	if testing.Short() {
		records, limit = 10_000, 2<<20
	}
	for _, d := range durabilities {
		db := newDB(t, &Options{Durability: d, MemoryLimit: limit})
		var ended sync.WaitGroup
		for range 3 {
			tx, err := db.Begin(TxOptions{})
			require.NoError(t, err)
			require.NoError(t, tx.Put([]byte("large"), make([]byte, 3<<20)))
			for i := range records {
				require.NoError(t, tx.Put(fmt.Appendf(nil, "%d", i), make([]byte, 200)))
			}
			ended.Add(2)
			require.NoError(t, tx.CommitAsync(func(err error) { must(t, err); ended.Done() }))
			require.NoError(t, db.PutAsync([]byte("long"), make([]byte, 2<<20), func(err error) { must(t, err); ended.Done() }))
		}
		ended.Wait()
		n, err := db.Len()
		require.NoError(t, err)
		require.EqualValues(t, records+2, n)
		require.NoError(t, db.Check(t.Context()))
		require.NoError(t, db.Close())
	}
}

// TestSyncCoversAsync: what was committed before Sync survives a power failure once Sync has returned, even if
// nobody waits for it or is told.
func TestSyncCoversAsync(t *testing.T) {
	for _, d := range durabilities {
		t.Run(fmt.Sprint(d), func(t *testing.T) {
			mem, db := openAsync(t, d)
			defer db.Close()
			key := func(round, i int) []byte { return fmt.Appendf(nil, "%02d %d", round, i) }
			for round := range 40 {
				n := 1 + round%5
				for i := range n {
					if i%2 == 0 {
						require.NoError(t, db.PutAsync(key(round, i), []byte("value"), nil))
						continue
					}
					batch := db.Batch()
					require.NoError(t, batch.Put(key(round, i), make([]byte, 3000)))
					require.NoError(t, batch.CommitAsync(nil))
				}
				require.NoError(t, db.Sync())
				image := mem.Crash(vfs.KeepNone, 1)
				after, err := open(image, "db", nil)
				require.NoError(t, err)
				for i := range n {
					for _, db := range []*DB{db, after} {
						ok, err := db.Has(key(round, i))
						require.NoError(t, err)
						require.True(t, ok, "round %d, put %d", round, i)
					}
				}
				require.NoError(t, after.Close())
				image.Release()
			}
		})
	}
}
