package mvcc

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestBoundGivesWayToBackups: space that readers hold during a backup is added to the bound at once, so that no commit
// waits for room because of it. Afterwards the bound falls again.
func TestBoundGivesWayToBackups(t *testing.T) {
	inTurn(t)
	const records, size = 10_000, 1000
	e := newEngine(t, Options{Durability: Buffered, RedoLimit: 8 << 20, FlushInterval: time.Hour})
	put := func() {
		for i := 0; i < records; i += 500 {
			tx := begin(t, e, TxOptions{})
			for j := range 500 {
				require.NoError(t, tx.Put(binary.BigEndian.AppendUint64(nil, uint64(i+j)), make([]byte, size-8)))
			}
			require.NoError(t, tx.Commit())
		}
		require.NoError(t, e.Checkpoint())
	}
	put()
	end := BeginBackup(e)
	var readers []*Tx
	for range 4 { // each holds what was live when it began
		readers = append(readers, begin(t, e, TxOptions{ReadOnly: true}))
		put()
	}
	require.Zero(t, e.pressure.crowd.passing.Load(), "a commit has waited")
	raised := int64(0)
	require.NoError(t, e.tree.withMerged(func() error {
		require.Greater(t, e.store.SpaceStats().FileBytes, e.pressure.boundBytes(e.store.SpaceStats()), "a test without a file above its bound")
		raised = e.pressure.crowd.raised
		return nil
	}))
	require.Greater(t, raised, int64(records*size))
	e.store.SetBound(1 << 20) // an old bound
	update := begin(t, e, TxOptions{})
	require.NoError(t, update.Put([]byte("k"), []byte("v")))
	require.NoError(t, update.Commit())
	require.Zero(t, e.pressure.crowd.passing.Load(), "a commit has waited")
	end()
	for _, reader := range readers {
		require.NoError(t, reader.Rollback())
	}
	require.Eventually(t, func() bool {
		put()
		require.NoError(t, e.tree.withMerged(func() error { raised = e.pressure.crowd.raised; return nil }))
		return raised == 0 && e.store.SpaceStats().FileBytes <= boundFactor*records*size+boundExtra
	}, time.Minute, time.Millisecond)
}

// TestNothingIsGivenBackBesideABackup: while a backup is young, no space is given back to the file system, because the
// file would soon have to allocate it again for what the backup holds. When the backup is old, space is given back.
func TestNothingIsGivenBackBesideABackup(t *testing.T) {
	e := newEngine(t, Options{Durability: Buffered, Manual: true})
	for i := range 4000 {
		require.NoError(t, e.WriteOne(binary.BigEndian.AppendUint64(nil, uint64(i)), make([]byte, 4000), false))
	}
	require.NoError(t, e.Checkpoint())
	for i := range 4000 {
		require.NoError(t, e.WriteOne(binary.BigEndian.AppendUint64(nil, uint64(i)), nil, true))
	}
	bytes := func() int64 {
		for range 3 {
			require.NoError(t, e.Checkpoint())
		}
		return e.store.SpaceStats().FileBytes
	}
	end := BeginBackup(e)
	e.pressure.crowd.backups.since.Add(int64(time.Hour)) // the backup stays young during the test
	before := e.store.SpaceStats().FileBytes
	require.GreaterOrEqual(t, bytes(), before)
	e.pressure.crowd.backups.since.Add(-int64(time.Hour + thinAfter)) // the backup is old now
	old := bytes()
	require.Less(t, old, before)
	end()
	require.LessOrEqual(t, bytes(), old)
}
