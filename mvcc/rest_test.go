package mvcc

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
)

// Filling up a tree of full leaves goes through all of them without writing. Commits, callers that wait for background
// work, and Close do not wait until the end of the tree is reached.
func TestFillingUpStops(t *testing.T) {
	inTurn(t)
	const records = 40_000
	stirred := map[string]func(e *Engine) (calm func()){
		"a commit": func(e *Engine) func() {
			put(t, e, "key", "value")
			return func() {}
		},
		"a commit that waits for room or memory": func(e *Engine) func() {
			e.readers.unpinned.enter()
			return e.readers.unpinned.leave
		},
		"a heavy commit": func(e *Engine) func() {
			e.readers.active.Add(1)
			return func() { e.readers.active.Add(-1) }
		},
		"Close": func(e *Engine) func() {
			e.readers.closed.Store(true)
			return func() { e.readers.closed.Store(false) }
		},
	}
	for name, stir := range stirred {
		t.Run(name, func(t *testing.T) {
			steps, calm := -1, func() {}
			var e *Engine
			e = newEngine(t, Options{Manual: true, Step: func(p StepPoint) {
				if p != StepBetween || steps < 0 {
					return
				}
				if steps++; steps == 1 {
					calm = stir(e)
				}
			}})
			for i := 0; i < records; i += 1000 {
				tx := begin(t, e, TxOptions{})
				for j := range 1000 {
					require.NoError(t, tx.Put(binary.BigEndian.AppendUint64(nil, uint64(i+j)), make([]byte, 100)))
				}
				require.NoError(t, tx.Commit())
			}
			require.NoError(t, e.Checkpoint())
			e.checkpoints.mu.Lock()
			defer e.checkpoints.mu.Unlock()
			require.NoError(t, e.tree.withMerged(func() error {
				e.maintenance.restDue()
				return nil
			}))
			e.maintenance.idle.filling = []byte{}
			steps = 0
			err := e.maintenance.fillUp()
			calm()
			require.NoError(t, err)
			require.Positive(t, steps)
			require.False(t, e.maintenance.idle.filled)
			require.NotEmpty(t, e.maintenance.idle.filling, "where it goes on, should nobody have committed")

			steps = -1
			for range records {
				if e.maintenance.idle.filled {
					break
				}
				require.NoError(t, e.tree.withMerged(func() error {
					e.maintenance.idle.committed = e.marks.committed.Load()
					return nil
				}))
				require.NoError(t, e.maintenance.fillUp())
			}
			require.True(t, e.maintenance.idle.filled)
		})
	}
}

// resting puts a Manual engine at rest. The returned function reports whether a turn of rest is due, as if nobody had
// committed since its last call and idlePause had passed.
func resting(t *testing.T, e *Engine) (due func() bool) {
	e.checkpoints.mu.Lock()
	t.Cleanup(e.checkpoints.mu.Unlock)
	e.opts.Manual = false
	due = func() (due bool) {
		require.NoError(t, e.tree.withMerged(func() error {
			e.maintenance.idle.since = e.maintenance.idle.since.Add(-idlePause)
			due = e.maintenance.restDue()
			return nil
		}))
		return due
	}
	due()
	return due
}

// Rest ends even if the file grows after each turn.
func TestRestEnds(t *testing.T) {
	inTurn(t)
	e := newEngine(t, Options{Manual: true})
	for i := range 20_000 {
		put(t, e, string(binary.BigEndian.AppendUint64(nil, uint64(i))), string(make([]byte, 1000)))
	}
	require.NoError(t, e.Checkpoint())
	due := resting(t, e)
	turns := 0
	for ; turns < 20; turns++ {
		require.NoError(t, e.store.GrowAhead(8<<20/logstore.PageSize))
		if !due() {
			break
		}
		require.NoError(t, e.maintenance.rest())
	}
	require.Positive(t, turns)
	require.Less(t, turns, 20)
}

// Readers keep more space than the bound allows, so that the file grows when rest moves pages away from theirs. The
// other pages are cleaned nevertheless.
func TestRestBesideReaders(t *testing.T) {
	inTurn(t)
	const records = 100_000
	e := newEngine(t, Options{Manual: true})
	rng := rand.New(rand.NewPCG(1, 2))
	overwrite := func(n int) {
		for range n / 100 {
			tx := begin(t, e, TxOptions{})
			for range 100 {
				require.NoError(t, tx.Put(binary.BigEndian.AppendUint64(nil, rng.Uint64N(records)), make([]byte, 100)))
			}
			require.NoError(t, tx.Commit())
		}
		require.NoError(t, e.Checkpoint())
	}
	overwrite(3 * records)
	for range 5 {
		reader := begin(t, e, TxOptions{ReadOnly: true})
		defer reader.Rollback()
		overwrite(records)
	}
	due := resting(t, e)
	turns := 0
	for ; due() && turns < 50; turns++ {
		require.NoError(t, e.maintenance.rest())
	}
	s, own := e.store.SpaceStats(), e.ownBytes()
	t.Logf("%d turns, file %d KiB, bound %d, %d held, %d live", turns, s.FileBytes>>10, e.store.Bound()>>10, e.store.HeldBytes()>>10, s.LiveBytes>>10)
	require.Less(t, turns, 50)
	require.Greater(t, e.store.HeldBytes(), e.store.Bound())
	heldBack := e.store.HeldBytes() / 32 // a 32nd of what is allocated is kept free for the writer
	require.Less(t, own, s.LiveBytes*3/2+2<<20+heldBack)
	require.LessOrEqual(t, e.maintenance.restGarbage(s), int64(0), "the other pages are cleaned")
}

// If a turn has gained space and there is more to do, the next turn comes at once.
func TestRestGoesOn(t *testing.T) {
	inTurn(t)
	const records = 100_000
	e := newEngine(t, Options{Manual: true, Durability: Buffered})
	rng := rand.New(rand.NewPCG(1, 2))
	put := func(n int, key func(i int) uint64) {
		for i := 0; i < n; i += 1000 {
			tx := begin(t, e, TxOptions{})
			for j := range 1000 {
				require.NoError(t, tx.Put(binary.BigEndian.AppendUint64(nil, key(i+j)), make([]byte, 1000)))
			}
			require.NoError(t, tx.Commit())
		}
		require.NoError(t, e.Checkpoint())
	}
	put(records, func(i int) uint64 { return uint64(i) })
	put(records/2, func(int) uint64 { return rng.Uint64N(records) })
	due := resting(t, e)
	turns := 0
	for ; due(); turns++ {
		require.Less(t, turns, 20)
		e.maintenance.due.Store(false)
		before := e.ownBytes()
		require.NoError(t, e.maintenance.rest())
		require.Equal(t, e.ownBytes() < before, e.maintenance.due.Load())
	}
	require.Greater(t, turns, 1)
	require.Less(t, e.ownBytes(), e.store.SpaceStats().LiveBytes*5/4)
}

// pastItsBound returns an engine whose file is past its bound, as after deletes: in each segment one block of eight is
// live.
func pastItsBound(t *testing.T) *Engine {
	const records, block = 48_000, 8
	e := newEngine(t, Options{Manual: true, Thresholds: Thresholds{KeepInline: true}})
	each := func(do func(tx *Tx, i int) error) {
		for i := 0; i < records; i += 1000 {
			tx := begin(t, e, TxOptions{})
			for j := range 1000 {
				require.NoError(t, do(tx, i+j))
			}
			require.NoError(t, tx.Commit())
		}
		require.NoError(t, e.Checkpoint())
	}
	key := func(i int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(i)) }
	each(func(tx *Tx, i int) error { return tx.Put(key(i), make([]byte, 1000)) })
	each(func(tx *Tx, i int) error {
		if i/block%8 == 0 {
			return nil
		}
		return tx.Delete(key(i))
	})
	return e
}

// A file past its bound, as after deletes, is cleaned when nobody commits, even if no leaves are filled up.
func TestRestPastTheBound(t *testing.T) {
	inTurn(t)
	e := pastItsBound(t)
	due := resting(t, e)
	r := &e.maintenance.idle
	r.since = time.Now().Add(8 * time.Millisecond) // due adds idlePause: looks that are FlushInterval apart may be that early
	r.filled = true
	require.True(t, due())
	require.Greater(t, e.ownBytes(), e.store.Bound()+boundClean)
	for turns := 0; due(); turns++ {
		require.Less(t, turns, 20)
		require.NoError(t, e.maintenance.rest())
	}
	s := e.store.SpaceStats()
	require.Less(t, s.FileBytes, s.LiveBytes*3/2+2<<20)
}

// TestRestFlushesInParts: dirty pages of a load are not all written at once when commits end, because the file would
// grow by all of them. 200 MB loaded in random order would take 704 MiB.
func TestRestFlushesInParts(t *testing.T) {
	inTurn(t)
	const records = 60_000
	most, e := int64(0), (*Engine)(nil)
	e = newEngine(t, Options{Manual: true, Store: logstore.Options{SegmentPages: 32}, RedoLimit: 64 << 20, Thresholds: Thresholds{PartBytes: 256 << 10}, Step: func(StepPoint) {
		if e != nil {
			most = max(most, e.store.SpaceStats().FileBytes)
		}
	}})
	for turn := range 2 {
		for i := 0; i < records; i += 1000 {
			tx := begin(t, e, TxOptions{})
			for j := range 1000 {
				require.NoError(t, tx.Put(binary.BigEndian.AppendUint64(nil, uint64(i+j)), make([]byte, 100)))
			}
			require.NoError(t, tx.Commit())
		}
		if turn == 0 {
			require.NoError(t, e.Checkpoint())
		}
	}
	due := resting(t, e)
	require.True(t, due())
	dirty := e.pages.DirtyBytes()
	require.Greater(t, dirty, e.store.SpaceStats().LiveBytes/2)
	most = 0
	before := e.store.SpaceStats().FileBytes
	require.NoError(t, e.maintenance.rest())
	require.Less(t, most, before+dirty)
}

// Leaves that are full stay where they are when others are filled up. They do not keep segments in which nearly
// everything is dead until all of the tree has been filled up.
func TestFillingUpEmptiesSegments(t *testing.T) {
	inTurn(t)
	const loose, records, block = 24_000, 48_000, 40
	e := newEngine(t, Options{Manual: true, Store: logstore.Options{SegmentPages: 32}})
	order := rand.New(rand.NewPCG(1, 2)).Perm(loose) // leaves filled in this order have room; those behind them are full
	for turn := range 2 {
		for i := 0; i < records; i += 1000 {
			tx := begin(t, e, TxOptions{})
			for j := i; j < i+1000; j++ {
				n := j
				if n < loose {
					n = order[n]
				}
				if turn == 0 || n/block%8 != 0 { // of eight leaves, seven move
					require.NoError(t, tx.Put(binary.BigEndian.AppendUint64(nil, uint64(n)), make([]byte, 100)))
				}
			}
			require.NoError(t, tx.Commit())
		}
		require.NoError(t, e.Checkpoint())
	}
	resting(t, e)
	r, least := &e.maintenance.idle, 8*int64(e.store.SegmentPages())*logstore.PageSize
	require.Greater(t, e.maintenance.restGarbage(e.store.SpaceStats()), least)
	for r.filling = []byte{}; !r.filled; {
		require.NoError(t, e.maintenance.fillUp())
	}
	require.Less(t, e.maintenance.restGarbage(e.store.SpaceStats()), least/2)
}
