package dbm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestKeyspaceDroppedWithin: a transaction that has dropped a keyspace cannot use it any more, by any of its methods.
func TestKeyspaceDroppedWithin(t *testing.T) {
	db := newSpaced(t, nil)
	require.NoError(t, db.CreateKeyspace("a"))
	require.NoError(t, db.Keyspace("a").Put([]byte("k"), []byte("v")))
	require.NoError(t, db.EnableExpiry())
	key := []byte("k")
	for name, use := range map[string]func(h *Tx, c *Cursor) error{
		"Get":            func(h *Tx, _ *Cursor) error { _, err := h.Get(key); return err },
		"Has":            func(h *Tx, _ *Cursor) error { _, err := h.Has(key); return err },
		"TTL":            func(h *Tx, _ *Cursor) error { _, _, err := h.TTL(key); return err },
		"Len":            func(h *Tx, _ *Cursor) error { _, err := h.Len(); return err },
		"ValueReader":    func(h *Tx, _ *Cursor) error { _, _, err := h.ValueReader(key); return err },
		"Put":            func(h *Tx, _ *Cursor) error { return h.Put(key, nil) },
		"PutTTL":         func(h *Tx, _ *Cursor) error { return h.PutTTL(key, nil, time.Hour) },
		"Insert":         func(h *Tx, _ *Cursor) error { return h.Insert([]byte("l"), nil) },
		"Increment":      func(h *Tx, _ *Cursor) error { _, err := h.Increment([]byte("n"), 1); return err },
		"Append":         func(h *Tx, _ *Cursor) error { return h.Append(key, nil) },
		"GetAndPut":      func(h *Tx, _ *Cursor) error { _, err := h.GetAndPut(key, nil); return err },
		"CompareAndSwap": func(h *Tx, _ *Cursor) error { _, err := h.CompareAndSwap(key, nil, nil); return err },
		"Delete":         func(h *Tx, _ *Cursor) error { return h.Delete(key) },
		"DeleteRange":    func(h *Tx, _ *Cursor) error { return h.DeleteRange(nil, nil) },
		"All": func(h *Tx, _ *Cursor) error {
			for range h.All() {
				t.Error("All shows a record")
			}
			return h.Err()
		},
		"Backward": func(h *Tx, _ *Cursor) error {
			for range h.Backward(nil, nil) {
				t.Error("Backward shows a record")
			}
			return h.Err()
		},
		"Keys": func(h *Tx, _ *Cursor) error {
			for range h.Keys(nil, nil) {
				t.Error("Keys shows a record")
			}
			return h.Err()
		},
		"Cursor": func(h *Tx, _ *Cursor) error {
			c := h.Cursor()
			if c.First() || c.Last() || c.Seek(nil) {
				t.Error("a new cursor shows a record")
			}
			return c.Err()
		},
		"a cursor from before": func(_ *Tx, c *Cursor) error {
			if c.Next() || c.First() {
				t.Error("a cursor from before shows a record")
			}
			return c.Err()
		},
		"Cursor.Delete": func(_ *Tx, c *Cursor) error { return c.Delete() },
	} {
		tx, err := db.Begin(TxOptions{})
		require.NoError(t, err)
		h, err := tx.Keyspace("a")
		require.NoError(t, err)
		c := h.Cursor()
		require.True(t, c.First())
		require.NoError(t, tx.DropKeyspace("a"))
		if err := use(h, c); err == nil {
			t.Errorf("%s of a dropped keyspace: no error", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
		require.NoError(t, tx.Rollback())
	}
}
