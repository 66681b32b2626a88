package mvcc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// attempt runs an attempt of Retry that ends its transaction with fn's error. It returns a pointer to the
// transaction's memory, to be compared with other pointers only.
func attempt(t *testing.T, e *Engine, o TxOptions, fn func(tx *Tx) error) (memory *Tx, err error) {
	t.Helper()
	err = e.Retry(t.Context(), o, func(tx *Tx) (bool, error) {
		memory = tx
		if err := fn(tx); err != nil {
			return false, errors.Join(err, tx.Rollback())
		}
		err := tx.Commit()
		return errors.Is(err, ErrConflict), err
	})
	return memory, err
}

// TestAttemptsAreAsIfNew: an attempt that reuses the memory of an earlier one finds none of its state there, whatever
// the earlier one did.
func TestAttemptsAreAsIfNew(t *testing.T) {
	e := newEngine(t, Options{Durability: Buffered, Manual: true, Shares: MemoryShares{WriteSets: 1 << 20}})
	put(t, e, "k", "old")
	errFn := errors.New("no")
	many := func(tx *Tx, size int) error {
		for i := range 300 {
			if err := tx.Put(fmt.Appendf(nil, "many %03d", i), make([]byte, size)); err != nil {
				return err
			}
		}
		return nil
	}
	again := 0
	for name, fn := range map[string]func(tx *Tx) error{
		"nothing": func(tx *Tx) error { return nil },
		"reads":   func(tx *Tx) error { _, _, err := tx.Get([]byte("k")); return err },
		"puts":    func(tx *Tx) error { return tx.Put([]byte("a"), nil) },
		"deletes": func(tx *Tx) error { return tx.Delete([]byte("a")) },
		"counts":  func(tx *Tx) error { _, err := tx.Len(); return err },
		"guards":  func(tx *Tx) error { tx.Guard([]byte("g"), nil); return tx.Put([]byte("a"), nil) },
		"fails":   func(tx *Tx) error { return errors.Join(errFn, tx.Put([]byte("a"), nil)) },
		"many":    func(tx *Tx) error { return many(tx, 10) },
		"spills":  func(tx *Tx) error { return many(tx, 10_000) },
		"large":   func(tx *Tx) error { return tx.Put([]byte("large"), make([]byte, 3<<20)) },
		"clears":  func(tx *Tx) error { return tx.DeleteRange([]byte("many"), []byte("manz")) },
		"loses": func(tx *Tx) error {
			if _, _, err := tx.Get([]byte("lost")); err != nil {
				return err
			}
			if again++; again == 1 {
				put(t, e, "lost", "")
			}
			return tx.Put([]byte("lost"), []byte("won"))
		},
	} {
		for _, o := range []TxOptions{{}, {CheckWrites: true}} {
			again = 0
			if _, err := attempt(t, e, o, fn); name == "fails" {
				require.ErrorIs(t, err, errFn)
			} else {
				require.NoError(t, err, name)
			}
			asNew := func(tx *Tx) {
				found := *tx
				found.slot, found.snap, found.kept = Tx{}.slot, snapshot{}, kept{}
				require.True(t, reflect.DeepEqual(Tx{pinned: pinned{e: e}, again: true}, found), name) // Equal would print the whole engine
			}
			single := usedTx(e, e.committer.used) // as WriteOne gets its transaction
			asNew(single)
			e.committer.used.Put(single)
			next, err := beginAttempt(e, TxOptions{})
			require.NoError(t, err)
			asNew(next)
			if set := next.kept.set; set != nil {
				require.True(t, set.Empty(), name)
			}
			require.Empty(t, next.kept.wake, name)
			v, ok, err := next.Get([]byte("a"))
			require.NoError(t, err)
			require.False(t, ok && len(v) > 0, name)
			require.NoError(t, next.Rollback())
		}
	}
}

// TestAttemptsThatLendAreNotUsedAgain: the memory of a transaction is reused unless a cursor or reader refers to it.
func TestAttemptsThatLendAreNotUsedAgain(t *testing.T) {
	e := newEngine(t, Options{Durability: Buffered, Manual: true})
	put(t, e, "k", "old")
	for name, lend := range map[string]func(tx *Tx) error{
		"cursor": func(tx *Tx) error { tx.Cursor(); return nil },
		"reader": func(tx *Tx) error { _, _, _, err := tx.ValueReader([]byte("k")); return err },
	} {
		memory, err := attempt(t, e, TxOptions{}, lend)
		require.NoError(t, err)
		for range 10 {
			other, err := attempt(t, e, TxOptions{}, func(tx *Tx) error { return tx.Put([]byte("a"), nil) })
			require.NoError(t, err)
			require.NotSame(t, memory, other, name)
		}
	}
	var last *Tx
	require.Eventually(t, func() bool { // the pool may have dropped it, or keep it for another processor
		memory, err := attempt(t, e, TxOptions{}, func(tx *Tx) error { _, _, err := tx.Get([]byte("k")); return err })
		require.NoError(t, err)
		same := memory == last
		last = memory
		return same
	}, patience, time.Microsecond)
}

// TestLentReaderOutlivesItsAttempt: a reader of a value that a transaction of Retry has written does not see the
// writes of the next one.
func TestLentReaderOutlivesItsAttempt(t *testing.T) {
	e := newEngine(t, Options{Durability: Buffered, Manual: true})
	var r io.Reader
	value := bytes.Repeat([]byte("mine "), 100)
	_, err := attempt(t, e, TxOptions{}, func(tx *Tx) (err error) {
		if err := tx.Put([]byte("k"), value); err != nil {
			return err
		}
		r, _, _, err = tx.ValueReader([]byte("k"))
		return err
	})
	require.NoError(t, err)
	tx, err := beginAttempt(e, TxOptions{})
	require.NoError(t, err)
	require.False(t, tx.lends)
	require.NoError(t, tx.Put([]byte("k"), bytes.Repeat([]byte("other"), 100)))
	got := make([]byte, 5)
	if _, err := io.ReadFull(r, got); err == nil {
		require.Equal(t, "mine ", string(got))
	}
	require.NoError(t, tx.Rollback())
}

// TestAgeOfAttempts: a transaction of Retry has an age when another goroutine asks for the oldest reader.
func TestAgeOfAttempts(t *testing.T) {
	e := newEngine(t, Options{Durability: Buffered, Manual: true})
	tx, err := beginAttempt(e, TxOptions{})
	require.NoError(t, err)
	age := func() time.Duration {
		s, err := e.Stats()
		require.NoError(t, err)
		return s.OldestSnapshotAge
	}
	first := age()
	time.Sleep(2 * time.Millisecond)
	require.GreaterOrEqual(t, age()-first, 2*time.Millisecond)
	require.NoError(t, tx.Rollback())
}
