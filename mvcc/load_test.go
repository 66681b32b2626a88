package mvcc

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLoadOfASourceThatFails: a source that fails cancels the context and then ends as if it had no more records. The
// records that it has returned are not taken for all records.
func TestLoadOfASourceThatFails(t *testing.T) {
	e := newEngine(t, Options{Manual: true})
	ctx, fail := context.WithCancelCause(t.Context())
	chunks := [][]LoadRecord{{{Key: []byte("a")}, {Key: []byte("b")}}}
	_, err := e.LoadEmpty(ctx, func() (records []LoadRecord, err error) {
		if len(chunks) == 0 {
			fail(os.ErrDeadlineExceeded)
			return nil, nil
		}
		records, chunks = chunks[0], chunks[1:]
		return records, nil
	})
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	view := begin(t, e, TxOptions{ReadOnly: true})
	n, err := view.Len()
	require.NoError(t, err)
	require.Zero(t, n)
	require.NoError(t, view.Rollback())
}
