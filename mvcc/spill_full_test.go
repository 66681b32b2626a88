package mvcc

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
)

// TestDeletesSpillOnAFullFile: a transaction that only deletes has room on a full file, also where its write set does not stay in memory.
// What that takes in segments of its own counts as what deletes take, not as puts; and tries for which there is no room leave nothing.
func TestDeletesSpillOnAFullFile(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 9))
		mem := vfs.NewMem(0)
		opts := tiny(Durable)
		opts.Manual, opts.Store.SegmentPages, opts.Shares.WriteSets = true, 16, 4<<10
		opts.Store.MaxFileSize = int64(11+rng.IntN(30)) * 16 * logstore.PageSize
		e := openOn(t, mem, opts)
		long := rng.IntN(20_000)
		key := func(i int) []byte { return append(fmt.Appendf(nil, "%05d", i), bytes.Repeat([]byte("l"), long)...) }
		n := 0
		for ; ; n++ {
			tx := begin(t, e, TxOptions{})
			err := tx.Put(key(n), make([]byte, rng.IntN(3000)))
			if err == nil {
				err = tx.Commit()
			} else {
				require.NoError(t, tx.Rollback())
			}
			if err != nil {
				require.ErrorIs(t, err, logstore.ErrFull)
				break
			}
		}
		spilled := 0
		for i := 0; i < n; i += 2 {
			tx := begin(t, e, TxOptions{})
			for k := i; k < min(i+2, n); k++ {
				require.NoError(t, tx.Delete(key(k)), "seed %d, record %d of %d", seed, k, n)
			}
			if tx.set.spill != nil {
				spilled++
			}
			require.NoError(t, tx.Commit(), "seed %d, record %d of %d", seed, i, n)
		}
		t.Logf("seed %d: keys of %d bytes, %d records, %d deletes in layers", seed, long, n, spilled)
		require.NoError(t, e.Check(t.Context()))
		put(t, e, "new", "value")
		require.NoError(t, e.Close())
		mem.Release()
	}
}
