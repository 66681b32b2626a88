package dbm

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
	"flashdbm/mvcc"
)

// TestFullDeleteRange: a full file can be emptied with one DeleteRange, even if there is no room to delete its
// records one by one, and even after another one has deleted a part. It can be filled and emptied again.
func TestFullDeleteRange(t *testing.T) {
	t.Parallel()
	for _, s := range []struct {
		mib    int64
		size   int
		random bool
	}{{1, 200, true}, {1, 3000, false}, {2, 3000, true}, {1, 40, true}} {
		t.Run(fmt.Sprintf("%dMiB-%dbytes", s.mib, s.size), func(t *testing.T) {
			f := newFullFile(t, s.mib<<20, 0, s.size, mvcc.Durable)
			f.random, f.inOrder = s.random, !s.random
			first := f.fill()
			n, err := f.db.Len()
			require.NoError(t, err)
			require.NoError(t, f.db.DeleteRange(f.key(0), nil))
			left, err := f.db.Len()
			require.NoError(t, err)
			require.Less(t, left, n)
			require.NoError(t, f.db.DeleteRange(nil, nil))
			f.kill()
			f.keys = nil
			f.check()
			second := f.fill()
			f.check()
			t.Logf("%d records, then %d", first, second)
			require.Greater(t, second, first*8/10)
			require.NoError(t, f.db.DeleteRange(nil, nil))
			f.keys = nil
			f.check()
		})
	}
}

// TestFullDeleteRangeOfLongKeys does the same with keys so long that the redo of deleting them takes more than a
// full file has left.
func TestFullDeleteRangeOfLongKeys(t *testing.T) {
	t.Parallel()
	f := newFullFile(t, 4<<20, 0, 100, mvcc.WriteThrough)
	put := 0
	for err := error(nil); err == nil; put++ {
		err = f.commit(func(tx *Tx) error {
			return tx.Put(append(make([]byte, 3*logstore.PageSize-8), f.key(put)...), make([]byte, f.size))
		})
		require.True(t, err == nil || errors.Is(err, ErrFull), "%v", err)
	}
	require.Greater(t, put, 100)
	require.NoError(t, f.db.DeleteRange(nil, nil))
	f.check()
}
