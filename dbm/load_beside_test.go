package dbm

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// TestBesideAGivenUpLoad: a load fails while a reader runs beside the writer. The reader goes on to later commits: the
// parts that the load has left in the log do not block it.
func TestBesideAGivenUpLoad(t *testing.T) {
	mem := vfs.NewMem(1 << 30)
	mem.WithoutCrashes()
	defer mem.Release()
	db, err := open(mem, "db", nil)
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.Checkpoint())
	reader, err := openBeside(mem, "db", (&Options{ReadOnly: true, Beside: true}).engine())
	require.NoError(t, err)
	defer reader.Close()
	var full bytes.Buffer
	before, err := reader.Backup(t.Context(), &full)
	require.NoError(t, err)
	err = db.Load(t.Context(), func(yield func(k, v []byte) bool) {
		for i := range 20_000 {
			if !yield(fmt.Appendf(nil, "%06d", i), make([]byte, 1000)) {
				return
			}
		}
		yield([]byte("000000"), nil)
	}, LoadOptions{Sorted: true})
	require.ErrorIs(t, err, ErrOrder)
	for n := range 3 {
		require.NoError(t, db.Put(fmt.Appendf(nil, "%d", n), nil))
		now, err := reader.BackupSince(t.Context(), before, &bytes.Buffer{})
		require.NoError(t, err)
		require.NotEqual(t, before, now)
		before = now
	}
}
