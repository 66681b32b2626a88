package space

import (
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/format"
)

// usedSegments returns the map of a file of two used segments of the given number of pages.
func usedSegments(segmentPages uint32) *Map {
	sp := New(segmentPages, 0, nil)
	sp.extendTo(2)
	sp.pages = 2 * sp.segmentPages
	for n := range sp.segments {
		sp.segments[n] = segment{state: segmentUsed, birth: unborn}
	}
	return sp
}

// TestLoggedValuesLiveOnce: a birth or death that is recorded again changes nothing. A page is live as long as one of
// its values is. The map says so also after it was written and read.
func TestLoggedValuesLiveOnce(t *testing.T) {
	sp := usedSegments(8)
	a := Addr(8 + 3)
	live := func() int64 { return sp.SpaceStats().LiveBytes / format.PageSize }
	before := live()
	for range 2 {
		sp.BearLogged(a, 1, 0b1011, 900, 5)
		require.Equal(t, before+1, live())
	}
	for range 2 {
		sp.KillLogged(a, 0b0001, 7)
		require.True(t, sp.IsLive(a))
		pages, masks := sp.LoggedIn(1)
		require.Equal(t, []Addr{a}, pages)
		require.Equal(t, []uint16{0b1010}, masks)
	}
	read := New(uint32(sp.segmentPages), 0, nil)
	read.pages = sp.pages
	require.NoError(t, read.Decode(sp.Encode(nil)))
	require.Equal(t, sp.segments[1].logged.masks, read.segments[1].logged.masks)
	require.EqualValues(t, 2, read.segments[1].logged.values)
	require.EqualValues(t, 1, read.segments[1].logged.pages)
	require.EqualValues(t, 1, read.loggedPages)
	require.NoError(t, read.checkCounts())
	sp.Kill(a, 1, 8)
	require.True(t, sp.IsLive(a), "it dies with the last of its values")
	for range 2 {
		sp.KillLogged(a, 0b1010, 8)
		require.False(t, sp.IsLive(a))
		require.True(t, sp.IsUsed(a), "by older readers")
		require.Equal(t, before, live())
	}
	sp.KillLogged(a+1, 1, 8)
	require.NoError(t, sp.checkCounts())
	require.Zero(t, sp.logged)
}

// TestRawPagesLiveWithTheirPage: the raw pages of a page of records are live as long as its values are, and the
// map says which pages are raw.
func TestRawPagesLiveWithTheirPage(t *testing.T) {
	sp := usedSegments(64)
	a, b := Addr(64)+3, Addr(64)+7 // one right after the other
	before := sp.SpaceStats().LiveBytes
	live := func() int { return int(sp.SpaceStats().LiveBytes-before) / format.PageSize }
	for range 2 {
		sp.BearLogged(a, 4, 1<<15-1, 15000, 5)
		sp.BearLogged(b, 2, 1<<3-1, 4500, 5)
		require.Equal(t, 6, live())
	}
	require.EqualValues(t, 6*format.PageSize, sp.SpaceStats().LoggedBytes)
	sp.KillLogged(a, 1<<14-1, 7)
	sp.Kill(a, 6, 7)
	require.Equal(t, 6, live(), "the pages of values die with the last of these")
	read := New(uint32(sp.segmentPages), 0, nil)
	read.pages = sp.pages
	b0 := sp.Encode(nil)
	require.NoError(t, read.Decode(b0))
	require.NoError(t, read.checkCounts())
	require.Equal(t, sp.segments[1].logged.raw, read.segments[1].logged.raw)
	require.EqualValues(t, 6, read.segments[1].logged.pages)
	for range 2 {
		sp.KillLogged(a, 1<<14, 8)
		require.Equal(t, 2, live())
		require.True(t, sp.IsUsed(a+3), "by older readers")
		require.NoError(t, sp.checkCounts())
	}
	sp.BearLogged(a, 1, 1, 1000, 9) // recorded again, and shorter
	require.Equal(t, 3, live())
	sp.KillLogged(a, 1, 9)
	sp.KillLogged(b, 7, 9)
	require.Zero(t, live())
	require.Zero(t, sp.segments[1].logged.pages)
	require.NoError(t, sp.checkCounts())
}

// TestContradictoryRawPages: a map in which a raw page follows no page of records, has values of its own, or is
// dead is damaged. If the log says that a page of records begins where the map has a raw page, it begins there.
func TestContradictoryRawPages(t *testing.T) {
	for name, change := range map[string]func(g *segment){
		"follows a page without values": func(g *segment) { g.logged.raw[0] |= 1 << 20; g.liveMap[0] |= 1 << 20 },
		"the first of a segment":        func(g *segment) { g.logged.raw[0] |= 1; g.liveMap[0] |= 1 },
		"with values":                   func(g *segment) { g.logged.masks[4] = 1 },
		"dead":                          func(g *segment) { g.liveMap[0] &^= 1 << 5 },
	} {
		sp := usedSegments(64)
		sp.BearLogged(3, 4, 1<<15-1, 15000, 5)
		change(&sp.segments[0])
		read := New(uint32(sp.segmentPages), 0, nil)
		read.pages = sp.pages
		require.ErrorIs(t, read.Decode(sp.Encode(nil)), format.ErrCorrupt, name)
	}
	sp := usedSegments(64)
	before := sp.SpaceStats().LiveBytes
	sp.BearLogged(13, 4, 1<<15-1, 15000, 5)
	sp.BearLogged(15, 4, 1<<15-1, 15000, 5)
	require.NoError(t, sp.checkCounts())
	sp.BearLogged(14, 4, 1<<15-1, 15000, 5)
	require.NoError(t, sp.checkCounts())
	for _, a := range []Addr{14, 13, 15} {
		sp.KillLogged(a, 1<<16-1, 6)
		require.NoError(t, sp.checkCounts())
	}
	require.Equal(t, before, sp.SpaceStats().LiveBytes)
}

const streamHeader = 16 // bytes before the table and the map in a checkpoint

// TestCheckpointHoldsItsMap: the pages held back for a checkpoint suffice for the map of a file in which each
// segment has logged values.
func TestCheckpointHoldsItsMap(t *testing.T) {
	for _, segmentPages := range []uint32{8, 64, 256} {
		sp := New(segmentPages, 0, nil)
		const segments = 1000
		sp.extendTo(segments)
		sp.pages = segments * uint64(segmentPages)
		for n := range uint32(segments) {
			sp.segments[n].state = segmentUsed
			sp.BearLogged(Addr(n)*Addr(segmentPages)+5, 2, 1<<7-1, 7000, 1)
		}
		require.LessOrEqual(t, int64(len(sp.Encode(nil))+streamHeader), sp.checkpointPages()*format.BodySize)
		require.GreaterOrEqual(t, int64(len(sp.Encode(nil))+streamHeader), (sp.checkpointPages()-3)*format.BodySize)
	}
}
