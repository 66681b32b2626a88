package dbm

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// The pages of a large value may look like pages of the tree, and its segments may have belonged to the log before
// the process was killed. Nobody may look for pages of the tree in them, so all of them die with the value.
func TestLargeValueLooksLikeNodes(t *testing.T) {
	mem := vfs.NewMem(2 << 30)
	defer mem.Release()
	db, err := open(mem, "db", nil)
	require.NoError(t, err)
	defer func() { db.Close() }()
	small := make([]byte, 200)
	for range 2 { // segments of the log that can be reused
		for i := range 100 {
			require.NoError(t, db.Update(func(tx *Tx) error {
				for j := range 300 {
					if err := tx.Put(fmt.Appendf(nil, "%d", i*300+j), small); err != nil {
						return err
					}
				}
				return nil
			}))
		}
		require.NoError(t, db.Checkpoint())
	}
	require.NoError(t, db.Checkpoint())
	value := bytes.Repeat([]byte{1}, 3<<20+5000) // looks like the kind of a node
	large := func(i int) []byte { return fmt.Appendf(nil, "large %d", i) }
	for i := range 3 {
		require.NoError(t, db.Put(large(i), value))
	}
	killed := mem.Clone()
	defer killed.Release()
	require.NoError(t, db.Close())
	db, err = open(killed, "db", nil)
	require.NoError(t, err)
	require.NoError(t, db.Compact(t.Context(), nil))
	for i := range 3 {
		require.NoError(t, db.Delete(large(i)))
	}
	require.NoError(t, db.Checkpoint())
	require.NoError(t, db.Check(t.Context()))
}
