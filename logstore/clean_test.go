package logstore

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A segment is worth cleaning only if that sets it free.
func TestVictims(t *testing.T) {
	const n = 12
	x := newScript(t)
	x.spread()
	start := x.s.oldestStart()
	require.Positive(t, start)
	sp := x.s.space
	victim := func(edit func(g *segment)) bool {
		tail, successor, runs, was := sp.tail, sp.successor, sp.runs, sp.segments[n]
		defer func() { sp.tail, sp.successor, sp.runs, sp.segments[n] = tail, successor, runs, was }()
		sp.segments[n] = segment{state: segmentUsed, sequence: 5, live: 2, written: start - 1}
		edit(&sp.segments[n])
		victims, _ := x.s.Victims(map[uint32]uint64{n: 1}, false)
		for _, v := range victims {
			if v.Segment == n {
				return true
			}
		}
		return false
	}
	require.True(t, victim(func(*segment) {}))
	for name, edit := range map[string]func(g *segment){
		"nothing lives":                    func(g *segment) { g.live = 0 },
		"nearly all lives":                 func(g *segment) { g.live = 6 },
		"the log is read from there":       func(g *segment) { g.written = start },
		"it has just been filled":          func(g *segment) { g.written = start + 5 },
		"it holds a large value":           func(g *segment) { g.sequence = 0 },
		"it is of a transaction":           func(g *segment) { g.state = segmentPrivate },
		"the tail":                         func(*segment) { sp.tail = n },
		"the tail's successor":             func(*segment) { sp.successor = n },
		"both checkpoints are in it":       func(*segment) { sp.runs[0], sp.runs[1] = map[uint32]bool{n: true}, map[uint32]bool{n: true} },
		"it was found to hold value runs":  func(g *segment) { g.written = 1 },
		"it is free, whatever else it was": func(g *segment) { g.state = segmentFree },
	} {
		require.False(t, victim(edit), name)
	}
}
