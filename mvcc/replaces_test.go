package mvcc

import (
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/internal/writeset"
)

// TestReplacesOnly: only deletes, and values that are not longer than the present ones, count as replacements.
func TestReplacesOnly(t *testing.T) {
	e := newEngine(t, Options{Manual: true})
	require.NoError(t, e.WriteOne([]byte("a"), []byte("four"), false))
	require.NoError(t, e.WriteOne([]byte("b"), nil, false))
	for _, c := range []struct {
		name string
		do   func(w *writeset.Set)
		want bool
	}{
		{"the same length", func(w *writeset.Set) { w.Put([]byte("a"), []byte("five")) }, true},
		{"shorter", func(w *writeset.Set) { w.Put([]byte("a"), nil) }, true},
		{"longer", func(w *writeset.Set) { w.Put([]byte("a"), []byte("longer")) }, false},
		{"an empty key that is not there", func(w *writeset.Set) { w.Put([]byte("c"), nil) }, false},
		{"deleted, there or not", func(w *writeset.Set) { w.Delete([]byte("a")); w.Delete([]byte("c")) }, true},
		{"one of several is new", func(w *writeset.Set) { w.Put([]byte("a"), nil); w.Put([]byte("b"), nil); w.Put([]byte("c"), nil) }, false},
		{"all of several are there", func(w *writeset.Set) { w.Put([]byte("a"), nil); w.Put([]byte("b"), nil); w.Delete([]byte("c")) }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			tx := begin(t, e, TxOptions{})
			defer tx.Rollback()
			c.do(tx.writes())
			same, err := e.admission.replacesOnly(tx)
			require.NoError(t, err)
			require.Equal(t, c.want, same)
		})
	}
}
