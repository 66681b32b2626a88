package space

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestThinnable: a segment stays as it is while anything but readers needs it, or while it is undecided which
// of its pages they see.
func TestThinnable(t *testing.T) {
	const n = 3
	thinned := func(edit func(sp *Map, g *segment)) bool {
		sp := New(8, 0, nil)
		sp.extendTo(20)
		sp.pages = 20 * 8
		sp.tail, sp.successor, sp.snapshots = 17, 18, []uint64{30, 50}
		twoCheckpoints(sp, 1, 2)
		sp.segments[n] = segment{state: segmentUsed, sequence: 5, written: 99, birth: 10, death: 40, dead: true, seenMap: bitmap{1 << 5}}
		edit(sp, &sp.segments[n])
		sp.Thin()
		_, ok := sp.thin[n]
		return ok
	}
	require.True(t, thinned(func(*Map, *segment) {}))
	require.True(t, thinned(func(_ *Map, g *segment) { g.names, g.heldNames = 1, 1 }), "a name that readers alone want")
	run := map[uint32]bool{n: true}
	for name, edit := range map[string]func(sp *Map, g *segment){
		"a live page":                  func(_ *Map, g *segment) { g.live = 1 },
		"alive at the checkpoint":      func(_ *Map, g *segment) { g.dead = false },
		"written since the scan start": func(_ *Map, g *segment) { g.written = 100 },
		"newest checkpoint's run":      func(sp *Map, _ *segment) { sp.checkpoints[0].Run = run },
		"older checkpoint's run":       func(sp *Map, _ *segment) { sp.checkpoints[1].Run = run },
		"a name":                       func(_ *Map, g *segment) { g.names, g.heldNames = 2, 1 },
		"a death that is too recent":   func(_ *Map, g *segment) { g.death = 51 },
		"no reader":                    func(sp *Map, _ *segment) { sp.snapshots = []uint64{50} },
		"readers that are not known":   func(sp *Map, _ *segment) { sp.snapshots = nil },
		"a transaction":                func(_ *Map, g *segment) { g.state = segmentPrivate },
		"free":                         func(_ *Map, g *segment) { g.state = segmentFree },
		"the tail":                     func(sp *Map, _ *segment) { sp.tail = n },
		"the tail's successor":         func(sp *Map, _ *segment) { sp.successor = n },
		"all is seen":                  func(_ *Map, g *segment) { g.seenMap = bitmap{0xFF} },
		"a device without room":        func(sp *Map, _ *segment) { sp.short = true },
		"no holes on the file system":  func(sp *Map, _ *segment) { sp.SetUnpunchable() },
	} {
		require.False(t, thinned(edit), name)
	}
}

// TestSeenByDeath: which pages of a segment are seen follows from their own deaths, once the watermark has
// passed these.
func TestSeenByDeath(t *testing.T) {
	sp := New(8, 0, nil)
	sp.pages = 5 * 8
	sp.extendTo(5)
	sp.segments[2].state = segmentUsed
	sp.Reborn(2)
	sp.MarkLive(17, 6, 20)
	seen := func() uint64 {
		if sp.segments[2].seenMap == nil {
			return 0
		}
		return sp.segments[2].seenMap[0]
	}
	sp.Kill(17, 1, 25)
	sp.Kill(18, 2, 31)
	sp.SetSnapshots([]uint64{10, 30})
	require.Zero(t, seen(), "the reader at 10 is older than all of it, and those who come at 30 find the second death still to come")
	require.Len(t, sp.deaths, 1)
	sp.SetSnapshots([]uint64{10, 30, 40})
	require.EqualValues(t, 0b1100, seen())
	sp.Kill(20, 1, 41)
	sp.SetSnapshots([]uint64{10, 50})
	require.EqualValues(t, 0b1100, seen(), "the reader at 30 has ended")
	sp.Kill(21, 2, 60)
	sp.SetSnapshots([]uint64{20, 60})
	require.EqualValues(t, 0b1101100, seen())
	require.Empty(t, sp.deaths)
}

// TestSeenLoggedValues: a page of logged values dies with the last of them, and its raw pages with it.
func TestSeenLoggedValues(t *testing.T) {
	sp := New(8, 0, nil)
	sp.pages = 5 * 8
	sp.extendTo(5)
	sp.segments[2].state = segmentUsed
	sp.Reborn(2)
	sp.BearLogged(18, 3, 0b11, 9000, 20)
	sp.BearLogged(21, 1, 0b1, 3000, 20)
	sp.KillLogged(18, 0b01, 25)
	sp.KillLogged(21, 0b1, 26)
	sp.KillLogged(18, 0b10, 31)
	sp.SetSnapshots([]uint64{30, 40})
	require.EqualValues(t, 0b11100, sp.segments[2].seenMap[0])
	require.Zero(t, sp.segments[2].live)
}

// TestSeenInAnyOrder: a death that the watermark has not passed hides no earlier death that it has passed.
func TestSeenInAnyOrder(t *testing.T) {
	sp := New(8, 0, nil)
	sp.pages = 5 * 8
	sp.extendTo(5)
	sp.segments[2].state = segmentUsed
	sp.Reborn(2)
	sp.MarkLive(17, 6, 20)
	sp.Kill(17, 1, 60)
	sp.Kill(18, 1, 40)
	sp.SetSnapshots([]uint64{30, 50})
	require.EqualValues(t, 0b100, sp.segments[2].seenMap[0])
	require.Len(t, sp.deaths, 1)
}
