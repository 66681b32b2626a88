package mvcc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
)

// churnRecords overwrites random records until only a few pages of each segment are live, and returns the records. It
// ends early if the file is full.
func churnRecords(t *testing.T, e *Engine, rng *rand.Rand, rounds int) model {
	t.Helper()
	want := model{}
	for range rounds {
		tx := begin(t, e, TxOptions{})
		now := model{}
		for range 40 {
			key, value := fmt.Sprintf("key%05d", rng.IntN(4000)), fmt.Sprint(rng.IntN(1e9), string(make([]byte, rng.IntN(300))))
			require.NoError(t, tx.Put([]byte(key), []byte(value)))
			now[key] = value
		}
		if err := tx.Commit(); logstore.IsFull(err) {
			return want
		} else {
			require.NoError(t, err)
		}
		for k, v := range now {
			want[k] = v
		}
	}
	return want
}

func (c *cleaner) cleanNow(pages int64) error {
	c.checkpoints.mu.Lock()
	defer c.checkpoints.mu.Unlock()
	return errors.Join(c.clean(pages), c.flusher.flushAndCheckpoint(), c.checkpoints.checkpoint())
}

func requireRecords(t *testing.T, e *Engine, want model) {
	t.Helper()
	tx := begin(t, e, TxOptions{ReadOnly: true})
	defer tx.Rollback()
	for k, v := range want {
		require.Equal(t, v, get(t, tx, k))
	}
	n, err := tx.Len()
	require.NoError(t, err)
	require.EqualValues(t, len(want), n)
	require.NoError(t, e.Check(context.Background()))
}

// TestCleanGains: cleaning the emptiest segments frees more pages than it writes, and changes no record.
func TestCleanGains(t *testing.T) {
	opts := tiny(Buffered)
	opts.Manual, opts.RedoLimit = true, 256<<10
	e := newEngine(t, opts)
	rng := rand.New(rand.NewPCG(1, 2))
	want := churnRecords(t, e, rng, 100)
	for range 5 {
		for k, v := range churnRecords(t, e, rng, 20) {
			want[k] = v
		}
		require.NoError(t, e.Checkpoint())
	}
	require.NoError(t, e.Checkpoint())
	require.NoError(t, e.Checkpoint())
	victims, garbage := e.store.Victims(nil, false)
	require.Greater(t, len(victims), 10)
	free := e.store.SpaceStats().FreeBytes + int64(e.store.Counters().ReturnedBytes)
	require.NoError(t, e.cleaner.cleanNow(1<<20))
	require.NoError(t, e.Checkpoint())
	require.Positive(t, e.flusher.moved.Load())
	after, left := e.store.Victims(nil, false)
	require.Less(t, len(after), len(victims)/2)
	require.Less(t, left, garbage/2)
	gained := e.store.SpaceStats().FreeBytes + int64(e.store.Counters().ReturnedBytes) - free
	require.Greater(t, gained, garbage*logstore.PageSize/2)
	requireRecords(t, e, want)
}

// TestCleanFullFile: in a full file the cleaner makes no more pages dirty than the next flush has room for.
func TestCleanFullFile(t *testing.T) {
	inTurn(t)
	t.Parallel()
	seeds := uint64(6)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			opts := tiny(Buffered)
			opts.Manual, opts.RedoLimit = true, 1<<20
			opts.Store.MaxFileSize = 3 << 20
			e := newEngine(t, opts)
			rng := rand.New(rand.NewPCG(3, seed))
			want := model{}
			for round := range 30 {
				for k, v := range churnRecords(t, e, rng, 10) {
					want[k] = v
				}
				if round%3 == 0 {
					checkpoints := min(e.store.Room(), 2*e.store.CheckpointPages())
					e.checkpoints.mu.Lock()
					err := e.cleaner.clean(1 << 20)
					e.checkpoints.mu.Unlock()
					require.NoError(t, err)
					require.GreaterOrEqual(t, e.store.Room(), checkpoints)
					require.NoError(t, e.cleaner.cleanNow(1<<20))
					require.NoError(t, e.Failed())
				}
			}
			requireRecords(t, e, want)
		})
	}
}

// TestCleanWithoutRoom: the cleaner reserves room for pages before it makes them dirty. Without room the pages stay
// where they are.
func TestCleanWithoutRoom(t *testing.T) {
	e := newEngine(t, Options{Manual: true, Thresholds: Thresholds{KeepInline: true}})
	want := churnRecords(t, e, rand.New(rand.NewPCG(1, 1)), 200)
	require.NoError(t, e.Checkpoint())
	require.NoError(t, e.Checkpoint())
	e.checkpoints.mu.Lock()
	victims, _ := e.store.Victims(nil, true)
	require.NotEmpty(t, victims)
	asked, cleaned := int64(0), e.flusher.moved.Load()
	room, err := e.cleaner.cleanVictims(victims, victims[0].Live+victims[len(victims)-1].Live, true, func(extra int64) error {
		asked = extra
		return logstore.ErrFull
	})
	e.checkpoints.mu.Unlock()
	require.NoError(t, err)
	require.False(t, room)
	require.Positive(t, asked)
	require.Equal(t, cleaned, e.flusher.moved.Load())
	requireRecords(t, e, want)
}
