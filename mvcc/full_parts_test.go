package mvcc

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
)

// TestFullDeviceWithParts: while flushes are incremental and the device has much free space, room is reserved for two
// parts only. In this test the device suddenly has no space.
func TestFullDeviceWithParts(t *testing.T) {
	inTurn(t)
	t.Parallel()
	seeds := uint64(6)
	if testing.Short() {
		seeds = 1
	}
	for _, d := range []Durability{Durable, Buffered} {
		for seed := range seeds {
			t.Run(fmt.Sprint(d, seed), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 1))
				mem := vfs.NewMem(0)
				defer mem.Release()
				opts := Options{Durability: d, Manual: true, MemoryLimit: 64 << 20, RedoLimit: 1 << 30, Store: logstore.Options{SegmentPages: 8}}
				opts.PartBytes = 64 << 10
				e := openOn(t, mem, opts)
				defer e.Close()
				const records = 4000
				key := func(i int) []byte { return fmt.Appendf(nil, "%06d", i) }
				change := func(n int, do func(tx *Tx, i int) error) error {
					tx := begin(t, e, TxOptions{})
					for range n {
						if err := do(tx, rng.IntN(records)); err != nil {
							require.NoError(t, tx.Rollback())
							return err
						}
					}
					return tx.Commit()
				}
				overwrite := func(tx *Tx, i int) error { return tx.Put(key(i), bytes.Repeat([]byte{byte(i)}, 400)) }
				tx := begin(t, e, TxOptions{})
				for i := range records {
					require.NoError(t, overwrite(tx, i))
				}
				require.NoError(t, tx.Commit())
				require.NoError(t, e.Compact(t.Context(), nil))
				file := int64(e.store.End()) * logstore.PageSize
				mem.SetMaxBytes(file + file*int64(1+rng.IntN(16))/8)
				done := 0
				for ; done < 1000; done++ {
					if err := change(20, overwrite); err != nil {
						require.ErrorIs(t, err, logstore.ErrFull)
						break
					}
					if rng.IntN(20) == 0 {
						if err := e.Housekeep(); err != nil {
							require.ErrorIs(t, err, logstore.ErrFull)
						}
					}
				}
				t.Logf("%d commits, dirty %d, parts %d, %+v", done, e.pages.DirtyBytes()>>12, e.pages.Stats().Parts, e.store.SpaceStats())
				for range 5 {
					require.NoError(t, change(1, func(tx *Tx, i int) error { return tx.Delete(key(i)) }))
				}
				require.NoError(t, e.Checkpoint())
				require.NoError(t, e.Check(context.Background()))
			})
		}
	}
}

// TestPlentyComesToAnEnd: before a device that had much free space is full, room is reserved for everything dirty.
func TestPlentyComesToAnEnd(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("fills 112 MiB twice")
	}
	for _, d := range []Durability{Durable, Buffered} {
		t.Run(fmt.Sprint(d), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, uint64(d)))
			mem := vfs.NewMem(0)
			defer mem.Release()
			mem.SetMaxBytes(plentyLeast + 48<<20)
			opts := Options{Durability: d, Manual: true, MemoryLimit: 64 << 20, RedoLimit: 16 << 20, Store: logstore.Options{SegmentPages: 64}}
			opts.PartBytes, opts.KeepInline = 256<<10, true // many leaves
			e := openOn(t, mem, opts)
			defer e.Close()
			key := func(i int) []byte { return fmt.Appendf(nil, "%08d", uint32(i)*2654435761>>4) }
			records, unheld, held := 0, 0, 0
			for {
				tx := begin(t, e, TxOptions{})
				fresh := 20
				if held > 100 { // larger transactions from here on fill the device sooner
					fresh = 80
				}
				for range fresh {
					require.NoError(t, tx.Put(key(records), make([]byte, 1000)))
					records++
				}
				for range 80 - fresh {
					require.NoError(t, tx.Put(key(rng.IntN(records)), make([]byte, 1000)))
				}
				if err := tx.Commit(); err != nil {
					require.ErrorIs(t, err, logstore.ErrFull)
					records -= fresh
					break
				}
				if e.pressure.unwritten() < e.pages.DirtyBytes()/logstore.PageSize {
					unheld++
				} else {
					held++
				}
				if rng.IntN(10) == 0 {
					if err := e.Housekeep(); err != nil {
						require.ErrorIs(t, err, logstore.ErrFull)
					}
				}
			}
			t.Logf("%d records, %d commits with pages that no room was held for, %d parts, %+v", records, unheld, e.pages.Stats().Parts, e.store.SpaceStats())
			require.Greater(t, unheld, 10)
			for range 50 {
				tx := begin(t, e, TxOptions{})
				require.NoError(t, tx.Delete(key(rng.IntN(records))))
				require.NoError(t, tx.Commit())
			}
			require.NoError(t, e.Checkpoint())
			require.NoError(t, e.Check(t.Context()))
		})
	}
}
