package space

import (
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/format"
)

// Each rule alone keeps a segment from reuse.
func TestReuseRules(t *testing.T) {
	free := func() *Map {
		sp := New(8, 0, nil)
		sp.pages = 5 * 8
		sp.extendTo(5)
		sp.tail, sp.successor, sp.snapshots = 0, 1, []uint64{10, 29, 50, 70}
		sp.checkpoints = [2]*Checkpoint{{Number: 2, Start: 120}, {Number: 1, Start: 100}}
		sp.segments[2] = segment{state: segmentUsed, dead: true, written: 99, birth: 30, death: 50}
		return sp
	}
	require.True(t, free().reusable(2))
	for name, edit := range map[string]func(sp *Map, g *segment){
		"a live page":                  func(sp *Map, g *segment) { g.live = 1 },
		"alive at the checkpoint":      func(sp *Map, g *segment) { g.dead = false },
		"written since the scan start": func(sp *Map, g *segment) { g.written = 100 },
		"newest checkpoint's run":      func(sp *Map, g *segment) { sp.checkpoints[0].Run = map[uint32]bool{2: true} },
		"older checkpoint's run":       func(sp *Map, g *segment) { sp.checkpoints[1].Run = map[uint32]bool{2: true} },
		"a name":                       func(sp *Map, g *segment) { g.names = 1 },
		"a reader at its birth":        func(sp *Map, g *segment) { g.birth = 29 },
		"a reader before its death":    func(sp *Map, g *segment) { g.death = 51 },
		"a reader in between":          func(sp *Map, g *segment) { sp.snapshots[2] = 40 },
		"readers to come":              func(sp *Map, g *segment) { g.birth, g.death = 71, 72 },
		"readers that are not known":   func(sp *Map, g *segment) { sp.snapshots = nil },
		"a transaction":                func(sp *Map, g *segment) { g.state = segmentPrivate },
		"free already":                 func(sp *Map, g *segment) { g.state = segmentFree },
		"the tail":                     func(sp *Map, g *segment) { sp.tail = 2 },
		"the tail's successor":         func(sp *Map, g *segment) { sp.successor = 2 },
	} {
		sp := free()
		edit(sp, &sp.segments[2])
		require.False(t, sp.reusable(2), name)
		sp.collect()
		require.Empty(t, sp.free, name)
	}
}

// A segment counts as dead after the second checkpoint that follows the death of its last page: the first one
// whose map was copied when it was dead.
func TestDeathCountsFromTheNextCheckpoint(t *testing.T) {
	sp := New(8, 0, nil)
	sp.pages = 5 * 8
	sp.extendTo(5)
	sp.tail, sp.successor, sp.snapshots = 0, 1, []uint64{1000}
	sp.segments[2] = segment{state: segmentUsed, written: 5}
	sp.MarkLive(17, 3, 0)
	sp.Encode(nil)
	sp.Kill(17, 3, 10)
	sp.Checkpointed(Checkpoint{Number: 1, Start: 100})
	require.Empty(t, sp.free, "it was alive when the map was taken")
	sp.Encode(nil)
	require.Empty(t, sp.free, "the map is not durable")
	sp.Checkpointed(Checkpoint{Number: 2, Start: 110})
	require.Equal(t, []uint32{2}, sp.free)
}

// Promised pages can be appended, whichever segments they come to lie in.
func TestAvailable(t *testing.T) {
	sp := New(8, 0, nil)
	sp.pages = 32 * 8
	sp.extendTo(32)
	sp.tail, sp.tailPage, sp.successor = 3, 6, 4
	sp.release(9)
	require.EqualValues(t, 2, sp.available(), "the successor has no space")
	sp.free = nil
	sp.segments[4].state = segmentFree
	require.EqualValues(t, 2, sp.available(), "the successor cannot be entered without a segment to follow it")
	sp.release(9)
	require.EqualValues(t, 2+7, sp.available())
	sp.release(0)
	require.EqualValues(t, 2+7+5, sp.available(), "segment 0 begins with three pages of its own")
	sp.release(10)
	require.Equal(t, []uint32{10, 9, 0}, sp.free, "the lowest is taken first")
	require.EqualValues(t, 2+7+7+5, sp.available())

	young := New(256, 0, nil)
	young.pages = 32
	young.tailPage, young.successor = 3, 1
	young.extendTo(2)
	require.EqualValues(t, 32-3, young.available(), "part of the first segment")
	young.Grown(256)
	require.EqualValues(t, 253, young.available())
	young.Grown(512)
	require.EqualValues(t, 253, young.available(), "the successor")
	young.Grown(768)
	require.EqualValues(t, 253+255, young.available())
}

// TestRoomCountsGrowth: the pages by which a limited file may grow count as room; a file without a limit has
// the room that it has.
func TestRoomCountsGrowth(t *testing.T) {
	sp := New(256, 64*256*format.PageSize, nil)
	sp.Grown(2 * 256)
	require.EqualValues(t, sp.available()+sp.growable(), sp.Room())
	require.Greater(t, sp.Room(), int64(60*255))
	sp.limited = false
	require.EqualValues(t, sp.available(), sp.Room())
}

// A name counts in the segment in which it is an address; born names count in none.
func TestNames(t *testing.T) {
	sp := usedSegments(8)
	sp.AddName(format.BornBit | 17)
	sp.AddName(9)
	require.EqualValues(t, 1, sp.segments[1].names)
	sp.DropName(9)
	require.Zero(t, sp.segments[1].names)
	require.Panics(t, func() { sp.DropName(9) })
}

// A segment gives its space back only when both superblocks are of checkpoints that began after it was condemned.
func TestSpaceWaitsForTwoCheckpoints(t *testing.T) {
	for oldest := uint64(4); oldest < 8; oldest++ {
		sp := New(8, 0, nil)
		sp.pages = 10 * 8
		sp.extendTo(10)
		for n := range sp.segments {
			sp.segments[n].state = segmentUsed
		}
		sp.tail, sp.successor = 1, 2
		for _, n := range []uint32{5, 9} { // within the file, and at its end
			sp.segments[n].state = segmentAbsent
			sp.leaving[n] = condemned{checkpoint: 5}
		}
		gone := oldest > 5
		twoCheckpoints(sp, oldest, oldest+1)
		if left, _ := sp.CutTo(); gone {
			require.EqualValues(t, 9, left)
		} else {
			require.Zero(t, left, "oldest superblock %d", oldest)
		}
		if first, n := sp.Depart(100); gone {
			require.EqualValues(t, []uint32{5, 1}, []uint32{first, n})
		} else {
			require.Zero(t, n, "oldest superblock %d", oldest)
		}
	}
}

// twoCheckpoints sets the numbers of the map's two checkpoints.
func twoCheckpoints(sp *Map, a, b uint64) {
	sp.checkpoints = [2]*Checkpoint{{Number: a, Start: 100}, {Number: b, Start: 100}}
}

// A segment is worth cleaning only if cleaning makes it free.
func TestVictims(t *testing.T) {
	const n, start = 12, 100
	victim := func(edit func(sp *Map, g *segment)) bool {
		sp := New(8, 0, nil)
		sp.extendTo(20)
		sp.pages = 20 * 8
		sp.tail, sp.successor = 17, 18
		sp.checkpoints = [2]*Checkpoint{{Number: 2, Start: start}, {Number: 1, Start: start - 50}}
		sp.segments[n] = segment{state: segmentUsed, sequence: 5, live: 2, written: start - 1}
		edit(sp, &sp.segments[n])
		victims, _ := sp.Victims(map[uint32]uint64{n: 1}, false)
		for _, v := range victims {
			if v.Segment == n {
				return true
			}
		}
		return false
	}
	run := map[uint32]bool{n: true}
	require.True(t, victim(func(*Map, *segment) {}))
	require.True(t, victim(func(sp *Map, _ *segment) { sp.checkpoints[1].Run = run }), "one checkpoint is in it")
	for name, edit := range map[string]func(sp *Map, g *segment){
		"nothing lives":                    func(_ *Map, g *segment) { g.live = 0 },
		"nearly all lives":                 func(_ *Map, g *segment) { g.live = 6 },
		"the log is read from there":       func(_ *Map, g *segment) { g.written = start },
		"it has just been filled":          func(_ *Map, g *segment) { g.written = start + 5 },
		"it holds a large value":           func(_ *Map, g *segment) { g.sequence = 0 },
		"it is of a transaction":           func(_ *Map, g *segment) { g.state = segmentPrivate },
		"the tail":                         func(sp *Map, _ *segment) { sp.tail = n },
		"the tail's successor":             func(sp *Map, _ *segment) { sp.successor = n },
		"both checkpoints are in it":       func(sp *Map, _ *segment) { sp.checkpoints[0].Run, sp.checkpoints[1].Run = run, run },
		"it was found to hold value runs":  func(_ *Map, g *segment) { g.written = 1 },
		"it is free, whatever else it was": func(_ *Map, g *segment) { g.state = segmentFree },
	} {
		require.False(t, victim(edit), name)
	}
}

// TestPlaces: a place is held until each of its holds is released, and is then removed from the map.
func TestPlaces(t *testing.T) {
	sp := usedSegments(8)
	sp.HoldPlace(9)
	sp.HoldPlace(9)
	sp.LetPlace(9)
	require.EqualValues(t, 1, sp.places[9])
	sp.LetPlace(9)
	require.Empty(t, sp.places)
	require.Panics(t, func() { sp.LetPlace(9) })
}
