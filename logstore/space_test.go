package logstore

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// Each rule keeps a segment that nothing else keeps.
func TestReuseRules(t *testing.T) {
	free := func() *space {
		sp := newSpace(8, 0)
		sp.pages = 5 * 8
		sp.extendTo(5)
		sp.tail, sp.successor, sp.oldestStart, sp.snapshots = 0, 1, 100, []uint64{10, 29, 50, 70}
		sp.segments[2] = segment{state: segmentUsed, dead: true, written: 99, birth: 30, death: 50}
		return sp
	}
	require.True(t, free().reusable(2))
	for name, edit := range map[string]func(sp *space, g *segment){
		"a live page":                  func(sp *space, g *segment) { g.live = 1 },
		"alive at the checkpoint":      func(sp *space, g *segment) { g.dead = false },
		"written since the scan start": func(sp *space, g *segment) { g.written = 100 },
		"newest checkpoint's run":      func(sp *space, g *segment) { sp.runs[0] = map[uint32]bool{2: true} },
		"older checkpoint's run":       func(sp *space, g *segment) { sp.runs[1] = map[uint32]bool{2: true} },
		"a name":                       func(sp *space, g *segment) { g.names = 1 },
		"a reader at its birth":        func(sp *space, g *segment) { g.birth = 29 },
		"a reader before its death":    func(sp *space, g *segment) { g.death = 51 },
		"a reader in between":          func(sp *space, g *segment) { sp.snapshots[2] = 40 },
		"readers to come":              func(sp *space, g *segment) { g.birth, g.death = 71, 72 },
		"readers that are not known":   func(sp *space, g *segment) { sp.snapshots = nil },
		"a transaction":                func(sp *space, g *segment) { g.state = segmentPrivate },
		"free already":                 func(sp *space, g *segment) { g.state = segmentFree },
		"the tail":                     func(sp *space, g *segment) { sp.tail = 2 },
		"the tail's successor":         func(sp *space, g *segment) { sp.successor = 2 },
	} {
		sp := free()
		edit(sp, &sp.segments[2])
		require.False(t, sp.reusable(2), name)
		sp.collect()
		require.Empty(t, sp.free, name)
	}
}

// A segment counts as dead from the second checkpoint on after its last page died: the first whose map was taken when it was dead.
func TestDeathCountsFromTheNextCheckpoint(t *testing.T) {
	sp := newSpace(8, 0)
	sp.pages = 5 * 8
	sp.extendTo(5)
	s := &Store{space: sp, segmentPages: 8, segmentShift: 3}
	sp.tail, sp.successor, sp.snapshots = 0, 1, []uint64{1000}
	sp.segments[2] = segment{state: segmentUsed, written: 5}
	s.MarkLive(17, 3, 0)
	sp.encode(nil)
	s.Kill(17, 3, 10)
	sp.checkpointed(0, nil, 100)
	require.Empty(t, sp.free, "it was alive when the map was taken")
	sp.encode(nil)
	require.Empty(t, sp.free, "the map is not durable")
	sp.checkpointed(1, nil, 100)
	require.Equal(t, []uint32{2}, sp.free)
}

// What is promised can be appended, whatever segments the pages come to lie in.
func TestAvailable(t *testing.T) {
	sp := newSpace(8, 0)
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

	young := newSpace(256, 0)
	young.pages = initialPages
	young.tailPage, young.successor = 3, 1
	young.extendTo(2)
	require.EqualValues(t, initialPages-3, young.available(), "part of the first segment")
	young.grown(256)
	require.EqualValues(t, 253, young.available())
	young.grown(512)
	require.EqualValues(t, 253, young.available(), "the successor")
	young.grown(768)
	require.EqualValues(t, 253+255, young.available())
}

// TestRoomCountsGrowth: what a limited file may grow by is room, one without a limit has what it is.
func TestRoomCountsGrowth(t *testing.T) {
	sp := newSpace(256, 64*256*PageSize)
	sp.grown(2 * 256)
	s := &Store{space: sp}
	require.EqualValues(t, sp.available()+sp.growable(), s.Room())
	require.Greater(t, s.Room(), int64(60*255))
	sp.limited = false
	require.EqualValues(t, sp.available(), s.Room())
}

func TestReserve(t *testing.T) {
	x := newScript(t)
	s := x.s
	before := s.SpaceStats()
	require.NoError(t, s.Reserve(100, false))
	after := s.SpaceStats()
	require.GreaterOrEqual(t, after.FreeBytes-after.ReservedBytes, s.space.keep()*PageSize)
	require.Greater(t, after.FileBytes, before.FileBytes)
	s.Release(100)
	require.Panics(t, func() { s.Release(1) })
	s.space.reserved = 0

	require.NoError(t, s.Reserve(s.space.available(), true), "in an emergency also what is held back")
	require.Equal(t, after.FileBytes, s.SpaceStats().FileBytes)

	s.space.maxPages = s.space.pages + 100
	err := s.Reserve(1<<40, false)
	require.ErrorIs(t, err, ErrFull)
	require.True(t, IsFull(err))
	require.Equal(t, after.FileBytes, s.SpaceStats().FileBytes, "no attempt was made")
	require.NoError(t, s.Failed())
}

// A name counts against the segment that it is an address in; born names are nowhere.
func TestNames(t *testing.T) {
	x := newScript(t)
	s := x.s
	s.AddName(BornBit | 17)
	s.AddName(9)
	require.EqualValues(t, 1, s.space.segments[1].names)
	s.DropName(9)
	require.Zero(t, s.space.segments[1].names)
	require.Panics(t, func() { s.DropName(9) })
}

// Bits of a page are forgotten when its segment is reused, in words and in parts of words.
func TestPageSet(t *testing.T) {
	for _, n := range []uint64{8, 32, 64, 256} {
		set := make(pageSet, 16)
		for o := range uint64(1024) {
			set.set(o)
		}
		set.unsetAll(512, n)
		for o := range uint64(1024) {
			require.Equal(t, o < 512 || o >= 512+n, set.has(o), "page %d of %d", o, n)
		}
		set.unset(3)
		require.False(t, set.has(3))
		require.True(t, set.has(2) && set.has(4))
	}
}

// A raw page of a large value is never taken for a page of the tree, even if it looks like one and was read before.
func TestRawPageIsNoTreePage(t *testing.T) {
	x := newScript(t)
	s := x.s
	looks := make([]byte, PageSize)
	x.append(1)
	p, err := s.Page(s.firstPage(s.tail.header.segment) + s.tail.page - 1)
	require.NoError(t, err)
	copy(looks, p)

	v := s.NewPrivate()
	_, err = v.Write(looks)
	require.NoError(t, err)
	extents, err := v.Finish()
	require.NoError(t, err)
	b, err := s.Raw(extents[0])
	require.NoError(t, err)
	require.Equal(t, looks, append([]byte{}, b...))
	_, err = s.Page(extents[0].Addr)
	require.ErrorIs(t, err, ErrCorrupt)
	_, err = s.Run(extents[0].Addr)
	require.ErrorIs(t, err, ErrCorrupt)

	for _, e := range []Extent{{}, {Addr: extents[0].Addr, Bytes: 9 * PageSize}, {Addr: 1 << 60, Bytes: 1}, {Addr: ^uint64(0), Bytes: 1 << 31}} {
		_, err := s.Raw(e)
		require.ErrorIs(t, err, ErrCorrupt, "%+v", e)
	}
	v.Discard()
}

// TestFileThatCannotGrow: where the file system has no room, no quota or takes no larger files, that is a full file and no failure.
func TestFileThatCannotGrow(t *testing.T) {
	for _, cause := range []error{syscall.ENOSPC, errQuota, syscall.EFBIG} {
		t.Run(cause.Error(), func(t *testing.T) {
			x := newScript(t)
			x.mem.OnOp(func(op vfs.Op) error {
				if op.Kind == vfs.OpAllocate {
					return cause
				}
				return nil
			})
			require.True(t, IsFull(x.s.Reserve(1000, false)))
			require.NoError(t, x.s.Failed())
			x.append(1)
			x.mem.OnOp(nil)
			require.NoError(t, x.s.Reserve(1000, false))
		})
	}
}
