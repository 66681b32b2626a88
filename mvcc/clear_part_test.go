package mvcc

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDeletePart deletes a range in parts, each part in its own transaction, key by key or by cuts. Afterwards exactly
// the records outside the range are left, and no room stays reserved.
func TestDeletePart(t *testing.T) {
	for _, cutFrom := range []int64{1, 1 << 40} {
		opts := tiny(Durable)
		opts.CutFrom, opts.Manual = cutFrom, true
		e := newEngine(t, opts)
		key := func(i int) []byte { return fmt.Appendf(nil, "%05d", i) }
		const n = 3000
		tx := begin(t, e, TxOptions{})
		for i := range n {
			require.NoError(t, tx.Put(key(i), key(i)))
		}
		require.NoError(t, tx.Commit())
		require.NoError(t, e.Checkpoint())
		promised := e.store.SpaceStats().ReservedBytes
		tx = begin(t, e, TxOptions{})
		_, err := DeletePart(tx, key(0), key(100), 700)
		require.NoError(t, err)
		require.NoError(t, tx.Rollback())
		require.Equal(t, promised, e.store.SpaceStats().ReservedBytes)
		from, parts := key(100), 0
		for rest := from; rest != nil; parts++ {
			tx := begin(t, e, TxOptions{})
			at := rest
			rest, err = DeletePart(tx, at, key(2900), 700)
			require.NoError(t, err)
			require.NoError(t, tx.Commit())
			tx = begin(t, e, TxOptions{ReadOnly: true})
			left, err := Count(tx, at, rest)
			require.NoError(t, err)
			if rest != nil {
				require.Zero(t, left)
				_, there, err := tx.Get(rest)
				require.NoError(t, err)
				require.True(t, there, "the rest begins at a record")
			}
			require.NoError(t, tx.Rollback())
		}
		require.Greater(t, parts, 2)
		tx = begin(t, e, TxOptions{ReadOnly: true})
		left, err := Count(tx, nil, nil)
		require.NoError(t, err)
		require.EqualValues(t, 200, left)
		require.NoError(t, tx.Rollback())
	}
}
