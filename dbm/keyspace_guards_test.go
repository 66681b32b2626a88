package dbm

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// TestKeyspaceGuards: a transaction has asked for a keyspace and read nothing. It loses to a transaction that has
// dropped or renamed the keyspace, and to no other, although all keys have the same slot in the table of last writes
// here.
func TestKeyspaceGuards(t *testing.T) {
	mem := vfs.NewMem(0)
	defer mem.Release()
	opts := compacting(Buffered)
	opts.Manual, opts.LastSlots = true, 1
	db, err := openEngine(mem, "db", opts)
	require.NoError(t, err)
	put := func(space string) func() error {
		return func() error { return db.Keyspace(space).Put([]byte("k"), []byte(space)) }
	}
	one := func(yield func(k, v []byte) bool) { yield([]byte("k"), []byte("loaded")) }
	for name, c := range map[string]struct {
		meanwhile func() error
		lost      bool
	}{
		"another key":       {meanwhile: put("b")},
		"default keyspace":  {meanwhile: func() error { return db.Put([]byte("k"), nil) }},
		"the same key":      {meanwhile: put("a")},
		"another keyspace":  {meanwhile: func() error { return db.RenameKeyspace("b", "c") }},
		"renamed":           {meanwhile: func() error { return db.RenameKeyspace("a", "c") }, lost: true},
		"renamed and back":  {meanwhile: func() error { return cmpErr(db.RenameKeyspace("a", "c"), db.RenameKeyspace("c", "a")) }},
		"dropped":           {meanwhile: func() error { return db.DropKeyspace("a") }, lost: true},
		"dropped, made new": {meanwhile: func() error { return cmpErr(db.DropKeyspace("a"), db.CreateKeyspace("a")) }, lost: true},
		"loaded anew":       {meanwhile: func() error { return db.Keyspace("a").Load(t.Context(), one, LoadOptions{Replace: true}) }, lost: true},
	} {
		for kind, do := range map[string]func(tx *Tx) error{
			"put": func(tx *Tx) error {
				in, err := tx.Keyspace("a")
				return cmpErr(err, in.Put([]byte("k"), []byte("mine")))
			},
			"drop": func(tx *Tx) error { return tx.DropKeyspace("a") },
			"make": func(tx *Tx) error {
				err := tx.DropKeyspace("a")
				if err == nil {
					_, err = tx.CreateKeyspace("a")
				}
				return err
			},
		} {
			require.NoError(t, cmpErr(db.CreateKeyspace("a"), db.CreateKeyspace("b"), put("a")()), name)
			tx, err := db.Begin(TxOptions{})
			require.NoError(t, err)
			require.NoError(t, do(tx), kind)
			require.NoError(t, c.meanwhile(), name)
			for i := range 3 {
				require.NoError(t, db.Put(fmt.Append(nil, i), nil))
			}
			lost := c.lost || kind == "make" && (name == "loaded anew" || name == "dropped, made new") // it has taken the next number, too
			requireLost(t, lost, tx.Commit())
			names, err := db.Keyspaces()
			require.NoError(t, err)
			for _, left := range names {
				require.NoError(t, db.DropKeyspace(left))
			}
		}
	}

	require.NoError(t, cmpErr(db.CreateKeyspace("a"), db.CreateKeyspace("b")))
	tx, err := db.Begin(TxOptions{})
	require.NoError(t, err)
	_, err = tx.CreateKeyspace("x")
	require.NoError(t, err)
	require.NoError(t, db.CreateKeyspace("y"))
	require.ErrorIs(t, tx.Commit(), ErrConflict, "both are to get the next number")

	for _, o := range []LoadOptions{{}, {Sorted: true}, {Replace: true}, {Sorted: true, Replace: true}} {
		require.NoError(t, db.Keyspace("a").Load(t.Context(), func(yield func(k, v []byte) bool) {
			for i := range 100 {
				require.NoError(t, cmpErr(db.Put(fmt.Append(nil, i), nil), put("b")()))
				if !yield(fmt.Appendf(nil, "%03d", i), nil) {
					return
				}
			}
		}, o), "%+v", o)
		n, err := db.Keyspace("a").Len()
		require.NoError(t, err)
		require.EqualValues(t, 100, n)
	}
	require.NoError(t, db.Check(t.Context()))
	require.NoError(t, db.Close())
}
