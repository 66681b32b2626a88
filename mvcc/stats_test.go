package mvcc

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStatsTakesNoLockOfTheWriter: Stats returns while the token and the lock of background work are held, and reports
// what was committed before. TestStatsWhileASyncHangs in dbm does the same for the locks of the store.
func TestStatsTakesNoLockOfTheWriter(t *testing.T) {
	for _, d := range []Durability{Durable, WriteThrough, Buffered} {
		e := newEngine(t, Options{Durability: d, Manual: true})
		for _, key := range []string{"a", "b", "c"} {
			put(t, e, key, "1")
		}
		require.NoError(t, e.Checkpoint())
		put(t, e, "d", "1")
		e.checkpoints.mu.Lock()
		e.token.take()
		within(t, func() {
			s, err := e.Stats()
			require.NoError(t, err)
			require.EqualValues(t, 4, s.Commits)
			require.GreaterOrEqual(t, s.Records, int64(3))
			require.Equal(t, e.pages.Stats(), s.Pages)
			require.EqualValues(t, 3, s.Checkpoints, "two of a new file")
			require.Positive(t, s.MemoryBytes+s.Space.LiveBytes)
			require.Zero(t, s.OpenSnapshots)
		})
		e.token.pass(true)
		e.checkpoints.mu.Unlock()
		require.NoError(t, e.tree.withMerged(func() error { return nil }))
		s, err := e.Stats()
		require.NoError(t, err)
		require.EqualValues(t, 4, s.Records, "all that was pending is in the tree")
	}
}

// TestStatsBesideRedo: Stats does not wait for the redo that Open has left. It counts the redo once it is merged.
func TestStatsBesideRedo(t *testing.T) {
	image, want := killedWithRedo(t)
	e := openOn(t, image, Options{Manual: true, Thresholds: Thresholds{RedoBehind: 3}})
	require.True(t, e.Redoing())
	s, err := e.Stats()
	require.NoError(t, err)
	require.True(t, e.Redoing())
	require.Positive(t, s.RedoBytes)
	require.Zero(t, s.Recovery.Steps.Redo)
	n, err := e.Len()
	require.NoError(t, err)
	require.EqualValues(t, len(want), n)
	require.NoError(t, e.tree.mergeAll())
	s, err = e.Stats()
	require.NoError(t, err)
	require.EqualValues(t, len(want), s.Records)
	require.Positive(t, s.Recovery.Steps.Redo)
	require.NoError(t, e.Close())
}

// TestPutBytes: Stats counts the keys and values of commits, however long they are and however they are logged, and
// the keys of deletes.
func TestPutBytes(t *testing.T) {
	for _, d := range []Durability{Durable, WriteThrough, Buffered} {
		e := newEngine(t, Options{Durability: d, Manual: true})
		want := uint64(0)
		for _, size := range []int{0, 10, 300, 3000, 20_000, 3 << 20} {
			put(t, e, "key", string(make([]byte, size)))
			want += uint64(3 + size)
			tx := begin(t, e, TxOptions{})
			for _, key := range []string{"a", "b", "c"} {
				require.NoError(t, tx.Put([]byte(key), make([]byte, size)))
			}
			require.NoError(t, tx.Delete([]byte("none")))
			require.NoError(t, tx.Commit())
			want += uint64(3*(1+size) + 4)
			s, err := e.Stats()
			require.NoError(t, err)
			require.Equal(t, want, s.PutBytes, "values of %d bytes", size)
		}
	}
}
