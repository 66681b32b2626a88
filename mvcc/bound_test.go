package mvcc

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
)

// A file stays within its bound however slow background work is beside the commits.
func TestBoundBesideSlowHousekeeping(t *testing.T) {
	inTurn(t)
	const records, size = 4000, 1000
	total := 60_000
	if testing.Short() {
		total = 30_000
	}
	e := newEngine(t, Options{Store: logstore.Options{}, RedoLimit: 32 << 20, Durability: Buffered, Step: func(p StepPoint) {
		if p == StepBetween {
			time.Sleep(3 * time.Millisecond)
		}
	}})
	const bar = boundFactor*records*size + boundExtra
	rng := rand.New(rand.NewPCG(1, 1))
	value := make([]byte, size-8)
	put := func(key int) func(tx *Tx) {
		return func(tx *Tx) { require.NoError(t, tx.Put(binary.BigEndian.AppendUint64(nil, uint64(key)), value)) }
	}
	commit := func(fns ...func(tx *Tx)) {
		tx := begin(t, e, TxOptions{})
		for _, fn := range fns {
			fn(tx)
		}
		require.NoError(t, tx.Commit())
	}
	for i := 0; i < records; i += 50 {
		var fns []func(*Tx)
		for j := range 50 {
			fns = append(fns, put(i+j))
		}
		commit(fns...)
	}
	most := int64(0)
	for i := 0; i < total; i += 50 {
		var fns []func(*Tx)
		for range 50 {
			fns = append(fns, put(rng.IntN(records)))
		}
		commit(fns...)
		most = max(most, e.store.SpaceStats().FileBytes)
	}
	t.Logf("at most %d KiB of %d", most>>10, bar>>10)
	require.LessOrEqual(t, most, int64(bar))
}

// Readers that hold what dies stop nobody: the bound gives way to them within a few rounds, and comes back when they have ended.
func TestBoundGivesWayToReaders(t *testing.T) {
	inTurn(t)
	const records, size = 40_000, 1000
	e := newEngine(t, Options{RedoLimit: 32 << 20, Durability: Buffered})
	value := make([]byte, size-8)
	put := func() {
		for i := 0; i < records; i += 500 {
			tx := begin(t, e, TxOptions{})
			for j := range 500 {
				require.NoError(t, tx.Put(binary.BigEndian.AppendUint64(nil, uint64(i+j)), value))
			}
			require.NoError(t, tx.Commit())
		}
	}
	put()
	var readers []*Tx
	begun, rounds := time.Now(), e.pressure.crowd.rounds.Load()
	for range 3 { // each of them holds what lived when it began
		readers = append(readers, begin(t, e, TxOptions{ReadOnly: true}))
		put()
	}
	rounds = e.pressure.crowd.rounds.Load() - rounds
	require.Less(t, rounds, int64(200), "once raised the bound is no bar to the next commit")
	t.Logf("%d MiB beside readers after %v and %d rounds", e.store.SpaceStats().FileBytes>>20, time.Since(begun), rounds)
	for _, reader := range readers {
		require.NoError(t, reader.Rollback())
	}
	for range 3 {
		put()
	}
	require.Eventually(t, func() bool {
		put()
		raised := int64(0)
		require.NoError(t, e.tree.withMerged(func() error { raised = e.pressure.crowd.raised; return nil }))
		return raised == 0 && e.store.SpaceStats().FileBytes <= boundFactor*records*size+boundExtra
	}, time.Minute, time.Millisecond)
}
