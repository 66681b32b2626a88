package dbm

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWorkAfterClose: work on request says that the database is closed, also if there is nothing to do.
func TestWorkAfterClose(t *testing.T) {
	db, err := openUnsynced(filepath.Join(t.TempDir(), "db"), nil)
	require.NoError(t, err)
	require.NoError(t, db.FinishDrops(context.Background()))
	_, err = db.DeleteExpired(context.Background())
	require.NoError(t, err)
	require.NoError(t, db.Close())
	require.ErrorIs(t, db.FinishDrops(context.Background()), ErrClosed)
	_, err = db.DeleteExpired(context.Background())
	require.ErrorIs(t, err, ErrClosed)
}

// TestRangeBoundsAreKeys: a bound of DeleteRange is at most as long as a key, in a Tx as in a Batch.
func TestRangeBoundsAreKeys(t *testing.T) {
	db, err := openUnsynced(filepath.Join(t.TempDir(), "db"), nil)
	require.NoError(t, err)
	defer db.Close()
	longest, long := make([]byte, maxKey), make([]byte, maxKey+1)
	require.NoError(t, db.Put(longest, nil))
	b := db.Batch()
	for _, r := range [][2][]byte{{long, nil}, {nil, long}, {longest, long}} {
		require.ErrorIs(t, db.DeleteRange(r[0], r[1]), ErrKeyTooLarge)
		require.ErrorIs(t, b.DeleteRange(r[0], r[1]), ErrKeyTooLarge)
	}
	require.NoError(t, db.DeleteRange(nil, longest))
	n, err := db.Len()
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	require.NoError(t, db.DeleteRange(longest, nil))
	n, err = db.Len()
	require.NoError(t, err)
	require.Zero(t, n)
}
