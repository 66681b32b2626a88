package mvcc

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"flashdbm/logstore/vfs"

	"github.com/stretchr/testify/require"
)

// TestRedoFitsItsReservation: the redo of a batch takes no more pages than its commits have reserved for it, whatever
// its records are. Pages with logged values begin with a record, and so may waste the end of the page before.
func TestRedoFitsItsReservation(t *testing.T) {
	inTurn(t)
	key := func(i, n int) []byte { return fmt.Appendf(nil, "%06d%s", i, strings.Repeat("k", n-6)) }
	put := func(k, v int) func(*Tx, int) error {
		return func(tx *Tx, i int) error { return tx.Put(key(i, k), make([]byte, v)) }
	}
	del := func(k int) func(*Tx, int) error {
		return func(tx *Tx, i int) error { return tx.Delete(key(i, k)) }
	}
	type pattern []func(*Tx, int) error
	for name, turns := range map[string]pattern{
		"long keys and short": {put(4050, 1), put(6, 1)}, "deletes of long keys and of short ones": {del(4050), del(6)},
		"deletes of half a page": {del(2030)}, "deletes and logged": {del(2030), put(6, 256)}, "long deletes and logged": {del(4030), put(6, 256)},
		"logged and inline": {put(6, 2000), put(990, 250)}, "inline and the longest": {put(1000, 255), put(1000, 255), put(6, 2008)},
		"inline": {put(1000, 255), put(1000, 255), put(100, 160)}, "logged": {put(6, 2008), put(6, 5)}, "short and one long": {put(6, 256), put(6, 256), put(6, 256), put(6, 2008)},
		"runs": {put(6, 4000), put(6, 300), put(6, 10)},
	} {
		for _, inline := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, inline %v", name, inline), func(t *testing.T) {
				mem := vfs.NewMem(0)
				defer mem.Release()
				opts := tiny(Buffered)
				opts.Manual, opts.KeepInline, opts.RedoLimit = true, inline, 64<<20
				e := openOn(t, mem, opts)
				reserved, before := int64(0), e.store.Counters().Pages
				for range 3 {
					tx := begin(t, e, TxOptions{})
					for i := range 300 {
						require.NoError(t, turns[i%len(turns)](tx, i))
					}
					size := tx.set.Size()
					reserved += size.RedoPages + size.RunPages
					require.NoError(t, tx.Commit())
				}
				require.NoError(t, e.log.withLog(e.log.writeRedo))
				written := int64(e.store.Counters().Pages - before)
				require.LessOrEqual(t, written, reserved)
				require.NoError(t, e.Check(context.Background()))
				require.NoError(t, e.Close())
				e = openOn(t, mem, opts)
				require.NoError(t, e.Check(context.Background()))
				require.NoError(t, e.Close())
			})
		}
	}
}
