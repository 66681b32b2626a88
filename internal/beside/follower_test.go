package beside

import (
	"testing"
	"time"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
	"flashdbm/mvcc"

	"github.com/stretchr/testify/require"
)

// options are those of a small database. The tests run its background work themselves.
var options = mvcc.Options{
	Store:      logstore.Options{SegmentPages: 8, ChunkPages: 1 << 10},
	Durability: mvcc.WriteThrough, MemoryLimit: 64 << 20, RedoLimit: 64 << 10, FlushInterval: 20 * time.Millisecond,
	Manual: true,
}

func put(t *testing.T, e *mvcc.Engine, key, value string) {
	t.Helper()
	tx, err := e.Begin(mvcc.TxOptions{})
	require.NoError(t, err)
	require.NoError(t, tx.Put([]byte(key), []byte(value)))
	require.NoError(t, tx.Commit())
}

// TestFollower: each transaction shows the contents of the file at its beginning, until it ends. No transaction
// begins after Close, which waits for those that have begun.
func TestFollower(t *testing.T) {
	mem := vfs.NewMem(64 << 20)
	defer mem.Release()
	e, err := mvcc.Open(mem, "db", options)
	require.NoError(t, err)
	defer e.Close()
	put(t, e, "key", "1")
	f, err := Open(mem, "db", options)
	require.NoError(t, err)
	_, err = f.Begin(mvcc.TxOptions{})
	require.ErrorIs(t, err, logstore.ErrReadOnly)
	tx, err := f.Begin(mvcc.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	put(t, e, "key", "2")
	put(t, e, "other", "2")
	n, err := f.Len()
	require.NoError(t, err)
	require.EqualValues(t, 2, n)
	value, ok, _, err := f.GetCopy([]byte("key"))
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "2", string(value))
	value, ok, err = tx.Get([]byte("key"))
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "1", string(value))

	require.False(t, tx.Renew(nil), "no error that a newer snapshot helps with")
	require.True(t, tx.Renew(mvcc.ErrSnapshotTooOld))
	value, _, err = tx.Get([]byte("key"))
	require.NoError(t, err)
	require.Equal(t, "2", string(value))
	for range followerTry - 1 {
		require.True(t, tx.Renew(mvcc.ErrSnapshotTooOld))
	}
	require.False(t, tx.Renew(mvcc.ErrSnapshotTooOld), "often enough")

	closed := make(chan error)
	go func() { closed <- f.Close() }()
	require.Eventually(t, func() bool {
		_, err := f.Len()
		return err != nil
	}, time.Minute, time.Millisecond)
	select {
	case err := <-closed:
		t.Fatalf("closed (%v) while a transaction was open", err)
	case <-time.After(20 * time.Millisecond):
	}
	require.NoError(t, tx.Rollback())
	require.NoError(t, <-closed)
	_, err = f.Begin(mvcc.TxOptions{ReadOnly: true})
	require.ErrorIs(t, err, mvcc.ErrClosed)
	require.NoError(t, f.Close())
}
