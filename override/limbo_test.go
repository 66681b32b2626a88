package override

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/internal/btree"
)

// A long reader keeps only the versions that it can see in memory, not all that are made while it is open.
func TestHeldReaderCost(t *testing.T) {
	s := newScript(t, true)
	s.put(span(0, 80)...)
	s.must(s.sync())
	r := s.reader()
	var early int64
	for round := range 60 {
		s.put(span(0, 80)...)
		s.flushAll()
		s.must(s.reclaim())
		if round == 5 {
			early = s.p.MemoryBytes()
		}
	}
	require.LessOrEqual(t, s.p.MemoryBytes(), early*5/4)
	s.must(s.recheck(r))
	r.slot.Release()
	s.must(s.settle())
}

// Readers that come and go while an older one stays do not keep memory for long.
func TestShortReadersBesideAHeldOne(t *testing.T) {
	s := newScript(t, false)
	s.put(span(0, 80)...)
	held := s.reader()
	most := 0
	for range 100 {
		s.put(1, 40, 60)
		r := s.reader()
		s.put(1, 40, 60)
		s.must(s.reclaim())
		r.slot.Release()
		most = max(most, s.p.limbo.size())
	}
	require.Less(t, most, 3*heldSlack)
	s.must(s.recheck(held))
	held.slot.Release()
	s.must(s.reclaim())
	require.Zero(t, s.p.limbo.size())
	s.must(s.settle())
}

// Versions that short readers have kept are freed soon also while another reader keeps many. If they were freed only
// when the kept versions have doubled, as many again would be kept for readers that have ended.
func TestShortReadersBesideAReaderOfMuch(t *testing.T) {
	records := recordMaker{fixed: func(int, uint32) (btree.ValueKind, int) { return btree.Inline, 1000 }}
	for i := range 400 { // more than a hundred leaves
		records.keys = append(records.keys, fmt.Appendf(nil, "key %04d", i))
	}
	s := startScript(t, records, false)
	all := span(0, len(records.keys))
	s.put(all...)
	held := s.reader()
	s.put(all...)
	s.must(s.reclaim())
	kept := len(s.p.limbo.held)
	require.Greater(t, kept, 2*heldSlack)
	for range 20 {
		r := s.reader()
		s.put(all...)
		s.must(s.reclaim())
		require.LessOrEqual(t, len(s.p.limbo.held), 2*kept+kept/4+heldSlack) // both readers see the same number of versions
		r.slot.Release()
	}
	s.must(s.recheck(held))
	held.slot.Release()
	for range 2*kept/heldPart + 2 { // in parts
		s.must(s.reclaim())
	}
	require.Zero(t, s.p.limbo.size())
	s.must(s.settle())
}

// Versions that ended readers have kept are freed in parts, so that commits do not wait for long, or all at once if
// the caller asks for that.
func TestHeldIsFreedInParts(t *testing.T) {
	records := recordMaker{fixed: func(int, uint32) (btree.ValueKind, int) { return btree.Inline, 1000 }}
	for i := range 400 { // more than a hundred leaves
		records.keys = append(records.keys, fmt.Appendf(nil, "key %04d", i))
	}
	for _, atOnce := range []bool{false, true} {
		s := startScript(t, records, false)
		l := &s.p.limbo
		var readers []*modelReader
		for range 30 {
			s.put(span(0, len(records.keys))...)
			s.must(s.reclaim())
			readers = append(readers, s.reader())
		}
		s.put(span(0, len(records.keys))...)
		s.must(s.reclaim())
		for range 6 { // readers keep these names
			s.flushAll()
			readers = append(readers, s.reader())
			s.foldAll()
			s.put(span(0, len(records.keys))...)
			s.must(s.reclaim())
		}
		held := l.holds()
		require.Greater(t, len(l.held), 3*heldPart)
		require.Greater(t, len(l.heldEntries), 2*heldPart)
		first := readers[0]
		for _, r := range readers[1:] {
			r.slot.Release()
		}
		for calls := 0; !l.passing; calls++ {
			require.Less(t, calls, held/heldPass+2)
			l.Reclaim(s.view)
			require.GreaterOrEqual(t, l.holds(), held-heldPart)
		}
		first.slot.Release() // the versions that this reader keeps have been passed already
		if atOnce {
			l.ReclaimAll(s.view)
		}
		for calls := 0; l.size() > 0; calls++ {
			require.False(t, atOnce)
			require.Less(t, calls, 2*held/heldPart+heldPart/heldPass)
			before := l.holds()
			l.Reclaim(s.view)
			require.LessOrEqual(t, before-l.holds(), heldPart)
		}
		s.must(s.settle())
	}
}

// Without readers, memory of versions that a flush has written is freed at once, even if the watermark does not
// advance.
func TestFlushGivesMemoryBack(t *testing.T) {
	s := newScript(t, true)
	s.put(span(0, 80)...)
	require.NotZero(t, s.p.MemoryBytes())
	s.must(s.flushWhole())
	s.must(s.reclaim())
	require.Zero(t, s.p.MemoryBytes())
	require.Less(t, s.durableSeq.Load(), s.appliedSeq.Load())
}

// A version that no reader can see is freed, even if readers see older and newer ones.
func TestVersionsBetweenReaders(t *testing.T) {
	s := newScript(t, false)
	s.put(1)
	first := s.reader()
	for range 10 {
		s.put(1)
	}
	second := s.reader()
	for range 10 {
		s.put(1)
	}
	s.must(s.reclaim())
	e := s.p.table.find(s.leafOf(1))
	chain := 0
	for v := e.newest(); v != nil; v = v.next.Load() {
		chain++
	}
	require.Equal(t, 3, chain)
	for _, r := range []*modelReader{first, second} {
		s.must(s.recheck(r))
		r.slot.Release()
	}
	s.must(s.settle())
}

// An entry leaves the table once no reader can use its name, and then no name keeps its segment from reuse.
func TestRemovedPageLeavesTheTable(t *testing.T) {
	s := newScript(t, false)
	s.put(span(0, 60)...)
	s.flushAll()
	id := s.leafOf(30)
	r := s.reader()
	s.del(span(10, 50)...)
	s.flushAll()
	s.must(s.reclaim())
	require.NotNil(t, s.p.table.find(id), "a reader may come by it")
	s.must(s.recheck(r))
	r.slot.Release()
	s.must(s.reclaim())
	require.Nil(t, s.p.table.find(id))
	s.must(s.settle())
}
