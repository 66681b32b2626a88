package logstore

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// heldSegments are the segments of the script's file that a reader keeps: one page in each was live when the
// reader began.
const heldFrom, heldTo = 3, 11

// hold fills the log until its tail is past the held segments. In each of these, one page died before the reader at 30
// began, and one afterwards.
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

// TestThin: in segments that only readers keep, the file keeps the pages that the readers see. The others lose their
// space once two checkpoints have recorded that. When the readers have ended, the segments return by growth, which
// fills the holes.
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
	require.NotEqual(t, Free, x.s.Segments()[heldFrom].State, "with holes it is not free")
	require.Equal(t, segments, int(x.s.space.Counts().Punched))
	for more := true; more; {
		var err error
		more, err = x.s.GiveBack()
		require.NoError(t, err)
	}
	require.Equal(t, x.blocks(), x.s.SpaceStats().FileBytes)
	end := x.s.End()
	require.NoError(t, x.s.Reserve(x.s.space.Counts().Available+segments*7, true))
	require.Equal(t, end, x.s.End(), "holes are filled first")
	require.Equal(t, x.blocks(), x.s.SpaceStats().FileBytes)
}

// TestThinLeavesPlaces: an image keeps its space while a node in memory has cells in it, even if no reader finds that
// page by its name. This includes nodes that were changed after the segment was chosen.
func TestThinLeavesPlaces(t *testing.T) {
	x := newScript(t)
	x.hold()
	place := x.s.firstPage(heldFrom) + 2
	x.s.AddName(place)
	x.s.HoldPlace(place)
	x.s.Thin()
	again := x.s.firstPage(heldFrom+1) + 2
	x.s.AddName(again) // the name is needed not only by readers
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
}

// TestThinCrash: a power cut or a kill at any operation while segments are thinned, read, released by their readers,
// and filled again. The log is found, and nothing is written into space that may be missing.
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
		require.NotZero(t, x.s.space.Counts().Holes)
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

// TestThinnedEndIsCutOff: segments with holes at the end of the file are cut off when their readers have ended.
// No checkpoint from which a recovery may start says that the file is longer.
func TestThinnedEndIsCutOff(t *testing.T) {
	const from, to = 16, 20
	for _, damaged := range []bool{false, true} { // the newest superblock
		x := newScript(t)
		x.holdThese(from, to)
		for x.s.tail.header.segment >= from || x.s.tail.header.successor >= from {
			x.append(1)
			x.checkpoint()
		}
		for range 4 {
			x.s.Condemn(0, 1)
			x.s.Thin()
			x.checkpoint()
			x.giveBack()
		}
		require.EqualValues(t, to, x.s.space.Whole(), "what is behind what readers keep is gone")
		require.NotZero(t, x.s.space.Counts().Holes)
		x.s.SetSnapshots([]uint64{50})
		x.checkpointFrom()
		x.giveBack()
		require.Less(t, x.s.space.Whole(), uint32(from))
		last := x.s.LastGroup()
		if newest := x.s.newestNumber(); damaged {
			x.poke(newest%2, 100)
		}
		x.crash(vfs.KeepAll)
		x.open()
		require.Equal(t, last, x.s.LastGroup())
	}
}

// TestThinFaults: a failing punch does no harm.
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

// TestThinKnowsDeaths: a page that dies at a number which the watermark has already passed counts as seen, although no
// snapshots were reported since then, also if the segment was chosen before.
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

// TestThinnedPagesAreRead: a page that has lost its space no longer counts as verified, so that a damaged reference to
// it finds no page there. Pages that readers see are unchanged.
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

// TestThinWithoutHoles: if the file system cannot make holes, each segment keeps all its space and is counted with all
// of it.
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
	require.Equal(t, Free, x.s.Segments()[heldFrom].State, "it is free, for it has no hole")
}
