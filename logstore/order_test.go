package logstore

import (
	"errors"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// The log had entered the successor, and that page reached the disk, but the last page of the segment before did not.
// If the log continued in that segment and the same commit were written again with the same bytes, the old page in the
// successor would follow it.
func TestCutOffSuccessorDoesNotJoin(t *testing.T) {
	x := newScript(t)
	x.appendTo(7)
	x.sync()
	last := x.s.LastGroup()
	before := x.mem.Clone()
	x.append(1) // in the last page here
	at := x.s.firstPage(x.s.tail.header.segment) + 7
	x.append(1) // in the successor
	x.crash(vfs.KeepAll)
	x.file(before, func(f vfs.File) { x.overwrite(at, x.read(f, at)) })
	before.Release()
	x.open()
	require.Equal(t, last, x.s.LastGroup())
	require.Equal(t, last+1, x.append(1), "the same commit again")
	x.crash(vfs.KeepAll)
	x.open()
	require.Equal(t, last+1, x.s.LastGroup())
}

// Groups between the scan start and the checkpoint's own groups were durable before the superblock was written,
// whether or not a page says so.
func TestHoleBeforeTheCheckpoint(t *testing.T) {
	x := newScript(t)
	x.s.Rebase(x.append(1))
	var at []Addr
	for range 3 {
		x.append(1)
		at = append(at, x.s.firstPage(x.s.tail.header.segment)+x.s.tail.page-1)
	}
	x.checkpointFrom()
	x.s.Close()
	for _, a := range at {
		x.poke(a, 500)
		_, _, err := Open(x.mem, toyPath, x.opts)
		require.ErrorIs(t, err, ErrCorrupt)
		x.poke(a, 500)
	}
}

// No page is written into new space, and nothing refers to new space, before the space is synced.
func TestGrowthIsSyncedFirst(t *testing.T) {
	x := newScript(t)
	var growths int
	grown := false
	x.mem.OnOp(func(op vfs.Op) error {
		switch op.Kind {
		case vfs.OpAllocate:
			grown = true
			growths++
		case vfs.OpDatasync:
			grown = false
		case vfs.OpWrite, vfs.OpWriteVec:
			require.False(t, grown, "%v", op)
		}
		return nil
	})
	for range 100 {
		x.append(3)
	}
	require.Greater(t, growths, 3)
	x.mem.OnOp(nil)
}

// After they are published, the segments of a large value obey the same rules as those of the log, in this
// process and after a crash.
func TestPublishedSegmentsAreNotFreeAtOnce(t *testing.T) {
	x := newScript(t)
	v := x.s.NewPrivate()
	_, err := v.Write(make([]byte, 3*PageSize))
	require.NoError(t, err)
	extents, err := v.Finish()
	require.NoError(t, err)
	require.NoError(t, x.s.SyncPrivate())
	require.NoError(t, x.s.Reserve(1, true))
	g := x.s.Begin(RecordGroup)
	g.List(0, nil, extents)
	no, err := g.Commit(1)
	require.NoError(t, err)
	v.Publish(no, 0)
	x.sync()
	n := x.s.segmentOf(extents[0].Addr)
	check := func() {
		t.Helper()
		require.True(t, x.s.IsLive(extents[0].Addr+2))
		x.s.Kill(extents[0].Addr, 3, 0)
		require.Equal(t, no, x.s.Segments()[n].Group)
		x.s.space.Collect()
		require.NotEqual(t, Free, x.s.Segments()[n].State)
	}
	check()
	x.crash(vfs.KeepNone)
	x.openOnly()
	listed, err := x.s.ListAt(x.rec.Groups[0].Pages[0].Addr)
	require.NoError(t, err)
	require.Equal(t, extents, listed)
	require.NoError(t, x.s.NoteListed(listed, x.rec.Groups[0].No))
	require.NoError(t, x.s.EndRecovery(x.rec))
	check()
	require.ErrorIs(t, x.s.NoteListed([]Extent{{Addr: 1 << 40, Bytes: 1}}, no), ErrCorrupt)
}

// oneSync is a file system that reports overlapping syncs.
type oneSync struct {
	vfs.FS
	syncs   atomic.Int32 // syncs in progress
	overlap atomic.Bool
}

func (o *oneSync) Open(name string, flag int, perm os.FileMode) (vfs.File, error) {
	f, err := o.FS.Open(name, flag, perm)
	return &oneSyncFile{f, o}, err
}

type oneSyncFile struct {
	vfs.File
	fs *oneSync
}

func (f *oneSyncFile) Datasync() error {
	if f.fs.syncs.Add(1) > 1 {
		f.fs.overlap.Store(true)
	}
	defer f.fs.syncs.Add(-1)
	for range 20 {
		runtime.Gosched() // lets other goroutines get here
	}
	if f.fs.overlap.Load() {
		return errors.New("two syncs at once: one may miss the other's error")
	}
	return f.File.Datasync()
}

// The log may enter segments after the space map was copied and before the groups of the checkpoint. The scan may
// start in such a segment.
func TestScanStartBehindTheSpaceMap(t *testing.T) {
	x := newScript(t)
	x.appendTo(8)
	x.s.Rebase(x.s.LastGroup())
	c := x.s.BeginCheckpoint(nil)
	var want []uint64
	for range 9 { // a whole segment and more
		want = append(want, x.append(1))
	}
	done, err := c.WritePart()
	require.NoError(t, err)
	require.True(t, done)
	require.NoError(t, c.Finish())
	require.NotEqual(t, c.run.Segment, c.start.Segment)
	x.s.Close()
	x.open()
	require.Equal(t, want, x.groups())
}

// TestFailedWriteInAGroup: if any of the calls that write a group fails, the group has failed.
func TestFailedWriteInAGroup(t *testing.T) {
	for fail := 0; ; fail++ {
		x := newScript(t)
		require.NoError(t, x.s.Reserve(60, true))
		p := x.s.NewPrivate()
		_, err := p.Write(make([]byte, PageSize)) // in a segment in the middle
		require.NoError(t, err)
		g := x.s.Begin(PageGroup)
		for range 20 {
			g.Page(BornBit | 1)
		}
		writes := 0
		x.mem.OnOp(func(op vfs.Op) error {
			if op.Kind == vfs.OpWrite || op.Kind == vfs.OpWriteVec {
				if writes++; writes == fail+1 {
					return syscall.EIO
				}
			}
			return nil
		})
		_, err = g.Commit(20)
		x.mem.OnOp(nil)
		if writes <= fail {
			require.NoError(t, err)
			require.Greater(t, fail, 1)
			return
		}
		require.ErrorIs(t, err, ErrFailed)
		require.ErrorIs(t, x.s.Failed(), ErrFailed)
	}
}
