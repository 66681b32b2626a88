package mvcc

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
)

// TestBackgroundWritesAreShort: fdatasync waits for all dirty pages of the file, so a flush and a checkpoint hand the system few pages at a
// time, and between them lay the baton down for commits.
func TestBackgroundWritesAreShort(t *testing.T) {
	const part = 64 // pages
	mem := vfs.NewMem(0)
	defer mem.Release()
	turns := 0
	e := openOn(t, mem, Options{Durability: Durable, Manual: true, Step: func(p StepPoint) { turns++ }})
	for i := range 40 {
		tx := begin(t, e, TxOptions{})
		for j := range 500 {
			require.NoError(t, tx.Put(fmt.Appendf(nil, "%06d", (i*500+j)*7919%100003), make([]byte, 200)))
		}
		require.NoError(t, tx.Commit())
	}
	var since, most, all int64
	at := 0
	mem.OnOp(func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite || op.Kind == vfs.OpWriteVec {
			if turns != at {
				at, since = turns, 0
			}
			since += op.Len / logstore.PageSize
			all += op.Len / logstore.PageSize
			most = max(most, since)
		}
		return nil
	})
	require.NoError(t, e.Checkpoint())
	mem.OnOp(nil)
	require.Greater(t, all, int64(10*part), "too little is dirty")
	require.LessOrEqual(t, most, int64(part+4), "a part, its list and headers")
	require.NoError(t, e.Close())
}
