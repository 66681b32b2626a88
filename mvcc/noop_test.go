package mvcc

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
)

// TestDeletesOfNothing: a delete of a key that does not exist is logged and changes no page. The space of the log is
// reused nevertheless.
func TestDeletesOfNothing(t *testing.T) {
	inTurn(t)
	for _, d := range []Durability{Durable, WriteThrough, Buffered} {
		mem := vfs.NewMem(0)
		opts := tiny(d)
		opts.Manual = true
		opts.Store.MaxFileSize = 64 * int64(opts.Store.SegmentPages) * logstore.PageSize
		e := openOn(t, mem, opts)
		put(t, e, "a", "1")
		require.NoError(t, e.Checkpoint())
		for i := range 2000 {
			tx := begin(t, e, TxOptions{})
			require.NoError(t, tx.Delete(fmt.Appendf(nil, "none%d", i)))
			require.NoError(t, tx.Commit(), "delete %d", i)
			if i%10 == 0 {
				require.NoError(t, e.Housekeep())
			}
		}
		require.NoError(t, e.Checkpoint())
		require.Less(t, e.store.SinceCheckpoint(), int64(8*logstore.PageSize), "to scan at the next open")
		require.NoError(t, e.Close())
		e = openOn(t, mem, opts)
		require.Zero(t, e.recovery.stats.Records)
		tx := begin(t, e, TxOptions{ReadOnly: true})
		require.Equal(t, "1", get(t, tx, "a"))
		require.NoError(t, tx.Rollback())
		require.NoError(t, e.Close())
		mem.Release()
	}
}
