package mvcc

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestBackupRestsForCommits: a backup pauses while a commit is running, even if no commit has completed since its last
// pause. Without the pause it would use a processor for as long as a commit waits for one: up to 4 ms on two
// processors.
func TestBackupRestsForCommits(t *testing.T) {
	e := newEngine(t, Options{})
	put(t, e, "key", "value")
	tx := begin(t, e, TxOptions{ReadOnly: true})
	defer tx.Rollback()
	walk := imageWalk{tx: tx, commits: e.known.commits.Load()}
	rests := func() time.Duration {
		walk.rested = time.Now().Add(-restMost) // as if it had worked for restMost without a pause
		begin := time.Now()
		walk.rest()
		return time.Since(begin)
	}
	for calm := time.Duration(restMost); calm >= restMost; calm = rests() { // a processor that others use delays it
	}

	release := e.HoldToken()
	done := make(chan error)
	go func() { done <- e.WriteOne([]byte("key"), []byte("again"), false) }()
	for e.Pushed() == 0 {
		time.Sleep(time.Millisecond)
	}
	require.GreaterOrEqual(t, rests(), restMost)
	release()
	require.NoError(t, <-done)
}

// TestReadersEndBesideCommits: while commits are running, background work frees what a reader has held in parts, so
// that commits do not wait for all of it. Without commits it frees everything at once.
func TestReadersEndBesideCommits(t *testing.T) {
	inTurn(t)
	const records, each = 60_000, 20 // each leaf has more than 20
	e := newEngine(t, Options{Manual: true})
	puts := func(each int) {
		tx := begin(t, e, TxOptions{})
		for i := 0; i < records; i += each {
			require.NoError(t, tx.Put(binary.BigEndian.AppendUint64(nil, uint64(i)), make([]byte, 100)))
		}
		require.NoError(t, tx.Commit())
	}
	puts(1)
	require.NoError(t, e.Checkpoint())
	puts(each)
	require.NoError(t, e.Housekeep())
	housekeep := func() (bytes int64) {
		require.NoError(t, e.Housekeep())
		require.NoError(t, e.tree.withTree(func() error { bytes = e.memoryBytes(); return nil }))
		return bytes
	}
	reader := begin(t, e, TxOptions{ReadOnly: true})
	puts(each)
	held := housekeep()
	require.NoError(t, reader.Rollback())
	e.readers.active.Add(1) // a commit is running
	beside := housekeep()
	e.readers.active.Add(-1)
	alone := housekeep()
	require.Less(t, alone, held*3/4, "a test whose reader holds little")
	require.Less(t, held-beside, (held-alone)/2)
}
