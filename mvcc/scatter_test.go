package mvcc

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
)

const (
	scatterTimes = 3 // scans
	scatterCount = 3000
)

func scatterKey(i int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(i)) }

func scatterValue(i, round int) []byte {
	v := make([]byte, 1000)
	binary.LittleEndian.PutUint64(v, uint64(i))
	v[8] = byte(round)
	return v
}

// scatter returns an engine whose logged values are in random key order.
func scatter(t *testing.T, opts Options) *Engine {
	opts.Manual, opts.ScanOften = true, scatterTimes
	e := newEngine(t, opts)
	order := rand.New(rand.NewPCG(1, 1)).Perm(scatterCount)
	for ; len(order) > 0; order = order[100:] {
		tx := begin(t, e, TxOptions{})
		for _, i := range order[:100] {
			require.NoError(t, tx.Put(scatterKey(i), scatterValue(i, 0)))
		}
		require.NoError(t, tx.Commit())
	}
	require.NoError(t, e.Checkpoint())
	return e
}

// jumps returns how many values are not in key order, and requires that the values are those of the given rounds.
func jumps(t *testing.T, e *Engine, round func(i int) int) int {
	often := e.cleaner.scattered.often
	e.cleaner.scattered.often = 0 // these reads do not count as a scan
	defer func() { e.cleaner.scattered.often = often }()
	tx := begin(t, e, TxOptions{ReadOnly: true})
	defer tx.Rollback()
	c := tx.Cursor()
	var o scanOrder
	i := 0
	for ok := c.First(); ok; ok = c.Next() {
		require.Equal(t, scatterKey(i), c.Key())
		v, err := c.Value()
		require.NoError(t, err)
		require.True(t, bytes.Equal(scatterValue(i, round(i)), v), i)
		o.next(c.tree.Cell().Ref())
		i++
	}
	require.NoError(t, c.Err())
	require.Equal(t, scatterCount, i)
	return o.jump
}

func never(int) int { return 0 }

// scans are ways to read the values of all records.
var scans = map[string]func(t *testing.T, c *Cursor){
	"Stretch": func(t *testing.T, c *Cursor) {
		n := 0
		for ok := c.First(); ok; ok = c.Next() {
			any, more := c.Stretch(nil, func(_, _ []byte) bool { n++; return true })
			require.True(t, any && more)
		}
		require.Equal(t, scatterCount, n)
	},
	"Next": func(t *testing.T, c *Cursor) {
		for ok := c.First(); ok; ok = c.Next() {
			_, err := c.Value()
			require.NoError(t, err)
		}
	},
	"Prev": func(t *testing.T, c *Cursor) {
		for ok := c.Last(); ok; ok = c.Prev() {
			_, err := c.Value()
			require.NoError(t, err)
		}
	},
}

func scanAll(t *testing.T, e *Engine, way string) {
	tx := begin(t, e, TxOptions{ReadOnly: true})
	defer tx.Rollback()
	scans[way](t, tx.Cursor())
	require.NoError(t, tx.Expired())
}

// Values that scans have read out of key order often enough are in key order after the next background work. Then they
// stay in place.
func TestScansPutValuesInOrder(t *testing.T) {
	inTurn(t)
	for way := range scans {
		t.Run(way, func(t *testing.T) {
			e := scatter(t, Options{})
			require.Greater(t, jumps(t, e, never), scatterCount*3/4)
			scanAll(t, e, way)
			pages := e.store.Counters().Pages
			require.NoError(t, e.Housekeep())
			require.Equal(t, pages, e.store.Counters().Pages, "one scan is not enough")
			e.maintenance.idle.vain = restVain
			for round := 0; round < 20 && jumps(t, e, never) >= scatterCount/50; round++ { // leaves may share a counter
				scanAll(t, e, way)
				require.NoError(t, e.Housekeep())
				require.Zero(t, e.store.UnsyncedPages(), "what has moved is not kept in memory")
			}
			require.Less(t, jumps(t, e, never), scatterCount/50)
			require.Zero(t, e.maintenance.idle.vain, "the file may rest again")
			require.NoError(t, e.Checkpoint())
			pages = e.store.Counters().Pages
			for range 3 * scatterTimes {
				scanAll(t, e, way)
				require.NoError(t, e.Housekeep())
			}
			require.Equal(t, pages, e.store.Counters().Pages, "values in order move again")
			require.NoError(t, e.Checkpoint())
			require.Zero(t, jumps(t, e, never)*50/scatterCount)
		})
	}
}

// Lookups by cursor do not count as scans.
func TestSeeksMoveNothing(t *testing.T) {
	e := scatter(t, Options{})
	tx := begin(t, e, TxOptions{ReadOnly: true})
	defer tx.Rollback()
	c := tx.Cursor()
	for i := range 10 * scatterTimes * scatterCount {
		require.True(t, c.Seek(scatterKey(i*7919%scatterCount)))
		_, err := c.Value()
		require.NoError(t, err)
	}
	require.Empty(t, e.cleaner.scattered.keys)
}

// A write that comes while values move is the newest afterwards.
func TestScannedValuesBesideCommits(t *testing.T) {
	inTurn(t)
	var e *Engine
	on, n := false, 0
	e = scatter(t, Options{Step: func(p StepPoint) {
		if !on || p != StepBetween || n == 64 {
			return
		}
		on = false
		tx := begin(t, e, TxOptions{})
		for i := n; i < scatterCount; i += 64 {
			require.NoError(t, tx.Put(scatterKey(i), scatterValue(i, 1+n)))
		}
		require.NoError(t, tx.Commit())
		n++
		on = true
	}})
	for range scatterTimes + 1 {
		scanAll(t, e, "Stretch")
	}
	on = true
	require.NoError(t, e.Housekeep())
	on = false
	require.Greater(t, n, 4)
	round := func(i int) int {
		if i%64 < n {
			return 1 + i%64
		}
		return 0
	}
	jumps(t, e, round)
	require.NoError(t, e.Checkpoint())
	jumps(t, e, round)
}

// Two noted keys may have come to lie in the same leaf, or in a leaf whose values are in order.
func TestScannedLeafTwice(t *testing.T) {
	e := scatter(t, Options{})
	ask := func() {
		for i := range 200 {
			e.cleaner.scattered.keys = append(e.cleaner.scattered.keys, scatterKey(i))
		}
		for range 5 {
			require.NoError(t, e.Housekeep())
		}
		require.Empty(t, e.cleaner.scattered.keys)
	}
	before := jumps(t, e, never)
	ask()
	require.Less(t, jumps(t, e, never), before)
	require.NoError(t, e.Checkpoint())
	pages := e.store.Counters().Pages
	ask()
	require.Equal(t, pages, e.store.Counters().Pages)
}

// If the file would pass its bound or has a size limit, no value moves, and the requests are dropped.
func TestScannedValuesFindNoRoom(t *testing.T) {
	for name, narrow := range map[string]func(e *Engine){
		"bound": func(e *Engine) { e.store.SetBound(logstore.PageSize) },
		"limit": func(e *Engine) { e.room.full.Store(true) },
		"asked": func(e *Engine) { e.pressure.crowd.asked.Store(1) },
	} {
		t.Run(name, func(t *testing.T) {
			e := scatter(t, Options{})
			for range scatterTimes + 1 {
				scanAll(t, e, "Stretch")
			}
			require.NotEmpty(t, e.cleaner.scattered.keys)
			pages := e.store.Counters().Pages
			narrow(e)
			e.checkpoints.mu.Lock()
			for range 2 {
				_, err := e.cleaner.moveScanned()
				require.NoError(t, err)
			}
			e.checkpoints.mu.Unlock()
			require.Equal(t, pages, e.store.Counters().Pages)
			require.Empty(t, e.cleaner.scattered.keys)
			e.pressure.crowd.asked.Store(0)
			e.room.full.Store(false)
			e.store.SetBound(0)
		})
	}
}
