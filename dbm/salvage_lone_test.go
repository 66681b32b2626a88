package dbm

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/internal/salvage"
	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
)

// TestSalvageLoneRun: the headers of private segments that no checkpoint knows yet are lost. Each has a single page
// with the salt in its checksum, the first one of a value. One page is not enough to find the salt, but the value has
// its own checksum. A value whose own bytes are damaged is lost.
func TestSalvageLoneRun(t *testing.T) {
	inTurn(t)
	mem := vfs.NewMem(64 << 20)
	mem.WithoutCrashes()
	defer mem.Release()
	opts := privateOptions()
	db, err := openEngine(mem, salvagePath, opts)
	require.NoError(t, err)
	value := func(i int) []byte { return sized(33_000, byte(i)) } // more than half of a segment
	require.NoError(t, db.Update(func(tx *Tx) error {
		for i := range privateRecords {
			if err := tx.Put(privateKey(i), value(i)); err != nil {
				return err
			}
		}
		return nil
	}))
	file := fileBytes(t, mem)
	require.NoError(t, db.Close())
	private := map[uint64]int{}
	eachSoundPage(t, file, func(a uint64, x logstore.PageHead, _ uint64) {
		if x.No == 0 {
			private[a/uint64(opts.Store.SegmentPages)]++
		}
	})
	require.Len(t, private, privateRecords)
	for n := range private {
		clear(file[n*uint64(opts.Store.SegmentPages)*logstore.PageSize:][:logstore.PageSize])
	}
	for damaged := range 2 {
		records, _, err := salvageBytes(t, file, salvage.Options{})
		require.NoError(t, err)
		require.Len(t, records, privateRecords-damaged)
		for key, r := range records {
			i, err := strconv.Atoi(key)
			require.NoError(t, err)
			require.Equal(t, string(value(i)), string(r.value), key)
			if damaged == 0 && key == "007" {
				file[r.ref.ID*logstore.PageSize+5000] ^= 1
			}
		}
	}
}
