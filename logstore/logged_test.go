package logstore

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLoggedValuesLiveOnce: a birth or a death that is noted again changes nothing, a page lives as long as one of its values does, and the
// map of the file says so after it was written and read.
func TestLoggedValuesLiveOnce(t *testing.T) {
	x := newScript(t)
	s := x.s
	a := s.firstPage(1) + 3
	live := func() int64 { return s.SpaceStats().LiveBytes / PageSize }
	before := live()
	s.space.mu.Lock()
	s.space.extendTo(2)
	s.space.segments[1].state = segmentUsed
	s.space.pages = max(s.space.pages, 2*s.space.segmentPages)
	s.space.mu.Unlock()
	for range 2 {
		s.BearLogged(a, 0b1011, 900, 5)
		require.Equal(t, before+1, live())
	}
	for range 2 {
		s.KillLogged(a, 0b0001, 7)
		require.True(t, s.IsLive(a))
		pages, masks := s.LoggedIn(1)
		require.Equal(t, []Addr{a}, pages)
		require.Equal(t, []uint16{0b1010}, masks)
	}
	read := newSpace(uint32(s.space.segmentPages), 0)
	read.pages = s.space.pages
	require.NoError(t, read.decode(s.space.encode(nil)))
	require.Equal(t, s.space.segments[1].masks, read.segments[1].masks)
	require.EqualValues(t, 2, read.segments[1].values)
	require.EqualValues(t, 1, read.segments[1].loggedPages)
	require.EqualValues(t, 1, read.loggedPages)
	require.NoError(t, read.checkCounts())
	s.Kill(a, 1, 8)
	require.True(t, s.IsLive(a), "it dies with the last of its values")
	for range 2 {
		s.KillLogged(a, 0b1010, 8)
		require.False(t, s.IsLive(a))
		require.True(t, s.space.isUsed(a), "by older readers")
		require.Equal(t, before, live())
	}
	s.KillLogged(a+1, 1, 8)
	require.NoError(t, s.space.checkCounts())
	require.Zero(t, s.space.logged)
}

// TestLoggedValuesAreUsedOnce: what a reference leads to is in the file, in a page of redo records, and nothing else leads there.
func TestLoggedValuesAreUsedOnce(t *testing.T) {
	x := newScript(t)
	s := x.s
	require.True(t, s.LogsValues())
	require.NoError(t, s.Reserve(8, true))
	g := s.Begin(RecordGroup)
	head := []byte("head")
	first, opened := g.Record(head, make([]byte, 1000))
	require.True(t, opened)
	second, opened := g.Record(head, []byte("the second value"))
	require.False(t, opened)
	v, err := s.Logged(second, head, 16)
	require.NoError(t, err)
	require.Equal(t, "the second value", string(v), "before it is written")
	_, err = g.Commit(2)
	require.NoError(t, err)
	for range 2 { // before a sync, and behind it
		v, err = s.Logged(second, head, 16)
		require.NoError(t, err)
		require.Equal(t, "the second value", string(v))
		require.NoError(t, s.Sync())
	}
	require.EqualValues(t, 2, PageName(x.page(first.Addr())), "values in the mux area")

	_, err = s.Logged(second, []byte("tead"), 16)
	require.ErrorIs(t, err, ErrCorrupt, "of another key")

	used := s.NewUsedPages()
	require.NoError(t, s.UseLogged(used, first, head, 1000))
	require.NoError(t, s.UseLogged(used, second, head, 16))
	require.Equal(t, uint16(3), used.Logged(first.Addr()))
	require.ErrorIs(t, s.UseLogged(used, first, head, 1000), ErrCorrupt, "twice")
	require.ErrorIs(t, s.UseOnce(used, first.Addr(), 1), ErrCorrupt, "as a page of the tree")
	other := s.NewUsedPages()
	require.NoError(t, s.UseOnce(other, first.Addr(), 1))
	require.ErrorIs(t, s.UseLogged(other, first, head, 1000), ErrCorrupt, "a page of the tree")
	for name, place := range map[string]Place{
		"beyond the file": PlaceOf(1<<40, 0, 0), "no such value": PlaceOf(first.Addr(), 40, 2), "a superblock": PlaceOf(1, 0, 0),
		"in the mux area": Place(first.Addr()<<16 | 8<<4), "behind the page": PlaceOf(first.Addr(), BodySize-10, 0),
	} {
		require.ErrorIs(t, s.UseLogged(s.NewUsedPages(), place, head, 1000), ErrCorrupt, name)
	}
}

// TestTailPagesAreDropped: what leads to pages in memory goes with the sync of the last of them.
func TestTailPagesAreDropped(t *testing.T) {
	x := newScript(t)
	s := x.s
	require.NoError(t, s.Reserve(2000, true))
	tails := func() (n int) {
		for a := Addr(0); a < s.space.pages; a += 1 << 8 {
			if c, o := s.chunkOf(a); c != nil && c.sets().tail[o>>8].Load() != nil {
				n++
			}
		}
		return n
	}
	for range 1000 {
		g := s.Begin(RecordGroup)
		place, _ := g.Record([]byte("head"), make([]byte, 3000))
		_, err := g.Commit(1)
		require.NoError(t, err)
		_, err = s.Logged(place, []byte("head"), 3000)
		require.NoError(t, err)
	}
	require.Greater(t, tails(), 2)
	require.NoError(t, s.Sync())
	require.Zero(t, tails())
	require.Zero(t, s.UnsyncedBytes())
}
