package mvcc

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOverwrittenInOneTransaction: values that a transaction has written and then overwrites or deletes take no room,
// neither in the reservation of its commit nor in private segments. The size limit of the file is a fraction of all
// that is written.
func TestOverwrittenInOneTransaction(t *testing.T) {
	for name, c := range map[string]struct{ bytes, times int }{
		"in runs":             {3000, 20_000},
		"in longer runs":      {100 << 10, 1000},
		"in private segments": {3 << 20, 40},
	} {
		t.Run(name, func(t *testing.T) {
			opts := Options{Durability: Buffered, Manual: true}
			opts.Store.MaxFileSize = 48 << 20
			e := newEngine(t, opts)
			tx := begin(t, e, TxOptions{})
			value := bytes.Repeat([]byte{'v'}, c.bytes)
			for i := range c.times {
				value[0] = byte(i)
				require.NoError(t, tx.Put([]byte("key"), value), i)
				if i%3 == 0 {
					require.NoError(t, tx.Put([]byte("other"), value), i)
					require.NoError(t, tx.Delete([]byte("other")), i)
				}
			}
			require.Less(t, tx.set.Bytes(), int64(6<<20), "memory of what was overwritten")
			require.LessOrEqual(t, len(tx.large), 1)
			require.Less(t, tx.e.admission.estimate(tx), int64(200))
			require.NoError(t, tx.Commit())
			view := begin(t, e, TxOptions{ReadOnly: true})
			require.True(t, get(t, view, "key") == string(value))
			require.NoError(t, view.Rollback())
			require.NoError(t, e.Checkpoint())
			require.NoError(t, e.Check(t.Context()))
		})
	}
}

// TestReaderOfOverwrittenValue: a transaction has streamed a value to private segments and opened a reader of it. The
// reader can read all of the value after the transaction has overwritten it.
func TestReaderOfOverwrittenValue(t *testing.T) {
	e := newEngine(t, Options{Durability: Buffered, Manual: true})
	tx := begin(t, e, TxOptions{})
	first := bytes.Repeat([]byte("1st "), 1<<20)
	require.NoError(t, tx.Put([]byte("key"), first))
	r, _, ok, err := tx.ValueReader([]byte("key"))
	require.NoError(t, err)
	require.True(t, ok)
	for i := range 4 { // each takes the first free segments
		require.NoError(t, tx.Put([]byte("key"), bytes.Repeat(fmt.Appendf(nil, "%4d", i), 1<<20)))
	}
	got, err := io.ReadAll(r)
	require.NoError(t, err)
	require.True(t, bytes.Equal(first, got))
	require.NoError(t, tx.Commit())
	require.NoError(t, e.Check(t.Context()))
}

// TestReadersThatAreDone: a value that its own transaction has written and read takes no room after the transaction
// overwrites it, if all readers of the value are at the end or closed.
func TestReadersThatAreDone(t *testing.T) {
	for name, read := range map[string]func(r io.Reader) error{
		"to the end": func(r io.Reader) error { _, err := io.Copy(io.Discard, r); return err },
		"as long as it is": func(r io.Reader) error {
			_, err := io.ReadFull(r, make([]byte, 3<<20))
			return err
		},
		"closed": func(r io.Reader) error {
			_, err := io.ReadFull(r, make([]byte, 10))
			require.NoError(t, r.(io.Closer).Close())
			n, end := r.Read(make([]byte, 10))
			require.Zero(t, n)
			require.Equal(t, io.EOF, end)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, Options{Durability: Buffered, Manual: true})
			tx := begin(t, e, TxOptions{})
			value := bytes.Repeat([]byte{'v'}, 3<<20)
			for range 4 {
				require.NoError(t, tx.Put([]byte("key"), value))
				for range 2 {
					r, _, ok, err := tx.ValueReader([]byte("key"))
					require.NoError(t, err)
					require.True(t, ok)
					require.NoError(t, read(r))
				}
				require.Len(t, tx.large, 1)
			}
			require.NoError(t, tx.Commit())
			require.NoError(t, e.Check(t.Context()))
		})
	}
}
