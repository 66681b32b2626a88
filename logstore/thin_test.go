package logstore

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// heldSegments are the segments of the script's file that a reader keeps: one page in each was alive when it came.
const heldFrom, heldTo = 3, 11

// hold fills the log until its tail lies behind the held segments. In each of these one page has died before the reader at 30 came, and one
// after that.
func (x *script) hold() { x.holdThese(heldFrom, heldTo) }

func (x *script) holdThese(from, to uint32) {
	x.t.Helper()
	for x.s.tail.header.segment < 20 {
		x.append(5)
	}
	each := func(fn func(first Addr)) {
		for n := from; n < to; n++ {
			fn(x.s.firstPage(n))
		}
	}
	each(func(first Addr) { x.s.MarkNode(first+2, 10); x.s.MarkNode(first+5, 10) })
	each(func(first Addr) { x.s.KillNode(first+2, 20) })
	x.s.SetSnapshots([]uint64{30})
	each(func(first Addr) { x.s.KillNode(first+5, 40) })
	x.s.SetSnapshots([]uint64{30, 50})
	x.checkpoint()
	x.checkpoint()
}

// isHole reports whether a page reads as zeros.
func (x *script) isHole(a Addr) bool {
	page := make([]byte, PageSize)
	_, err := x.s.file.ReadAt(page, int64(a)*PageSize)
	require.NoError(x.t, err)
	return isZero(page)
}

func (x *script) blocks() int64 {
	n, err := x.s.file.Blocks()
	require.NoError(x.t, err)
	return n
}

// TestThin: of segments that only readers keep the file has what these see, once two checkpoints say so, and all that is left comes back
// when they have ended: by growth, which fills the holes.
func TestThin(t *testing.T) {
	const segments = heldTo - heldFrom
	x := newScript(t)
	x.hold()
	require.EqualValues(t, segments*8*PageSize, x.s.HeldBytes())
	full := x.blocks()
	x.s.Thin()
	require.EqualValues(t, segments*6*PageSize, x.s.Thinning(), "all but the header and the page that is seen")
	require.Zero(t, x.giveBack(), "both superblocks may still lead there")
	x.checkpointFrom()
	require.Zero(t, x.giveBack(), "one of them may")
	x.checkpointFrom()
	require.Equal(t, segments, x.giveBack())
	require.Zero(t, x.s.Thinning())
	require.EqualValues(t, segments*2*PageSize, x.s.HeldBytes())
	require.EqualValues(t, segments*6*PageSize, full-x.blocks())
	require.Equal(t, x.blocks(), x.s.SpaceStats().FileBytes)
	for n := uint32(heldFrom); n < heldTo; n++ {
		for o := range Addr(8) {
			require.Equal(t, o != 0 && o != 5, x.isHole(x.s.firstPage(n)+o), "page %d", o)
		}
	}

	x.s.SetSnapshots([]uint64{50})
	x.checkpointFrom()
	require.Zero(t, x.s.HeldBytes())
	require.NotContains(t, x.s.space.free, uint32(heldFrom), "with holes it is not free")
	require.Equal(t, segments, int(x.s.space.punched))
	for more := true; more; {
		var err error
		more, err = x.s.GiveBack()
		require.NoError(t, err)
	}
	require.Equal(t, x.blocks(), x.s.SpaceStats().FileBytes)
	end := x.s.End()
	require.NoError(t, x.s.Reserve(x.s.space.available()+segments*7, true))
	require.Equal(t, end, x.s.End(), "holes are filled first")
	require.Equal(t, x.blocks(), x.s.SpaceStats().FileBytes)
}

// TestThinnable: a segment stays as it is while anything but readers needs it, or it is not known which of its pages they see.
func TestThinnable(t *testing.T) {
	x := newScript(t)
	x.hold()
	sp := x.s.space
	const n = heldFrom
	thinned := func(edit func(g *segment)) bool {
		before, tail, successor, runs, snapshots := sp.segments[n], sp.tail, sp.successor, sp.runs, sp.snapshots
		defer func() {
			sp.segments[n], sp.tail, sp.successor, sp.runs, sp.snapshots, sp.short = before, tail, successor, runs, snapshots, false
			clear(sp.thin)
			x.s.unpunchable.Store(false)
		}()
		edit(&sp.segments[n])
		x.s.Thin()
		_, ok := sp.thin[n]
		return ok
	}
	require.True(t, thinned(func(*segment) {}))
	require.True(t, thinned(func(g *segment) { g.names, g.heldNames = 1, 1 }), "a name that readers alone want")
	for name, edit := range map[string]func(g *segment){
		"a live page":                  func(g *segment) { g.live = 1 },
		"alive at the checkpoint":      func(g *segment) { g.dead = false },
		"written since the scan start": func(g *segment) { g.written = sp.oldestStart },
		"newest checkpoint's run":      func(*segment) { sp.runs = [2]map[uint32]bool{{n: true}, nil} },
		"older checkpoint's run":       func(*segment) { sp.runs = [2]map[uint32]bool{nil, {n: true}} },
		"a name":                       func(g *segment) { g.names, g.heldNames = 2, 1 },
		"a death that is too recent":   func(g *segment) { g.death = 51 },
		"no reader":                    func(*segment) { sp.snapshots = []uint64{50} },
		"readers that are not known":   func(*segment) { sp.snapshots = nil },
		"a transaction":                func(g *segment) { g.state = segmentPrivate },
		"free":                         func(g *segment) { g.state = segmentFree },
		"the tail":                     func(*segment) { sp.tail = n },
		"the tail's successor":         func(*segment) { sp.successor = n },
		"all is seen":                  func(g *segment) { g.seenMap = []uint64{0xFF} },
		"a device without room":        func(*segment) { sp.short = true },
		"no holes on the file system":  func(*segment) { x.s.unpunchable.Store(true) },
	} {
		require.False(t, thinned(edit), name)
	}
}

// TestThinLeavesPlaces: an image that a node in memory has cells in keeps its space, though it is no page that a reader comes to by its name.
// What has changed since the segment was chosen counts too.
func TestThinLeavesPlaces(t *testing.T) {
	x := newScript(t)
	x.hold()
	place := x.s.firstPage(heldFrom) + 2
	x.s.AddName(place)
	x.s.HoldPlace(place)
	x.s.Thin()
	again := x.s.firstPage(heldFrom+1) + 2
	x.s.AddName(again) // not for readers alone
	x.checkpointFrom()
	x.checkpointFrom()
	x.giveBack()
	require.False(t, x.isHole(place))
	require.True(t, x.isHole(place+1))
	require.False(t, x.isHole(again+1))
	x.s.DropName(again)
	x.giveBack()
	require.True(t, x.isHole(again+1))
	x.s.LetPlace(place)
	x.s.DropName(place)
	require.Empty(t, x.s.space.places)
}

// TestSeenByDeath: which pages of a segment are seen follows from their own deaths, once the watermark has passed these.
func TestSeenByDeath(t *testing.T) {
	sp := newSpace(8, 0)
	sp.pages = 5 * 8
	sp.extendTo(5)
	s := &Store{space: sp, segmentPages: 8, segmentShift: 3}
	sp.segments[2].state = segmentUsed
	sp.reborn(2)
	s.MarkLive(17, 6, 20)
	seen := func() uint64 {
		if sp.segments[2].seenMap == nil {
			return 0
		}
		return sp.segments[2].seenMap[0]
	}
	s.Kill(17, 1, 25)
	s.Kill(18, 2, 31)
	s.SetSnapshots([]uint64{10, 30})
	require.Zero(t, seen(), "the reader at 10 is older than all of it, and those who come at 30 find the second death still to come")
	require.Len(t, sp.deaths, 1)
	s.SetSnapshots([]uint64{10, 30, 40})
	require.EqualValues(t, 0b1100, seen())
	s.Kill(20, 1, 41)
	s.SetSnapshots([]uint64{10, 50})
	require.EqualValues(t, 0b1100, seen(), "the reader at 30 has ended")
	s.Kill(21, 2, 60)
	s.SetSnapshots([]uint64{20, 60})
	require.EqualValues(t, 0b1101100, seen())
	require.Empty(t, sp.deaths)
}

// TestSeenLoggedValues: a page of logged values dies with the last of them, and its raw pages with it.
func TestSeenLoggedValues(t *testing.T) {
	sp := newSpace(8, 0)
	sp.pages = 5 * 8
	sp.extendTo(5)
	s := &Store{space: sp, segmentPages: 8, segmentShift: 3}
	sp.segments[2].state = segmentUsed
	sp.reborn(2)
	s.BearLogged(18, 3, 0b11, 9000, 20)
	s.BearLogged(21, 1, 0b1, 3000, 20)
	s.KillLogged(18, 0b01, 25)
	s.KillLogged(21, 0b1, 26)
	s.KillLogged(18, 0b10, 31)
	s.SetSnapshots([]uint64{30, 40})
	require.EqualValues(t, 0b11100, sp.segments[2].seenMap[0])
	require.Zero(t, sp.segments[2].live)
}

// TestThinCrash: a power cut, or the end of the process, at any operation while segments are thinned, used by readers, left by them and filled
// again. The log is found, and nothing is written into space that may not be there.
func TestThinCrash(t *testing.T) {
	inTurn(t)
	sure := func(x *script) {
		x.mem.Guard(func(name string, off, n int64) error {
			if off >= 3*PageSize && !x.mem.Reserved(name, off, n) {
				t.Errorf("page %d is written and its space is not sure", off/PageSize)
			}
			return nil
		})
	}
	run := func(x *script) {
		x.s.Thin()
		for range 3 {
			x.checkpointFrom()
			x.giveBack()
		}
		require.NotZero(t, x.s.space.holes)
		for n := uint32(heldFrom); n < heldTo; n++ {
			require.False(t, x.isHole(x.s.firstPage(n)+5))
		}
		x.s.SetSnapshots([]uint64{50})
		x.checkpointFrom()
		for range 40 {
			x.append(3)
		}
		x.sync()
	}
	every := 7
	if testing.Short() {
		every = 29
	}
	punched := 0
	for at, ended := 1, false; !ended; at += every {
		for _, p := range append(vfs.Policies(), 255) {
			x := newScript(t)
			sure(x)
			x.hold()
			last := x.s.LastGroup()
			var image *vfs.Mem
			var durable uint64
			left := at
			x.mem.OnOp(func(op vfs.Op) error {
				if op.Kind == vfs.OpPunch {
					punched++
				}
				if left--; left == 0 {
					durable = x.s.Durable()
					if image = x.mem.Clone(); p != 255 {
						img := image.Crash(p, uint64(at))
						image.Release()
						image = img
					}
				}
				return nil
			})
			run(x)
			x.mem.OnOp(nil)
			if ended = image == nil; ended {
				break
			}
			x.become(image)
			sure(x)
			x.open()
			require.GreaterOrEqual(t, x.s.LastGroup(), max(last, durable))
			x.groups()
			x.s.SetSnapshots([]uint64{1})
			for range 60 {
				x.append(3)
			}
			x.checkpoint()
			x.checkpoint()
			x.giveBack()
			x.s.Close()
			x.s = nil
			x.mem.Release()
			x.mem = vfs.NewMem(1 << 20)
		}
	}
	require.Positive(t, punched)
}

// TestThinnedEndIsCutOff: when readers leave segments with holes at the end of the file, they are cut off. No checkpoint that a recovery may start
// from says that the file is longer.
func TestThinnedEndIsCutOff(t *testing.T) {
	const from, to = 16, 20
	for _, damaged := range []bool{false, true} { // the newest superblock
		x := newScript(t)
		x.holdThese(from, to)
		for x.s.tail.header.segment >= from || x.s.space.successor >= from {
			x.append(1)
			x.checkpoint()
		}
		for range 4 {
			x.s.Condemn(0, 1)
			x.s.Thin()
			x.checkpoint()
			x.giveBack()
		}
		require.EqualValues(t, to, x.s.space.whole(), "what is behind what readers keep is gone")
		require.NotZero(t, x.s.space.holes)
		x.s.SetSnapshots([]uint64{50})
		x.checkpointFrom()
		x.giveBack()
		require.Less(t, x.s.space.whole(), uint32(from))
		last := x.s.LastGroup()
		if newest := x.s.newestNumber(); damaged {
			x.poke(newest%2, 100)
		}
		x.crash(vfs.KeepAll)
		x.open()
		require.Equal(t, last, x.s.LastGroup())
	}
}

// TestThinFaults: what cannot be punched does no harm.
func TestThinFaults(t *testing.T) {
	for _, fault := range []error{errors.ErrUnsupported, vfs.ErrNoSpace} {
		x := newScript(t)
		x.hold()
		x.s.Thin()
		x.checkpointFrom()
		x.checkpointFrom()
		struck := 0
		x.mem.OnOp(func(op vfs.Op) error {
			if op.Kind == vfs.OpPunch {
				struck++
				return fault
			}
			return nil
		})
		for more := true; more; {
			more, _ = x.s.GiveBack()
		}
		x.mem.OnOp(nil)
		require.Positive(t, struck)
		require.NoError(t, x.s.Failed())
		x.s.SetSnapshots([]uint64{50})
		x.checkpoint()
		var want []uint64
		for range 40 {
			want = append(want, x.append(3))
		}
		x.sync()
		x.crash(vfs.KeepNone)
		x.open()
		require.Equal(t, want, x.groups())
	}
}

// TestThinKnowsDeaths: a page that dies at a number that the watermark has passed already is seen as well, though nobody has told of snapshots
// since; also if the segment was chosen before.
func TestThinKnowsDeaths(t *testing.T) {
	for _, chosen := range []bool{false, true} {
		x := newScript(t)
		x.hold()
		if chosen {
			x.s.Thin()
		}
		late := x.s.firstPage(heldFrom) + 6
		x.s.MarkNode(late, 20)
		x.s.KillNode(late, 40)
		x.checkpoint()
		x.checkpoint()
		if !chosen {
			x.s.Thin()
			x.checkpointFrom()
			x.checkpointFrom()
		}
		x.giveBack()
		require.False(t, x.isHole(late))
		require.True(t, x.isHole(late+1))
	}
}

// TestSeenInAnyOrder: a death that the watermark has not passed yet hides none that it has.
func TestSeenInAnyOrder(t *testing.T) {
	sp := newSpace(8, 0)
	sp.pages = 5 * 8
	sp.extendTo(5)
	s := &Store{space: sp, segmentPages: 8, segmentShift: 3}
	sp.segments[2].state = segmentUsed
	sp.reborn(2)
	s.MarkLive(17, 6, 20)
	s.Kill(17, 1, 60)
	s.Kill(18, 1, 40)
	s.SetSnapshots([]uint64{30, 50})
	require.EqualValues(t, 0b100, sp.segments[2].seenMap[0])
	require.Len(t, sp.deaths, 1)
}

// TestThinnedPagesAreRead: of a page without space nothing is known any more, so a damaged reference to it finds no page there. What is seen
// stays as it is.
func TestThinnedPagesAreRead(t *testing.T) {
	x := newScript(t)
	x.hold()
	x.s.SetOverridden(x.s.firstPage(heldFrom)+3, true)
	seen, gone := x.s.firstPage(heldFrom)+5, x.s.firstPage(heldFrom)+3
	for _, a := range []Addr{seen, gone} {
		_, err := x.s.Page(a)
		require.NoError(t, err)
		c, o := x.s.chunkOf(a)
		c.sets().record.set(o)
		c.sets().extent.set(o)
	}
	x.s.Thin()
	x.checkpointFrom()
	x.checkpointFrom()
	x.giveBack()
	require.True(t, x.isHole(gone))
	_, err := x.s.Page(seen)
	require.NoError(t, err)
	_, err = x.s.Page(gone)
	require.ErrorIs(t, err, ErrCorrupt)
	for a, known := range map[Addr]bool{seen: true, gone: false} {
		c, o := x.s.chunkOf(a)
		require.Equal(t, known, c.isChecked(o))
		require.Equal(t, known, c.isExtent(o))
		require.Equal(t, known, c.sets().record.has(o))
	}
	require.True(t, x.s.Overridden(gone), "a name that readers want is in the table")
}

// TestThinWithoutHoles: where the file system makes no holes, each segment keeps its space, and counts as having it.
func TestThinWithoutHoles(t *testing.T) {
	x := newScript(t)
	x.hold()
	x.s.Thin()
	x.checkpointFrom()
	x.checkpointFrom()
	held, before := x.s.HeldBytes(), x.s.SpaceStats().FileBytes
	x.mem.OnOp(func(op vfs.Op) error {
		if op.Kind == vfs.OpPunch {
			return errors.ErrUnsupported
		}
		return nil
	})
	x.giveBack()
	x.giveBack()
	require.Equal(t, held, x.s.HeldBytes())
	require.Equal(t, before, x.s.SpaceStats().FileBytes)
	x.s.SetSnapshots([]uint64{50})
	x.checkpointFrom()
	require.Contains(t, x.s.space.free, uint32(heldFrom), "it is free, for it has no hole")
}
