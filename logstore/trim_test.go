package logstore

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// giveBack gives back all space that can be given back, and returns how many calls gave back any.
func (x *script) giveBack() (n int) {
	x.t.Helper()
	for {
		more, err := x.s.GiveBack()
		require.NoError(x.t, err)
		if !more {
			return n
		}
		n++
	}
}

// space is the space that the file takes on disk, in segments.
func (x *script) space() int64 {
	n, err := x.s.file.Blocks()
	require.NoError(x.t, err)
	return n / PageSize / 8
}

// spread fills the file with log until its tail is after free segments, and returns the tail's segment.
func (x *script) spread() uint32 {
	x.t.Helper()
	for x.s.tail.header.segment < 20 {
		x.append(5)
	}
	x.checkpoint()
	x.checkpoint()
	x.s.SetSnapshots([]uint64{1})
	return x.s.tail.header.segment
}

// hollow makes a file of which most segments were given back.
func (x *script) hollow() {
	x.t.Helper()
	x.spread()
	x.s.Condemn(0, 1)
	for range 2 {
		x.checkpointFrom()
	}
	x.giveBack()
}

func TestTrim(t *testing.T) {
	x := newScript(t)
	tail := x.spread()
	full := x.space()
	kept := x.append(1)
	x.s.Condemn(0, 1)
	require.GreaterOrEqual(t, x.s.space.Counts().Available-x.s.space.Counts().Promised, x.s.space.Counts().Kept, "the reserve stays")
	require.NotZero(t, x.s.Leaving())
	require.Zero(t, x.giveBack(), "both superblocks may still lead there")
	x.checkpointFrom()
	require.Zero(t, x.giveBack(), "one of them may")
	x.checkpointFrom()
	require.Positive(t, x.giveBack())
	require.Zero(t, x.s.Leaving())
	require.Less(t, x.space(), full/2, "of %d segments", full)
	require.Equal(t, x.space(), x.s.SpaceStats().FileBytes/PageSize/8)
	require.Less(t, x.s.End(), uint64(tail+6)*8, "the end was cut off")

	for range 3 { // what was given back stays so, and returns only by growth
		x.s.Close()
		x.open()
		require.Equal(t, []uint64{kept}, x.groups())
		require.Equal(t, x.space(), x.s.SpaceStats().FileBytes/PageSize/8)
	}
	end := x.s.End()
	require.NoError(t, x.s.Reserve(x.s.space.Counts().Available+40, true))
	require.Greater(t, x.s.space.Counts().Available, int64(40))
	require.Equal(t, end, x.s.End(), "holes are filled first")
	require.Equal(t, x.space(), x.s.SpaceStats().FileBytes/PageSize/8)
}

// Space that was given back no longer counts, neither for the reserves nor for the steps in which the file grows.
func TestHolesDoNotCount(t *testing.T) {
	x := newScript(t)
	for x.s.tail.header.segment < 400 {
		x.append(5)
	}
	x.checkpoint()
	x.checkpoint()
	x.s.SetSnapshots([]uint64{1})
	x.append(1)
	x.s.Condemn(0, 1)
	for range 2 {
		x.checkpointFrom()
	}
	x.giveBack()
	require.Greater(t, x.s.End(), uint64(400*8))
	few := x.space()
	require.Less(t, few, int64(50))
	c := x.s.space.Counts()
	require.LessOrEqual(t, c.Kept, 2*x.s.CheckpointPages()+8+8*(32+few)/32)
	require.NoError(t, x.s.Reserve(max(1, c.Available-c.Promised-c.Kept+1), false))
	require.Greater(t, x.space(), few)
	require.LessOrEqual(t, x.space(), few+few/8+1)
}

// Condemned segments keep their space until it is given back. Growth makes such a segment usable again without an
// allocation.
func TestCondemnedSegmentsAreSpared(t *testing.T) {
	x := newScript(t)
	x.spread()
	before := x.s.space.Counts().Available
	x.s.Condemn(0, 1)
	require.Less(t, x.s.space.Counts().Available, before)
	ops := x.mem.Ops()
	require.NoError(t, x.s.Reserve(before, true))
	require.Equal(t, before, x.s.space.Counts().Available)
	require.Equal(t, ops, x.mem.Ops(), "nothing was allocated")
	require.Zero(t, x.s.Leaving())
}

// A power cut or a kill at any operation of a trim, and of the growth that takes the space back: the log is
// found, and nothing is written into space that may be missing.
func TestTrimCrash(t *testing.T) {
	inTurn(t)
	run := func(x *script) {
		x.s.Condemn(0, 1)
		for range 2 {
			x.checkpointFrom()
			x.giveBack()
		}
		for range 30 {
			x.append(3)
		}
		x.sync()
	}
	x := newScript(t)
	x.spread()
	base := x.mem.Clone()
	defer base.Release()
	last, first := x.s.LastGroup(), x.mem.Ops()
	run(x)
	ops := x.mem.Ops() - first
	x.s.Close()
	require.Greater(t, ops, 30)

	every := 1
	if testing.Short() {
		every = 5
	}
	for at := 1; at <= ops; at += every {
		for _, p := range append(vfs.Policies(), 255) {
			x.become(base.Clone())
			x.open()
			var image *vfs.Mem
			var durable uint64
			left := at
			x.mem.OnOp(func(op vfs.Op) error {
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
			if image == nil {
				continue
			}
			x.become(image)
			x.mem.Guard(func(name string, off, n int64) error {
				if off >= 3*PageSize && !x.mem.Reserved(name, off, n) {
					t.Errorf("operation %d, %v: page %d is written and its space is not sure", at, p, off/PageSize)
				}
				return nil
			})
			x.open()
			require.GreaterOrEqual(t, x.s.LastGroup(), max(last, durable))
			x.groups()
			for range 20 {
				x.append(3)
			}
			x.checkpoint()
			x.checkpoint()
			x.giveBack()
		}
	}
}

// A punch that is not possible, or fails, does no harm.
func TestTrimFaults(t *testing.T) {
	for _, fault := range []error{errors.ErrUnsupported, vfs.ErrNoSpace} {
		for _, kind := range []vfs.Kind{vfs.OpPunch, vfs.OpTruncate} {
			x := newScript(t)
			x.spread()
			x.s.Condemn(0, 1)
			x.checkpoint()
			x.checkpoint()
			struck := 0
			x.mem.OnOp(func(op vfs.Op) error {
				if op.Kind == kind {
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
}

// A process that reads the file beside its writer accepts what a header leads to as pages. Therefore the header is
// zeroed before the segment is punched.
func TestHeaderIsZeroedBeforeItIsPunched(t *testing.T) {
	x := newScript(t)
	x.spread()
	header := func(n int64) bool {
		page := make([]byte, PageSize)
		_, err := x.s.file.ReadAt(page, (n*8+int64(headerPage(uint32(n))))*PageSize)
		require.NoError(t, err)
		return !isZero(page)
	}
	had := map[int64]bool{}
	for n := range int64(x.s.End() / 8) {
		had[n] = header(n)
	}
	punched := 0
	x.mem.OnOp(func(op vfs.Op) error {
		if op.Kind == vfs.OpPunch {
			for n := op.Off / PageSize / 8; n < (op.Off+op.Len)/PageSize/8; n++ {
				require.False(t, header(n), "segment %d", n)
				if had[n] {
					punched++
				}
			}
		}
		return nil
	})
	x.s.Condemn(0, 1)
	for range 2 {
		x.checkpointFrom()
		x.giveBack()
	}
	require.Positive(t, punched)
}

// When a crash comes, a segment that was given back may already be the successor of the tail again, while the newest
// checkpoint records it as absent. Its space was allocated before a header named it, so recovery finds it. Otherwise,
// in a file that may not grow, the log could enter no other segment, however much of the file is free.
func TestSuccessorThatWasGivenBack(t *testing.T) {
	x := newScript(t)
	x.hollow()
	hole := map[uint32]bool{}
	for n, g := range x.s.Segments() {
		hole[uint32(n)] = g.State == Absent
	}
	for !hole[x.s.tail.header.successor] || x.s.tail.page < 8 {
		require.NoError(t, x.s.Reserve(1, false)) // the other segments stay free
		x.s.Release(1)
		x.append(1)
	}
	x.sync()
	for _, p := range append(vfs.Policies(), 255) {
		mem := x.mem.Clone()
		if p != 255 {
			mem = x.mem.Crash(p, 1)
		}
		y := &script{t: t, mem: mem, opts: x.opts}
		y.opts.MaxFileSize = int64(x.s.End()) * PageSize
		y.open()
		require.Contains(t, y.groups(), x.s.LastGroup())
		require.Equal(t, Next, y.s.Segments()[x.s.tail.header.successor].State, "%v", p)
		y.append(5)
		y.s.Close()
		mem.Release()
	}
}
