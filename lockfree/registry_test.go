package lockfree

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestRegistryScan(t *testing.T) {
	var r Registry
	var watermark atomic.Uint64
	scan := func() []uint64 {
		pins, horizon := r.Scan(nil, &watermark)
		require.Equal(t, pins[0], horizon)
		return pins
	}
	require.Equal(t, []uint64{0}, scan())

	at := map[uint64]Slot{}
	for _, seq := range []uint64{0, 7, 7, 3, 9} {
		watermark.Store(max(watermark.Load(), seq))
		if s := r.AcquireAt(seq); seq != 7 || at[7] == (Slot{}) {
			at[seq] = s
		}
	}
	require.Equal(t, []uint64{0, 3, 7, 9}, scan(), "sorted, distinct, ending with the watermark")
	watermark.Store(20)
	require.Equal(t, []uint64{0, 3, 7, 9, 20}, scan())

	var above atomic.Uint64
	above.Store(25)
	s := r.Acquire(&above)
	require.Equal(t, uint64(25), s.Seq())
	require.Equal(t, []uint64{0, 3, 7, 9, 20}, scan(), "values above the watermark need not be told")

	at[0].Release()
	at[3].Release()
	at[7].Release()
	require.Equal(t, []uint64{7, 9, 20}, scan(), "one of two readers at 7 is left")
	require.Equal(t, 3, r.Count())

	buf := make([]uint64, 100)
	pins, _ := r.Scan(buf, &watermark)
	require.Equal(t, []uint64{7, 9, 20}, pins)
	require.Same(t, &buf[0], &pins[0])
}

func TestPinned(t *testing.T) {
	pins := []uint64{3, 7, 20}
	for _, c := range []struct {
		from, to uint64
		want     bool
	}{
		{0, 3, false}, {0, 4, true}, {3, 4, true}, {4, 7, false}, {4, 8, true}, {7, 8, true},
		{8, 20, false}, {8, 21, true}, {20, 21, true},
		{21, 22, true}, // readers to come
		{5, 5, false}, {6, 5, false}, {7, 7, false},
	} {
		require.Equal(t, c.want, Pinned(pins, c.from, c.to), "[%d, %d)", c.from, c.to)
	}
}

// TestScanForgetsUnsettledValue scans while an Acquire has stored a value that the watermark has already passed, and
// that is below the horizon of an earlier scan.
func TestScanForgetsUnsettledValue(t *testing.T) {
	var r Registry
	var watermark atomic.Uint64
	watermark.Store(5)
	r.Acquire(&watermark).Release()
	_, horizon := r.Scan(nil, &watermark)
	require.Equal(t, uint64(5), horizon)
	s := r.claim(wordOf(4))
	pins, _ := r.Scan(nil, &watermark)
	require.Equal(t, []uint64{5}, pins)
	s.word.Store(wordFree)
}

func TestSlotExpiry(t *testing.T) {
	var r Registry
	var watermark atomic.Uint64
	_, ok := r.Oldest()
	require.False(t, ok)

	base := r.AcquireAt(0)
	_, ok = r.Oldest()
	require.False(t, ok, "a held registration is nobody's to expire")

	watermark.Store(1)
	second := r.Acquire(&watermark)
	second.Stamp(200)
	first := r.Acquire(&watermark)
	first.Stamp(100)
	watermark.Store(2)
	third := r.Acquire(&watermark)

	h, ok := r.Oldest()
	require.True(t, ok)
	require.Equal(t, uint64(1), h.Seq())
	require.Equal(t, int64(100), h.Since())
	require.True(t, h.Expire())
	require.True(t, first.Expired())
	require.False(t, second.Expired())
	require.False(t, h.Expire(), "once")

	h, _ = r.Oldest()
	require.Equal(t, int64(200), h.Since())
	second.Release()
	require.False(t, h.Expire(), "gone")

	h, _ = r.Oldest()
	require.Equal(t, uint64(2), h.Seq())
	require.Zero(t, h.Since())

	pins, _ := r.Scan(nil, &watermark)
	require.Equal(t, []uint64{0, 1, 2}, pins, "an expired reader pins until it releases")
	base.Release()
	first.Release()
	pins, _ = r.Scan(nil, &watermark)
	require.Equal(t, []uint64{2}, pins)

	again := r.AcquireNear(first, &watermark)
	require.Same(t, first.slot, again.slot)
	require.False(t, again.Expired())
	again.Release()
	third.Release()
	require.Zero(t, r.Count())
}

func TestRegistryGrows(t *testing.T) {
	var r Registry
	var watermark atomic.Uint64
	const n = 3*minBlockSlots + maxBlockSlots
	slots := map[*slot]bool{}
	var held []Slot
	for i := range uint64(n) {
		watermark.Store(i)
		s := r.Acquire(&watermark)
		require.False(t, slots[s.slot], "slot given out twice")
		slots[s.slot] = true
		held = append(held, s)
	}
	require.Equal(t, n, r.Count())
	pins, horizon := r.Scan(nil, &watermark)
	require.Len(t, pins, n)
	require.Zero(t, horizon)

	newest := r.newest.Load()
	rand.Shuffle(n, func(i, j int) { held[i], held[j] = held[j], held[i] })
	for i := range held {
		held[i].Release()
		held[i] = r.Acquire(&watermark)
	}
	for _, s := range held {
		s.Release()
	}
	require.Same(t, newest, r.newest.Load(), "slots released are used again")
	require.Zero(t, r.Count())
}

func TestAcquireNear(t *testing.T) {
	var r, other Registry
	var watermark atomic.Uint64
	s := r.Acquire(&watermark)
	taken := r.AcquireNear(s, &watermark)
	require.NotSame(t, s.slot, taken.slot, "the hint is in use")
	s.Release()
	again := r.AcquireNear(s, &watermark)
	require.Same(t, s.slot, again.slot)
	again.Release()

	elsewhere := other.AcquireNear(s, &watermark)
	require.Equal(t, 1, other.Count(), "a hint from another registry is ignored")
	require.Equal(t, 1, r.Count())
	elsewhere.Release()
	taken.Release()
}

func TestRegistryBrokenInvariantsPanic(t *testing.T) {
	var r Registry
	var watermark atomic.Uint64
	watermark.Store(5)
	s := r.Acquire(&watermark)
	s.Release()
	require.Panics(t, s.Release, "released twice")
	r.Scan(nil, &watermark)
	require.Panics(t, func() { r.AcquireAt(4) }, "nobody pins 4")
	require.Panics(t, func() { r.AcquireAt(MaxSeq + 1) })
	r.AcquireAt(MaxSeq).Release()
	watermark.Store(4)
	require.Panics(t, func() { r.Scan(nil, &watermark) }, "watermark moved back")
}

func TestSlotFillsItsLines(t *testing.T) {
	require.EqualValues(t, linePairBytes, unsafe.Sizeof(slot{}))
}

func TestRegistryDoesNotAllocate(t *testing.T) {
	var r Registry
	var watermark atomic.Uint64
	r.Acquire(&watermark).Release()
	buf := make([]uint64, 0, 8)
	var s Slot
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		r.Acquire(&watermark).Release()
		s = r.AcquireNear(s, &watermark)
		watermark.Add(1)
		r.Scan(buf, &watermark)
		s.Release()
	}))
}

// TestRegistryConcurrently lets a scanner declare values dead, as a store frees versions. Readers check that the value
// at which they read is not dead.
func TestRegistryConcurrently(t *testing.T) {
	const readers = 3
	values := 200_000
	if testing.Short() {
		values = 30_000
	}
	var r Registry
	var watermark atomic.Uint64
	dead := make([]atomic.Bool, values+1)
	var running sync.WaitGroup
	var acquired atomic.Int64
	stop := make(chan struct{})
	read := func(s Slot) bool {
		acquired.Add(1)
		for range rand.IntN(100) {
			if dead[s.Seq()].Load() {
				return false
			}
		}
		if rand.IntN(64) == 0 {
			runtime.Gosched()
		}
		return !dead[s.Seq()].Load()
	}
	for range readers {
		running.Go(func() {
			var last Slot
			for {
				select {
				case <-stop:
					return
				default:
				}
				s := r.AcquireNear(last, &watermark)
				ok := read(s)
				if rand.IntN(16) == 0 { // handed to another slot
					held := r.AcquireAt(s.Seq())
					s.Release()
					ok = ok && read(held)
					held.Release()
				} else {
					s.Release()
					last = s
				}
				if !ok {
					t.Errorf("a reader's value %d was declared dead", s.Seq())
					return
				}
			}
		})
	}
	running.Go(func() {
		defer close(stop)
		var pins []uint64
		var below, horizon uint64
		lastHorizon := uint64(0)
		for watermark.Load() < uint64(values) {
			watermark.Add(1)
			pins, horizon = r.Scan(pins, &watermark)
			if horizon < lastHorizon || !slices.IsSorted(pins) {
				t.Errorf("horizon %d after %d, pins %v", horizon, lastHorizon, pins)
				return
			}
			lastHorizon = horizon
			// Declare the values dead that no reader pins and that were not dead before.
			for below < pins[len(pins)-1] && dead[below].Load() {
				below++
			}
			for v := below; v < pins[len(pins)-1]; v++ {
				if !Pinned(pins, v, v+1) {
					dead[v].Store(true)
				}
			}
		}
	})
	running.Wait()
	require.Zero(t, r.Count(), "a slot was lost")
	t.Logf("%d registrations, %d values", acquired.Load(), values)
}

func BenchmarkAcquireRelease(b *testing.B) {
	b.Run("near", func(b *testing.B) {
		var r Registry
		var watermark atomic.Uint64
		b.RunParallel(func(pb *testing.PB) {
			var s Slot
			for pb.Next() {
				s = r.AcquireNear(s, &watermark)
				s.Release()
			}
		})
	})
	b.Run("anywhere", func(b *testing.B) {
		var r Registry
		var watermark atomic.Uint64
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				r.Acquire(&watermark).Release()
			}
		})
	})
}

func BenchmarkScan(b *testing.B) {
	var r Registry
	var watermark atomic.Uint64
	for range 4 {
		r.Acquire(&watermark)
		watermark.Add(1)
	}
	var pins []uint64
	for b.Loop() {
		pins, _ = r.Scan(pins, &watermark)
	}
}

// TestClaimsAgainFirst: if few readers exist at the same time, few slots are ever claimed, so that a scan looks at
// few. After many readers, their slots are used again.
func TestClaimsAgainFirst(t *testing.T) {
	var r Registry
	var applied atomic.Uint64
	claimed := func() (n int) {
		for b := r.newest.Load(); b != nil; b = b.older {
			n += len(b.used())
		}
		return n
	}
	for _, readers := range []int{1, 3, claimTries, 2, 1000} {
		before, most := claimed(), readers
		if readers > claimTries {
			most = 3 * readers // the newest block may be full, and half of it free
		}
		for range 100 {
			var slots []Slot
			for range readers {
				slots = append(slots, r.Acquire(&applied))
			}
			for _, s := range slots {
				s.Release()
			}
		}
		require.LessOrEqual(t, claimed(), max(before, most))
	}
}

// TestStampOthers: readers without a stamp are stamped, others keep theirs, and no reader finds the stamp of an
// earlier reader in its slot.
func TestStampOthers(t *testing.T) {
	var r Registry
	var watermark atomic.Uint64
	said, silent := r.Acquire(&watermark), r.Acquire(&watermark)
	said.Stamp(5)
	r.StampOthers(7)
	require.EqualValues(t, 5, said.slot.since.Load())
	require.EqualValues(t, 7, silent.slot.since.Load())
	r.StampOthers(9)
	require.EqualValues(t, 7, silent.slot.since.Load())
	silent.Release()
	silent.slot.since.Store(9) // a stamp by a goroutine that saw the slot before it was released
	again := r.AcquireNear(silent, &watermark)
	require.Equal(t, silent.slot, again.slot)
	require.Zero(t, again.slot.since.Load())
	free := again.slot
	again.Release()
	r.StampOthers(11)
	require.Zero(t, free.since.Load())
	said.Release()
}
