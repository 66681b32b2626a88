package dbm

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
)

// TestSharedLists: a redo record that names the extents of one layer again and again is refused before it takes memory.
func TestSharedLists(t *testing.T) {
	s := tall(t, false).spoiled(func(h *hostile) {
		found := 0
		for _, a := range h.kinds[logstore.KindRecord] {
			const layer, count = 6, 28 // code of the record, offset in the mux area
			body := h.page(a)[logstore.MuxSize:]
			if body[0] != layer || h.page(a)[5]&1 == 0 {
				continue
			}
			found++
			_, n := binary.Uvarint(body[1:])
			list := bytes.Clone(body[1+n : 1+n+8])
			clear(body)
			const times = 500
			body[0] = layer
			at := 1 + binary.PutUvarint(body[1:], times)
			for i := range times {
				copy(body[at+8*i:], list)
			}
			le.PutUint64(h.page(a)[count:], 1)
			run := h.page(int(le.Uint64(list)))
			const extents = (logstore.PageSize - runPayload - 4) / extentBytes
			e := bytes.Clone(run[runPayload : runPayload+extentBytes])
			for i := range extents {
				copy(run[runPayload+i*extentBytes:], e)
				le.PutUint64(run[runPayload+i*extentBytes:], le.Uint64(e)+uint64(i%2)) // seem to differ
			}
			le.PutUint32(run[runPayload+extents*extentBytes:], extents)
			le.PutUint64(run[runLength:], extents*extentBytes+4)
		}
		require.NotZero(t, found, "no redo of layers")
	})
	mem := s.mem(len(s.file))
	defer mem.Release()
	for _, mode := range []string{"read-only", "beside", "writing"} {
		o := s.load.options(rand.New(rand.NewPCG(1, 1)))
		o.Store.ReadOnly, o.Store.Beside = mode != "writing", mode == "beside"
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := openEngine(mem, crashPath, o)
		runtime.ReadMemStats(&after)
		require.ErrorIs(t, err, ErrCorrupt, mode)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8<<20), mode)
	}
}

// TestSharedValues: records that all have the same value, by reference. Check finds it at the second one, and deleting them all reads its
// list once.
func TestSharedValues(t *testing.T) {
	for _, closed := range []bool{true, false} {
		t.Run(fmt.Sprint(closed), func(t *testing.T) {
			s := tall(t, closed).spoiled(func(h *hostile) {
				first := []byte(nil)
				n := 0
				for _, a := range h.inner[0] {
					for _, at := range h.refs(a) {
						r := h.page(a)[at : at+refSize]
						if first == nil {
							first = bytes.Clone(r[:16])
						}
						copy(r, first)
						n++
					}
				}
				require.Greater(t, n, 2)
			})
			mem := s.mem(len(s.file))
			defer mem.Release()
			rng := rand.New(rand.NewPCG(1, 1))
			for _, readOnly := range []bool{true, false} {
				require.NoError(t, s.use(mem, rng, readOnly, false))
			}
			o := s.load.options(rng)
			db, err := openEngine(mem, crashPath, o)
			require.NoError(t, err)
			defer db.Close()
			require.ErrorIs(t, db.Check(context.Background()), ErrCorrupt)
		})
	}
}
