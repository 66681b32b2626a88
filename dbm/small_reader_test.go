package dbm

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReadersAreSmall: opening a small database to read it, or beside its writer, takes little memory, even if that is
// done again and again. The tables by which commits find conflicts take 3 MiB and are not made.
func TestReadersAreSmall(t *testing.T) {
	inTurn(t)
	path := filepath.Join(t.TempDir(), "db")
	db, err := Open(path, nil)
	require.NoError(t, err)
	require.NoError(t, db.Put([]byte("k"), []byte("v")))
	require.NoError(t, db.Close())
	for _, o := range []*Options{{ReadOnly: true}, {Beside: true}} {
		const opens, each = 8, 3 << 19
		before := allocated()
		for range opens {
			db, err := Open(path, o)
			require.NoError(t, err)
			require.NoError(t, db.View(func(tx *Tx) error {
				_, err := tx.Get([]byte("k"))
				return err
			}))
			require.NoError(t, db.Close())
		}
		require.Less(t, allocated()-before, int64(opens*each), "%+v", *o)
	}
}
