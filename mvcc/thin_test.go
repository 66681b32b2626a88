package mvcc

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
)

// TestThinnedForReaders: an idle reader keeps little more space than the pages that its snapshot shows, not the redo
// and dead pages in the same segments. While a backup is young, those are not punched out.
func TestThinnedForReaders(t *testing.T) {
	inTurn(t)
	o := Options{Durability: Buffered, Manual: true, RedoLimit: 1 << 20}
	o.PartBytes, o.Store.SegmentPages = 128<<10, 64 // so that segments have both pages of parts and redo
	e := newEngine(t, o)
	const records = 20_000
	overwrite := func(round int) {
		for from := 0; from < records; from += 500 {
			require.NoError(t, update(e, TxOptions{}, func(tx *Tx) (err error) {
				for i := from; i < from+500 && err == nil; i++ {
					err = tx.Put(fmt.Appendf(nil, "%08d", (i*7919+round)%records), make([]byte, 100))
				}
				return err
			}))
			require.NoError(t, e.Sync())
			require.NoError(t, e.Housekeep())
		}
	}
	overwrite(0)
	overwrite(1)
	tx := begin(t, e, TxOptions{ReadOnly: true})
	live := e.store.SpaceStats().LiveBytes
	end := BeginBackup(e)
	for round := range 4 {
		overwrite(2 + round)
	}
	require.NoError(t, e.Checkpoint())
	whole := e.store.HeldBytes()
	require.Zero(t, e.store.Thinning())
	e.pressure.crowd.backups.since.Add(-int64(thinAfter))
	for range 3 { // segments are chosen at the first and punched two later
		require.NoError(t, e.Checkpoint())
	}
	held := e.store.HeldBytes()
	t.Logf("%d KiB lived, %d are held, %d during a young backup", live>>10, held>>10, whole>>10)
	require.Less(t, held, whole*9/10)
	end()
	require.Greater(t, held, live*9/10)
	require.Less(t, held, live*6/5)
	n := 0
	c := tx.Cursor()
	for ok := c.First(); ok; ok = c.Next() {
		n++
	}
	require.NoError(t, c.Err())
	require.Equal(t, records, n)
	require.NoError(t, e.Check(context.Background()))
	tx.Rollback()
	require.NoError(t, e.Housekeep()) // nobody commits, so everything that the reader has held is freed at once
	for range 4 {
		require.NoError(t, e.Checkpoint())
	}
	require.Zero(t, e.store.HeldBytes())
	require.Less(t, e.store.SpaceStats().FileBytes, 4*live+64*logstore.PageSize)
}
