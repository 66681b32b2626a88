package dbm

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// TestHostileDeath: the reference of a record leads to a leaf of the tree. Deleting the record must not free the
// leaf, which readers have seen and may still hold.
func TestHostileDeath(t *testing.T) {
	whole := tall(t, true)
	o := whole.load.options(rand.New(rand.NewPCG(1, 1)))
	var db *DB
	var victim string // key of the record
	var mem *vfs.Mem
	for skip := 0; db == nil; skip++ { // leaves that are not of the newest tree
		n := 0
		victim = ""
		s := whole.spoiled(func(h *hostile) {
			leaves := h.inner[0]
			for i, a := range leaves {
				for _, at := range h.refs(a) {
					r := h.page(a)[at : at+refSize]
					if to := le.Uint64(r); le.Uint32(r[16:]) != 0 || le.Uint32(h.page(int(to))[runCRC+4:]) == 1 {
						continue
					}
					if n++; n > skip {
						victim = h.keyBefore(a, at)
						le.PutUint64(r, uint64(leaves[(i+len(leaves)/2)%len(leaves)]))
						return
					}
				}
			}
		})
		require.NotEmpty(t, victim)
		mem = s.mem(len(s.file))
		defer mem.Release()
		var err error
		db, err = openEngine(mem, crashPath, o)
		require.NoError(t, err)
		if err := db.Check(context.Background()); err == nil {
			require.NoError(t, db.Close())
			db = nil
		} else {
			require.ErrorIs(t, err, ErrCorrupt)
		}
	}
	defer func() { db.Close() }()

	var keys []string
	require.NoError(t, db.View(func(tx *Tx) error {
		c := tx.Cursor()
		for ok := c.First(); ok; ok = c.Next() {
			keys = append(keys, string(c.Key()))
		}
		return c.Err()
	}))
	require.NoError(t, db.Delete([]byte(victim)))
	require.NoError(t, db.Checkpoint())
	require.NoError(t, db.Close())

	db, err := openEngine(mem, crashPath, o) // the space map in the file determines what may be overwritten
	require.NoError(t, err)
	n := 0
	require.NoError(t, db.View(func(tx *Tx) error {
		c := tx.Cursor()
		for ok := c.First(); ok; ok = c.Next() {
			if n < len(keys) && keys[n] == victim {
				n++
			}
			require.Less(t, n, len(keys))
			require.Equal(t, keys[n], string(c.Key()))
			n++
		}
		return c.Err()
	}))
	require.Equal(t, len(keys), n)
	require.ErrorIs(t, db.Check(context.Background()), ErrCorrupt)
}
