package dbm

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
)

// TestSharedLists: a redo record that names the extents of one layer many times is refused before it takes memory.
func TestSharedLists(t *testing.T) {
	// With 400 keys, the segment past the end of the log is in use, which is reported first.
	s := tallOf(t, 410, false).spoiled(func(h *hostile) {
		lists := h.lists()
		require.NotEmpty(t, lists)
		run := h.page(lists[0])
		const extents = (logstore.PageSize - runPayload - 4) / extentBytes // of one page each
		for i := range extents {
			le.PutUint64(run[runPayload+i*extentBytes:], uint64(3+i))
			le.PutUint32(run[runPayload+i*extentBytes+8:], 1)
		}
		le.PutUint32(run[runPayload+extents*extentBytes:], extents)
		le.PutUint64(run[runLength:], extents*extentBytes+4)
		newest := h.newestRecord()
		h.layers(newest, lists[0], 500)
		h.endAt(newest)
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
		if mode == "writing" { // an open for writing finds what was there before the end of the log, and uses it
			require.ErrorContains(t, err, "lies behind the end of the log", mode)
		} else {
			require.ErrorContains(t, err, "a second reference leads here", mode)
		}
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(4<<20), mode)
	}
}

// TestSalvageSharedLists: salvage reads a list only once even if a redo record names it many times.
func TestSalvageSharedLists(t *testing.T) {
	took := map[int]int64{}
	for _, times := range []int{1, 500} {
		s := tall(t, false).spoiled(func(h *hostile) {
			newest := h.newestRecord()
			h.layers(newest, h.lists()[0], times)
			h.endAt(newest)
		})
		for try := range 3 { // take the least of three, as a collection may have freed memory that is kept for later use and has to be allocated again
			mem := s.mem(len(s.file))
			before := allocated()
			require.NoError(t, s.use(mem, rand.New(rand.NewPCG(1, 1)), "salvaged"))
			if n := allocated() - before; try == 0 || n < took[times] {
				took[times] = n
			}
			mem.Release()
		}
	}
	require.Less(t, took[500], took[1]+500*logstore.PageSize/2)
}

// TestSalvageExtentsElsewhere: a large value with an extent beyond its segment or beyond the file is lost, and
// nothing else is.
func TestSalvageExtentsElsewhere(t *testing.T) {
	whole := tall(t, true)
	for _, extent := range []struct {
		addr  uint64
		bytes uint32
	}{{1, math.MaxUint32}, {3, 64 << 20}, {math.MaxUint64, 1}, {math.MaxUint64, 1 << 20}, {1 << 40, 1 << 20}, {0, 0}} {
		s := whole.spoiled(func(h *hostile) {
			for _, a := range h.lists() {
				x := h.file[a*logstore.PageSize+runPayload+int(le.Uint64(h.page(a)[runLength:]))-4-extentBytes:]
				le.PutUint64(x, extent.addr)
				le.PutUint32(x[8:], extent.bytes)
			}
		})
		mem := s.mem(len(s.file))
		require.NoError(t, s.use(mem, rand.New(rand.NewPCG(1, 1)), "salvaged"))
		mem.Release()
	}
}

// TestHostileDeaths: a redo in which many values of 4 GiB die must not allocate lists of all their pages.
func TestHostileDeaths(t *testing.T) {
	s := tall(t, false).spoiled(func(h *hostile) {
		newest := h.newestRecord()
		h.lost(newest, 200)
		h.endAt(newest)
	})
	mem := s.mem(len(s.file))
	defer mem.Release()
	rng := rand.New(rand.NewPCG(1, 1))
	for range 2 {
		require.NoError(t, s.use(mem, rng, "writing"))
	}
}

// TestSharedValues: all records refer to the same value. Check reports the second reference, and deleting all
// records reads the value's list only once.
func TestSharedValues(t *testing.T) {
	inTurn(t)
	for _, closed := range []bool{true, false} {
		t.Run(fmt.Sprint(closed), func(t *testing.T) {
			s := tall(t, closed).spoiled(func(h *hostile) {
				first := []byte(nil)
				n := 0
				for _, a := range h.inner[0] {
					for _, at := range h.refs(a) {
						r := h.page(a)[at : at+refSize]
						if list := h.page(int(le.Uint64(r) % uint64(len(h.file)/logstore.PageSize))); le.Uint32(list[runCRC+4:]) != 1 {
							continue
						}
						if first == nil {
							first = bytes.Clone(r[:16])
						}
						copy(r, first)
						n++
					}
				}
				require.Greater(t, n, 1)
			})
			mem := s.mem(len(s.file))
			defer mem.Release()
			rng := rand.New(rand.NewPCG(1, 1))
			for _, readOnly := range []bool{true, false} {
				require.NoError(t, s.use(mem, rng, map[bool]string{true: "read-only", false: "writing"}[readOnly]))
			}
			for _, readOnly := range []bool{true, false} {
				again := s.mem(len(s.file))
				defer again.Release()
				o := s.load.options(rng)
				o.Store.ReadOnly = readOnly
				db, err := openEngine(again, crashPath, o)
				require.NoError(t, err)
				defer db.Close()
				err = db.Check(context.Background())
				require.ErrorIs(t, err, ErrCorrupt)
				require.ErrorContains(t, err, "a second reference leads here")
			}
		})
	}
}
