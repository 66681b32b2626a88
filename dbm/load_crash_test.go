package dbm

import (
	"bytes"
	"fmt"
	"iter"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// TestLoadPowerCut simulates a power failure at every operation of the file system during a load, each in several
// ways. Afterwards the database has all records of the load or none; it has all of them if a reader has seen any,
// which may be before Load has returned. The file is intact, and another load of the same records takes no more
// space.
func TestLoadPowerCut(t *testing.T) {
	inTurn(t)
	records := loadRecords(1)
	mem := vfs.NewMem(0)
	defer mem.Release()
	opts := compacting(Durable)
	opts.Manual = true
	db, err := openEngine(mem, "db", opts)
	require.NoError(t, err)
	require.NoError(t, db.Put([]byte("gone"), make([]byte, 3000)))
	require.NoError(t, db.Delete([]byte("gone")))
	r := rand.New(rand.NewPCG(1, 2))
	ops, none, all, seen := 0, 0, 0, 0
	mem.OnOp(func(op vfs.Op) error {
		ops++
		there, err := db.Len()
		require.NoError(t, err)
		if there > 0 {
			seen++
		}
		images := 2
		if op.Kind == vfs.OpDatasync {
			images = 10
		}
		for i := range images {
			p := vfs.Policies()[r.IntN(len(vfs.Policies()))]
			if i%2 == 1 { // only the end of what was written is lost, and not its beginning
				p = vfs.KeepSuffix
			}
			image := mem.Crash(p, r.Uint64())
			if n := afterLoad(t, image, records, ops%8 == 0); n > 0 {
				all++
			} else {
				require.Zero(t, there, "what a reader has seen is durable")
				none++
			}
			image.Release()
		}
		return nil
	})
	require.NoError(t, db.Load(t.Context(), records, LoadOptions{Sorted: true}))
	mem.OnOp(nil)
	image := mem.Crash(vfs.KeepNone, 1)
	require.Positive(t, afterLoad(t, image, records, true), "what Load has returned from is durable")
	image.Release()
	require.NoError(t, db.Close())
	t.Logf("%d operations, %d images with nothing, %d with all", ops, none, all)
	require.Greater(t, none, 20)
	require.Positive(t, all)
	require.Positive(t, seen)
}

// loadRecords are records of all kinds.
func loadRecords(seed byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		for i := range 1500 {
			n := i % 150
			switch {
			case i%100 == 50:
				n = 9000
			case i%700 == 600, i == 1499:
				n = 200_000 // longer than a run can be in segments of 32 pages
			}
			if !yield(fmt.Appendf(nil, "key %08d", i), bytes.Repeat([]byte{seed}, n)) {
				return
			}
		}
	}
}

// afterLoad recovers an image and returns how many records it has, which must be all or none.
func afterLoad(t *testing.T, image *vfs.Mem, records iter.Seq2[[]byte, []byte], again bool) (n int64) {
	opts := compacting(Durable)
	opts.Manual = true
	db, err := openEngine(image, "db", opts)
	require.NoError(t, err)
	n, err = db.Len()
	require.NoError(t, err)
	require.NoError(t, db.Check(t.Context()))
	got := readAll(t, db)
	require.Len(t, got, int(n))
	if n > 0 {
		want := int64(0)
		for k, v := range records {
			require.True(t, bytes.Equal(v, got[string(k)]), "%s", k)
			want++
		}
		require.Equal(t, want, n)
	} else if again {
		require.NoError(t, db.Load(t.Context(), records, LoadOptions{Sorted: true}))
		require.NoError(t, db.Check(t.Context()))
		require.Less(t, db.Stats().FileBytes, int64(8<<20), "what was written in vain is used again")
	}
	require.NoError(t, db.Close())
	return n
}

// TestLoadFaults makes each operation of the file system fail in turn during a load. Load returns an error, and
// after the next open the database has no records of the load, or all of them if the failure came after its end.
func TestLoadFaults(t *testing.T) {
	records := loadRecords(2)
	for at := 1; ; at += 3 {
		mem := vfs.NewMem(0)
		opts := compacting(Durable)
		opts.Manual = true
		db, err := openEngine(mem, "db", opts)
		require.NoError(t, err)
		ops := 0
		mem.OnOp(func(op vfs.Op) error {
			if ops++; ops == at {
				return fmt.Errorf("operation %d: %w", at, vfs.ErrNoSpace)
			}
			return nil
		})
		err = db.Load(t.Context(), records, LoadOptions{Sorted: true})
		mem.OnOp(nil)
		if err == nil {
			require.Less(t, ops, at+50, "a failure was not seen")
		}
		_ = db.Close()
		image := mem.Crash(vfs.KeepNone, 1)
		n := afterLoad(t, image, records, true)
		require.True(t, err != nil || n > 0)
		image.Release()
		mem.Release()
		if ops < at {
			return
		}
	}
}
