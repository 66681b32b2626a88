package mvcc

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
)

// TestFullFoldsLess: a full file has room for the pages that commits have changed, which was reserved, but not for all
// inner nodes that a checkpoint would fold. Then the checkpoint folds fewer. If it made them dirty without room, no
// flush could be written, and so no checkpoint, and deletes would never free space.
func TestFullFoldsLess(t *testing.T) {
	inTurn(t)
	mem := vfs.NewMem(0)
	defer mem.Release()
	opts := Options{Durability: WriteThrough, Manual: true, RedoLimit: 1 << 30, Store: logstore.Options{SegmentPages: 8}}
	e := openOn(t, mem, opts)
	const groups = 1000
	key := func(g, i int) []byte { // neighbouring keys differ in their last bytes, so separators are long and inner nodes have few children
		return fmt.Appendf(nil, "%08d%s%02d", g, strings.Repeat("x", 450), i)
	}
	large := func(i int) []byte { return fmt.Appendf(nil, "z%05d", i) }
	for g := range groups {
		tx := begin(t, e, TxOptions{})
		for i := range 12 {
			require.NoError(t, tx.Put(key(g, i), []byte(strings.Repeat("v", 450))))
		}
		require.NoError(t, tx.Commit())
	}
	require.NoError(t, e.Checkpoint())
	end := e.store.End()
	require.NoError(t, e.Close())

	opts.Store.MaxFileSize = int64(end) * logstore.PageSize
	e = openOn(t, mem, opts)
	defer e.Close()
	fill := func(most int, put func(tx *Tx, i int) error) (n int) { // puts until the file is full
		for ; n < most; n++ {
			tx := begin(t, e, TxOptions{})
			err := put(tx, n)
			if err == nil {
				err = tx.Commit()
			} else {
				require.NoError(t, tx.Rollback())
			}
			if err != nil {
				require.ErrorIs(t, err, logstore.ErrFull)
				return n
			}
		}
		return n
	}
	remove := func(from, to int) {
		tx := begin(t, e, TxOptions{})
		for i := from; i < to; i++ {
			require.NoError(t, tx.Delete(large(i)))
		}
		require.NoError(t, tx.Commit())
	}
	require.Greater(t, fill(1000, func(tx *Tx, i int) error { return tx.Put(large(i), make([]byte, 100_000)) }), 60)
	remove(0, 50)
	for range 3 {
		require.NoError(t, e.Checkpoint())
	}
	require.Greater(t, fill(1000, func(tx *Tx, i int) error { return tx.Put(key(i*37%groups, 3), []byte(strings.Repeat("w", 450))) }), 50)
	require.NoError(t, e.Checkpoint())
	remove(50, 60)
	require.NoError(t, e.Checkpoint())
	put(t, e, "new", "value")
}
