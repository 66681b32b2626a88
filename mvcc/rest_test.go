package mvcc

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
)

// Filling up goes through leaves that are full already without writing anything. Who commits, waits for the housekeeping or closes the
// database meanwhile does not wait for the end of the tree.
func TestFillingUpStops(t *testing.T) {
	inTurn(t)
	const records = 40_000
	stirred := map[string]func(e *Engine) (calm func()){
		"a commit": func(e *Engine) func() {
			put(t, e, "key", "value")
			return func() {}
		},
		"a commit that waits for room or memory": func(e *Engine) func() {
			e.unpinned.enter()
			return e.unpinned.leave
		},
		"a heavy commit": func(e *Engine) func() {
			e.active.Add(1)
			return func() { e.active.Add(-1) }
		},
		"Close": func(e *Engine) func() {
			e.closed.Store(true)
			return func() { e.closed.Store(false) }
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
			k := &e.keeper
			k.mu.Lock()
			defer k.mu.Unlock()
			require.NoError(t, e.withBaton(func() error {
				e.restDue()
				return nil
			}))
			k.rest.filling = []byte{}
			steps = 0
			err := e.fillUp()
			calm()
			require.NoError(t, err)
			require.Positive(t, steps)
			require.False(t, k.rest.filled)
			require.NotEmpty(t, k.rest.filling, "where it goes on, should nobody have committed")

			steps = -1
			for range records {
				if k.rest.filled {
					break
				}
				require.NoError(t, e.withBaton(func() error {
					k.rest.committed = e.committed.Load()
					return nil
				}))
				require.NoError(t, e.fillUp())
			}
			require.True(t, k.rest.filled)
		})
	}
}

// Rest comes to an end where something lets the file grow behind each turn.
func TestRestEnds(t *testing.T) {
	inTurn(t)
	e := newEngine(t, Options{Manual: true})
	for i := range 20_000 {
		put(t, e, string(binary.BigEndian.AppendUint64(nil, uint64(i))), string(make([]byte, 1000)))
	}
	require.NoError(t, e.Checkpoint())
	k := &e.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	e.opts.Manual = false
	due := func() (due bool) {
		require.NoError(t, e.withBaton(func() error {
			k.rest.since = k.rest.since.Add(-idlePause)
			due = e.restDue()
			return nil
		}))
		return due
	}
	due()
	turns := 0
	for ; turns < 20; turns++ {
		require.NoError(t, e.store.GrowAhead(8<<20/logstore.PageSize))
		if !due() {
			break
		}
		require.NoError(t, e.rest())
	}
	require.Positive(t, turns)
	require.Less(t, turns, 20)
}
