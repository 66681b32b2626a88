package mvcc

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBoundGivesWayToBackups: what a backup holds is allowed above the bound while the backup runs, so no commit
// waits for room because of it.
func TestBoundGivesWayToBackups(t *testing.T) {
	const records, size = 4000, 1000
	e := newEngine(t, Options{Durability: Buffered})
	put := func() {
		for i := 0; i < records; i += 500 {
			tx := begin(t, e, TxOptions{})
			for j := range 500 {
				require.NoError(t, tx.Put(binary.BigEndian.AppendUint64(nil, uint64(i+j)), make([]byte, size-8)))
			}
			require.NoError(t, tx.Commit())
		}
		require.NoError(t, e.Checkpoint())
	}
	put()
	bound := func() (bound, without int64) {
		require.NoError(t, e.tree.withMerged(func() error {
			e.pressure.noteBound()
			bound, without = e.store.Bound(), e.pressure.boundBytes(e.store.SpaceStats())+e.pressure.crowd.raised
			return nil
		}))
		return bound, without
	}
	w := &heldWriter{begun: make(chan struct{}), goOn: make(chan struct{})}
	tx := begin(t, e, TxOptions{ReadOnly: true})
	written := make(chan error)
	go func() { written <- tx.WriteImage(context.Background(), w, nil) }()
	<-w.begun
	for range 3 {
		put()
	}
	held := e.store.HeldBytes()
	require.Greater(t, held, int64(records*size/2))
	with, without := bound()
	require.InDelta(t, held, with-without, 1<<20)
	close(w.goOn)
	require.ErrorIs(t, <-written, errHeldWriter)
	with, without = bound() // the transaction still holds it
	require.InDelta(t, 0, with-without, 1<<20)
	require.NoError(t, tx.Rollback())
}

var errHeldWriter = errors.New("enough")

// heldWriter fails once it may go on.
type heldWriter struct{ begun, goOn chan struct{} }

func (w *heldWriter) Write([]byte) (int, error) {
	close(w.begun)
	<-w.goOn
	return 0, errHeldWriter
}
