package mvcc

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
)

// overwrite changes each of n records once, a few per commit, each of them in another leaf.
func overwrite(t testing.TB, e *Engine, n, round int) {
	t.Helper()
	value := []byte(strings.Repeat(fmt.Sprint(round%10), 200))
	for i := 0; i < n; i += 20 {
		tx := begin(t, e, TxOptions{})
		for j := i; j < min(i+20, n); j++ {
			require.NoError(t, tx.Put(fmt.Appendf(nil, "key-%06d", j*37%n), value))
		}
		require.NoError(t, tx.Commit())
	}
}

// TestHeldReaderCostsWhatItSees: while one reader stays open, readers that begin and end keep no memory in use.
func TestHeldReaderCostsWhatItSees(t *testing.T) {
	const records = 400
	e := newEngine(t, Options{Durability: Buffered, Manual: true})
	overwrite(t, e, records, 0)
	held := begin(t, e, TxOptions{ReadOnly: true})
	defer held.Rollback()
	var low, high int64
	var readers []*Tx
	for round := range 40 {
		overwrite(t, e, records, round)
		readers = append(readers, begin(t, e, TxOptions{ReadOnly: true}))
		require.NotEmpty(t, get(t, readers[len(readers)-1], "key-000007"))
		require.NoError(t, e.tree.mergeAll()) // now the tree has what the reader sees
		e.tree.reclaim()
		if len(readers) > 3 { // some readers are always open
			readers[0].Rollback()
			readers = readers[1:]
		}
		switch m := e.tree.memory.Load(); {
		case round == 9:
			low = m
		case round > 9:
			high = max(high, m)
		}
	}
	for _, r := range readers {
		r.Rollback()
	}
	require.Less(t, high, 2*low)
	require.Equal(t, strings.Repeat("0", 200), get(t, held, "key-000007"))
}

// TestMemoryLimit: above the limit the oldest reader is told to end; a reader that has just begun is not.
func TestMemoryLimit(t *testing.T) {
	inTurn(t)
	for _, d := range []Durability{Durable, WriteThrough, Buffered} {
		t.Run(fmt.Sprint(d), func(t *testing.T) {
			t.Parallel()
			const limit = 1 << 20
			e := newEngine(t, Options{Durability: d, MemoryLimit: limit, Manual: true})
			overwrite(t, e, 2000, 0)
			held := []*Tx{begin(t, e, TxOptions{ReadOnly: true})}
			first, _, err := held[0].Get([]byte("key-000000"))
			require.NoError(t, err)
			for round := 1; held[0].Expired() == nil; round++ {
				require.Less(t, round, 30, "%d bytes in memory", e.tree.memory.Load())
				overwrite(t, e, 2000, round)
				held = append(held, begin(t, e, TxOptions{ReadOnly: true}))
				put(t, e, "another", "x")
				require.Equal(t, strings.Repeat(fmt.Sprint(round%10), 200), get(t, held[round], "key-000000"))
			}
			_, _, err = held[0].Get([]byte("key-000000"))
			require.ErrorIs(t, err, ErrSnapshotTooOld)
			require.False(t, held[0].Cursor().First())
			require.Equal(t, strings.Repeat("0", 200), string(first), "a slice stays until the end")
			require.NoError(t, held[len(held)-1].Expired())
			for i, tx := range held {
				if tx.Expired() == nil {
					require.Equal(t, strings.Repeat(fmt.Sprint(i%10), 200), get(t, tx, "key-001999"))
				}
				require.NoError(t, tx.Rollback())
			}
			_, err = e.tree.reclaimNow()
			require.NoError(t, err)
			require.Less(t, e.tree.memory.Load(), int64(limit))
		})
	}
}

// TestExpiredReaderThatStays: writers continue even if the readers that keep the memory in use do not end.
func TestExpiredReaderThatStays(t *testing.T) {
	const limit = 1 << 20
	e := newEngine(t, Options{Durability: Buffered, MemoryLimit: limit})
	var held []*Tx
	rounds := 20
	if testing.Short() {
		rounds = 8
	}
	for round := range rounds {
		overwrite(t, e, 1000, 2*round)
		if round < 6 {
			held = append(held, begin(t, e, TxOptions{ReadOnly: true}))
		}
		overwrite(t, e, 1000, 2*round+1)
	}
	high := e.tree.memory.Load()
	for _, tx := range held {
		require.NoError(t, tx.Rollback())
	}
	require.Less(t, high, int64(4*limit))
}

// TestExpiredTransactionCommits: a transaction that was told to end may still commit, and has read nothing wrong.
func TestExpiredTransactionCommits(t *testing.T) {
	e := newEngine(t, Options{Manual: true})
	put(t, e, "k", "0")
	tx := begin(t, e, TxOptions{})
	require.Equal(t, "0", get(t, tx, "k"))
	require.NoError(t, tx.Put([]byte("k"), []byte("1")))
	oldest, ok := e.readers.registry.Oldest()
	require.True(t, ok)
	require.True(t, oldest.Expire())
	_, _, err := tx.Get([]byte("other"))
	require.ErrorIs(t, err, ErrSnapshotTooOld)
	require.NoError(t, tx.Commit())
	require.Equal(t, "1", get(t, begunAndEnded(t, e), "k"))
}

// begunAndEnded returns a reader that ends with the test.
func begunAndEnded(t *testing.T, e *Engine) *Tx {
	tx := begin(t, e, TxOptions{ReadOnly: true})
	t.Cleanup(func() { tx.Rollback() })
	return tx
}

// TestFullFile: overwriting records in a file that may not grow never fails, with several goroutines and with short
// readers.
func TestFullFile(t *testing.T) {
	opts := tiny(Durable)
	opts.Store.MaxFileSize = 2 << 20
	opts.RedoLimit = 1 << 30 // makeRoom does all the work
	e := newEngine(t, opts)
	rounds := 1000
	if testing.Short() {
		rounds = 300
	}
	before := e.checkpoints.done.Load()
	within(t, func() {
		together(4, func(g int) {
			for i := range rounds {
				overwrite := func() error {
					return update(e, TxOptions{Serializable: g == 0}, func(tx *Tx) error {
						for j := range 10 {
							key := fmt.Appendf(nil, "key-%d-%02d", g, (i+j*7)%50)
							if _, _, err := tx.Get(key); err != nil {
								return err
							}
							if err := tx.Put(key, []byte(strings.Repeat("v", 300))); err != nil {
								return err
							}
						}
						return nil
					})
				}
				err := overwrite()
				for again := 0; again < 5 && logstore.IsFull(err); again++ { // on a busy machine another goroutine may stop in the middle of its commit
					err = overwrite()
				}
				if err != nil && !(g == 0 && errors.Is(err, ErrConflict)) {
					t.Errorf("goroutine %d, round %d: %v", g, i, err)
					return
				}
			}
		})
	})
	require.Greater(t, e.checkpoints.done.Load(), before+2)
}
