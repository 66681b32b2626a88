package mvcc

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
	"flashdbm/override"
)

// named returns an engine in which the leaves of a range of keys have moved. Their names are their old addresses and
// keep segments from reuse. split splits every n-th leaf.
func named(t *testing.T, from, to int) (e *Engine, split func(every int)) {
	const keys = 30_000
	opts := tiny(Durable)
	opts.Manual, opts.KeepInline, opts.MemoryLimit = true, true, 256<<20
	e = newEngine(t, opts)
	put := func(from, to, step, size, each int) {
		require.NoError(t, update(e, TxOptions{}, func(tx *Tx) (err error) {
			for i := from; i < to && err == nil; i += step {
				for j := range each {
					err = errors.Join(err, tx.Put(fmt.Appendf(nil, "key-%05d%s", i, strings.Repeat("+", j)), make([]byte, size)))
				}
			}
			return err
		}))
	}
	put(0, keys, 1, 300, 1)
	for range 2 { // the second one folds, so that new leaves have addresses as names
		require.NoError(t, e.Checkpoint())
	}
	put(from, to, 5, 301, 1)
	e.checkpoints.mu.Lock()
	require.NoError(t, e.flusher.flush())
	e.checkpoints.mu.Unlock()
	return e, func(every int) { put(0, keys, every*13, 301, 9) }
}

// TestNamesOfFamilies: parents of pages whose names keep segments from reuse are folded even if they have families,
// unless folding these families is not worth the space that it frees. While records are put in random order nearly
// all parents have families. Without these folds, names kept a tenth of a file from reuse, to save a hundredth of the
// writes.
func TestNamesOfFamilies(t *testing.T) {
	inTurn(t)
	for _, c := range []struct {
		name     string
		from, to int
		folds    bool
	}{{"few", 0, 30_000, true}, {"many", 15_000, 15_260, false}} {
		t.Run(c.name, func(t *testing.T) {
			e, split := named(t, c.from, c.to)
			split(50)
			families := func() (n int64) {
				require.NoError(t, e.tree.withMerged(func() error {
					n = e.pages.GrownPages()
					return nil
				}))
				return n
			}
			before, kept := families(), e.store.Account().Named
			e.checkpoints.mu.Lock()
			defer e.checkpoints.mu.Unlock()
			require.NoError(t, e.flusher.unpin())
			after := families()
			require.NoError(t, e.flusher.flush())
			left := e.store.Account().Named
			t.Logf("%d pages in families, then %d; names keep %d pages, then %d", before, after, kept, left)
			require.Positive(t, before)
			require.Positive(t, kept)
			if c.folds {
				require.Zero(t, after)
				require.Less(t, left, kept/8)
			} else {
				require.Equal(t, before, after)
			}
		})
	}
}

// TestDrainAsFarAsItGoes: parents are folded one by one if there is no room for more at a time. If there is no room
// even for one, drain does not report progress.
func TestDrainAsFarAsItGoes(t *testing.T) {
	inTurn(t)
	opts := tiny(Durable)
	opts.Manual, opts.KeepInline = true, true
	e := newEngine(t, opts)
	const keys = 30_000
	key := func(i int) []byte { return fmt.Appendf(nil, "key-%05d", i) }
	require.NoError(t, update(e, TxOptions{}, func(tx *Tx) (err error) {
		for i := 0; i < keys && err == nil; i++ {
			err = tx.Put(key(i), make([]byte, 300))
		}
		return err
	}))
	for range 2 { // the second one folds, so that new leaves have addresses as names
		require.NoError(t, e.Checkpoint())
	}
	require.NoError(t, update(e, TxOptions{}, func(tx *Tx) (err error) { // each leaf moves, and its name is its old address
		for i := 0; i < keys && err == nil; i += 5 {
			err = tx.Put(key(i), make([]byte, 301))
		}
		return err
	}))
	e.checkpoints.mu.Lock()
	defer e.checkpoints.mu.Unlock()
	require.NoError(t, e.flusher.flush())
	pinned := func() int {
		plan, err := e.readers.planFolds(func(s *override.Snapshot) ([]logstore.PageID, error) { return s.DrainPlan(e.store.Pinned) })
		require.NoError(t, err)
		return len(plan)
	}
	before := pinned()
	require.Greater(t, before, foldsAtOnce)
	any, err := e.flusher.drain((*override.Batch).Fold, func(int64) error { return logstore.ErrFull })
	require.NoError(t, err)
	require.False(t, any)
	left := before / 2
	any, err = e.flusher.drain((*override.Batch).Fold, func(extra int64) error {
		if extra > foldPages || left == 0 {
			return logstore.ErrFull
		}
		left--
		return e.pressure.reserveMore(extra)
	})
	require.NoError(t, err)
	require.True(t, any)
	require.NoError(t, e.flusher.flush())
	require.Zero(t, left)
	require.Less(t, pinned(), before-1)
}

// TestFullFileHasAShortTable: leaves of a load in key order are found through the translation table. By the time that
// the file is full and a put is refused, their parents have been folded, because a long table takes room in each
// checkpoint, and this room is missing for puts.
func TestFullFileHasAShortTable(t *testing.T) {
	inTurn(t)
	opts := Options{Durability: WriteThrough, Manual: true}
	opts.Store.MaxFileSize = 2 << 20
	e := newEngine(t, opts)
	err := error(nil)
	for i := 0; err == nil; i++ {
		err = update(e, TxOptions{}, func(tx *Tx) error { return tx.Put(fmt.Appendf(nil, "key-%05d", i), make([]byte, 200)) })
	}
	require.ErrorIs(t, err, logstore.ErrFull)
	s, err := e.Stats()
	require.NoError(t, err)
	live := s.Space.LiveBytes / logstore.PageSize
	require.Greater(t, live, int64(100))
	require.Less(t, s.Pages.TableEntries, live/4, "of %d pages", live)
}
