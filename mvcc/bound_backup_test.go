package mvcc

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestBoundGivesWayToBackups: what readers hold during a backup is allowed above the bound at once, so no commit waits
// for room because of it. Afterwards the bound comes back.
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
	for range 4 { // each holds what lived when it began
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
	e.store.SetBound(1 << 20) // as of an earlier look
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

// TestNothingIsGivenBackBesideABackup: while a backup is young, no space is given back to the file system, which the
// file would have to take again for what the backup holds; afterwards it is.
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
	e.pressure.crowd.backups.since.Add(int64(time.Hour)) // it is young for as long as the test takes
	before := e.store.SpaceStats().FileBytes
	require.GreaterOrEqual(t, bytes(), before)
	e.pressure.crowd.backups.since.Add(-int64(time.Hour + thinAfter)) // it is not young any more
	old := bytes()
	require.Less(t, old, before)
	end()
	require.LessOrEqual(t, bytes(), old)
}
