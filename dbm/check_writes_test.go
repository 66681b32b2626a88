package dbm

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCheckWrites: if two transactions write the same key and read nothing, both commit, as if the later one had
// begun after the first. With CheckWrites, or if it has read anything, the second one has a conflict. The same
// holds for large transactions.
func TestCheckWrites(t *testing.T) {
	for name, c := range map[string]struct {
		opts     TxOptions
		read     bool
		conflict bool
	}{
		"blind":        {},
		"check":        {TxOptions{CheckWrites: true}, false, true},
		"read":         {TxOptions{}, true, true},
		"serializable": {TxOptions{Serializable: true}, false, true},
	} {
		for _, keys := range []int{1, 20_000} {
			t.Run(fmt.Sprint(name, keys), func(t *testing.T) {
				db := newDB(t, &Options{Durability: Buffered, MemoryLimit: 1 << 20})
				write := func(tx *Tx, value string) {
					for i := range keys {
						require.NoError(t, tx.Put(fmt.Append(nil, "k", i), []byte(value)))
					}
				}
				first, err := db.Begin(c.opts)
				require.NoError(t, err)
				second, err := db.Begin(c.opts)
				require.NoError(t, err)
				apart, err := db.Begin(c.opts)
				require.NoError(t, err)
				t.Cleanup(func() { // even if the test has failed, because Close waits for them
					for _, tx := range []*Tx{first, second, apart} {
						tx.Rollback()
					}
				})
				if c.read {
					_, err := second.Get([]byte("other"))
					require.ErrorIs(t, err, ErrNotFound)
				}
				write(first, "first")
				write(second, "second")
				require.NoError(t, first.Commit())
				want := "second"
				if err := second.Commit(); c.conflict {
					want = "first"
					require.ErrorIs(t, err, ErrConflict)
				} else {
					require.NoError(t, err)
				}
				require.NoError(t, apart.Put([]byte("apart"), nil))
				if keys == 1 { // one of many keys may share the slot of this key in the table
					require.NoError(t, apart.Commit())
				} else {
					require.NoError(t, apart.Rollback())
				}
				got, err := db.Get([]byte("k0"))
				require.NoError(t, err)
				require.Equal(t, want, string(got))
			})
		}
	}
	// Update runs the function again.
	db := newDB(t, nil)
	runs := 0
	require.NoError(t, db.UpdateContext(t.Context(), TxOptions{CheckWrites: true}, func(tx *Tx) error {
		if runs++; runs == 1 {
			require.NoError(t, db.Put([]byte("k"), []byte("other")))
		}
		return tx.Put([]byte("k"), []byte("mine"))
	}))
	require.Equal(t, 2, runs)
}
