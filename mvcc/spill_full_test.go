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

// TestDeletesSpillOnAFullFile: a transaction that only deletes has room on a full file, even if its write set has to
// be spilled. The write set of a small one stays in memory. Private segments of deletes use the room reserved for
// deletes, not the room for puts.
func TestDeletesSpillOnAFullFile(t *testing.T) {
	t.Parallel()
	seeds := uint64(5)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 9))
		deletesOnAFullFile(t, rng, 20_000+rng.IntN(20_000), 3, 30+rng.IntN(30), 16, true)
		deletesOnAFullFile(t, rng, rng.IntN(5000), 2, 8+rng.IntN(8), 8, false)
	}
}

// deletesOnAFullFile fills a file of the given size with records of long keys, and deletes them, several at a time.
func deletesOnAFullFile(t *testing.T, rng *rand.Rand, long, each, segments int, pages uint32, layers bool) {
	mem := vfs.NewMem(0)
	defer mem.Release()
	opts := tiny(Durable)
	opts.Manual, opts.Store.SegmentPages, opts.Shares.WriteSets = true, pages, 256
	opts.Store.MaxFileSize = int64(segments) * int64(pages) * logstore.PageSize
	e := openOn(t, mem, opts)
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
	var spilled, stayed int
	for i := 0; i < n; i += each {
		tx := begin(t, e, TxOptions{})
		for k := i; k < min(i+each, n); k++ {
			require.NoError(t, tx.Delete(key(k)), "record %d of %d", k, n)
		}
		if tx.set.Spilled() != nil {
			spilled++
		} else {
			stayed++
		}
		require.NoError(t, tx.Commit(), "record %d of %d", i, n)
	}
	t.Logf("%d segments of %d pages, keys of %d bytes: %d records; %d times deletes in layers, %d times not", segments, pages, long, n, spilled, stayed)
	if n > each {
		require.NotZero(t, map[bool]int{true: spilled, false: stayed}[layers])
	}
	require.NoError(t, e.Check(t.Context()))
	put(t, e, "new", "value")
	require.NoError(t, e.Close())
}
