package logstore

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// A script is a store over a file system in memory, for tests that read as scripts. Each of its pages holds one
// number; append(n) writes a group of n pages.
type script struct {
	t    *testing.T
	mem  *vfs.Mem
	opts Options
	s    *Store
	rec  *Recovery
}

func newScript(t *testing.T) *script { return newScriptOf(t, 8) }

// newScriptOf is newScript with segments of the given number of pages.
func newScriptOf(t *testing.T, segmentPages uint32) *script {
	x := &script{t: t, mem: vfs.NewMem(16 << 20), opts: Options{SegmentPages: segmentPages, ChunkPages: 4096, Growing: true}}
	t.Cleanup(func() {
		if x.s != nil {
			x.s.Close()
		}
		x.mem.Release()
	})
	x.open()
	require.True(t, x.rec.Created)
	x.checkpoint()
	x.checkpoint()
	return x
}

// open opens the store and ends its recovery.
func (x *script) open() {
	x.t.Helper()
	x.openOnly()
	require.NoError(x.t, x.s.EndRecovery(x.rec))
}

func (x *script) openOnly() {
	x.t.Helper()
	s, rec, err := Open(x.mem, toyPath, x.opts)
	require.NoError(x.t, err)
	x.s, x.rec = s, rec
}

// append writes a page group of n pages; the first one bears the group's number.
func (x *script) append(n int) (group uint64) {
	x.t.Helper()
	require.NoError(x.t, x.s.Reserve(int64(n), true))
	defer x.s.Release(int64(n))
	g := x.s.Begin(PageGroup)
	for range n {
		_, body := g.Page(BornBit | 1)
		body[0] = byte(g.Number())
	}
	no, err := g.Commit(uint64(n))
	require.NoError(x.t, err)
	return no
}

// appendTo appends groups of one page until the next page of the log has the given index in its segment.
func (x *script) appendTo(page uint64) {
	x.t.Helper()
	for x.s.tail.page != page {
		x.append(1)
	}
}

// end returns the address of the next page of the log.
func (x *script) end() Addr { return x.s.firstPage(x.s.tail.header.segment) + x.s.tail.page }

func (x *script) sync() {
	x.t.Helper()
	require.NoError(x.t, x.s.Sync())
}

// checkpoint makes a checkpoint whose scan starts after everything before it.
func (x *script) checkpoint() {
	x.t.Helper()
	x.s.Rebase(x.s.LastGroup())
	x.checkpointFrom()
}

// checkpointFrom makes a checkpoint whose scan start is where Rebase has put it.
func (x *script) checkpointFrom() {
	x.t.Helper()
	require.NoError(x.t, x.s.Reserve(4, true))
	defer x.s.Release(4)
	c := x.s.BeginCheckpoint([]byte(fmt.Sprint("table after ", x.s.LastGroup())))
	for done := false; !done; {
		var err error
		done, err = c.WritePart()
		require.NoError(x.t, err)
	}
	require.NoError(x.t, c.Finish())
}

// become continues with another file system; the store is closed.
func (x *script) become(mem *vfs.Mem) {
	x.s.Close()
	x.s = nil
	x.mem.Release()
	x.mem = mem
}

// crash cuts the power.
func (x *script) crash(p vfs.Policy) { x.become(x.mem.Crash(p, 1)) }

// file calls fn with the file of a file system.
func (x *script) file(mem *vfs.Mem, fn func(f vfs.File)) {
	f, err := mem.Open(toyPath, os.O_RDWR, 0)
	require.NoError(x.t, err)
	defer f.Close()
	fn(f)
}

// poke changes a byte of a page, durably.
func (x *script) poke(a Addr, at int) {
	x.file(x.mem, func(f vfs.File) {
		b := make([]byte, 1)
		_, err := f.ReadAt(b, int64(a)*PageSize+int64(at))
		require.NoError(x.t, err)
		b[0] ^= 0x40
		_, err = f.WriteAt(b, int64(a)*PageSize+int64(at))
		require.NoError(x.t, err)
		require.NoError(x.t, f.Datasync())
	})
}

// overwrite replaces a page, durably.
func (x *script) overwrite(a Addr, p []byte) {
	x.file(x.mem, func(f vfs.File) {
		_, err := f.WriteAt(p, int64(a)*PageSize)
		require.NoError(x.t, err)
		require.NoError(x.t, f.Datasync())
	})
}

// page returns the content of a page of the closed file.
func (x *script) page(a Addr) (p []byte) {
	x.file(x.mem, func(f vfs.File) { p = x.read(f, a) })
	return p
}

func (x *script) read(f vfs.File, a Addr) []byte {
	p := make([]byte, PageSize)
	_, err := f.ReadAt(p, int64(a)*PageSize)
	require.NoError(x.t, err)
	return p
}

// groups returns the numbers of the accepted page groups.
func (x *script) groups() (numbers []uint64) {
	for _, g := range x.rec.Groups {
		if g.Kind == PageGroup {
			numbers = append(numbers, g.No)
			require.EqualValues(x.t, len(g.Pages), g.Count)
			p, err := x.s.Page(g.Pages[0].Addr)
			require.NoError(x.t, err)
			require.Equal(x.t, byte(g.No), p[MuxSize])
		}
	}
	return numbers
}

func TestReopen(t *testing.T) {
	x := newScript(t)
	require.EqualValues(t, 2, x.s.LastGroup(), "two checkpoints")
	g := x.append(1)
	x.append(20) // over three segments
	x.append(3)
	last := x.s.LastGroup()
	x.s.Close()
	x.open()
	require.Equal(t, []uint64{g, g + 1, g + 2}, x.groups())
	require.Equal(t, last, x.s.LastGroup())
	require.Equal(t, last, x.s.Durable(), "what was recovered is durable")
	require.Zero(t, x.rec.Dropped)
	require.Equal(t, "table after 1", string(x.rec.Table))
}

func TestReopenGoesOnInPlace(t *testing.T) {
	x := newScript(t)
	var want []uint64
	for range 40 {
		want = append(want, x.append(1))
		x.sync()
		x.s.Close()
		x.open()
	}
	require.Equal(t, want, x.groups())
	require.LessOrEqual(t, x.s.tail.header.segment, uint32(12), "a clean opening does not leave the segment")
}

func TestCheckpointMovesTheScanStart(t *testing.T) {
	x := newScript(t)
	x.append(3)
	base := x.append(1)
	after := x.append(2)
	x.s.Rebase(base)
	x.checkpointFrom()
	x.s.Close()
	x.open()
	require.Equal(t, []uint64{after}, x.groups(), "the scan starts at the first group after the base")
	x.s.RebaseRecovered(x.rec, base)
	since := x.s.SinceCheckpoint()
	require.EqualValues(t, 3*PageSize, since, "two pages and the checkpoint")

	x.checkpointFrom()
	x.s.Close()
	x.open()
	require.Equal(t, []uint64{after}, x.groups(), "the same after a recovery")
	x.checkpoint()
	x.s.Close()
	x.open()
	require.Empty(t, x.rec.Groups, "nothing to scan after a clean close")
}

// A group of which only the first page reached the disk is cut off. Another group takes its place and its number.
func TestTornGroupDoesNotHideWhatFollows(t *testing.T) {
	x := newScript(t)
	x.sync()
	first := x.s.tail.page
	x.append(3)
	torn := x.mem.Clone()
	x.crash(vfs.KeepNone)
	x.file(torn, func(from vfs.File) { // the first page alone reached the disk
		x.file(x.mem, func(to vfs.File) {
			p := make([]byte, PageSize)
			from.ReadAt(p, int64(first)*PageSize)
			to.WriteAt(p, int64(first)*PageSize)
			require.NoError(t, to.Datasync())
		})
	})
	torn.Release()
	x.open()
	require.Empty(t, x.groups())
	require.EqualValues(t, 3, x.rec.Dropped)

	g := x.append(2)
	require.EqualValues(t, 3, g)
	x.append(1)
	x.sync()
	x.crash(vfs.KeepNone)
	x.open()
	require.Equal(t, []uint64{3, 4}, x.groups())
	require.Zero(t, x.rec.Dropped)
}

// A group continues in the next segment and loses one sector there. The next recovery drops the group, and the
// same group is written again, in the same places. If all of it is then lost except the one sector that both
// have in common, the old group would be whole again if it had not been invalidated.
func TestCutOffGroupIsNotMadeWholeByLaterSectors(t *testing.T) {
	x := newScript(t)
	x.appendTo(7)
	x.sync()
	x.append(2) // a page here, a page in the next segment
	dead := x.s.firstPage(x.s.tail.header.segment) + 1
	x.crash(vfs.KeepAll)
	x.file(x.mem, func(f vfs.File) { // an earlier life of the sector is still there
		_, err := f.WriteAt(slices.Repeat([]byte{0xAA}, vfs.SectorSize), int64(dead)*PageSize+5*vfs.SectorSize)
		require.NoError(t, err)
		require.NoError(t, f.Datasync())
	})
	x.open()
	before, shown := x.s.LastGroup(), x.groups()
	x.append(2)
	require.Equal(t, dead, x.s.firstPage(x.s.tail.header.segment)+x.s.tail.page-1, "the new page takes the place of the old one")

	written := x.mem.Clone()
	defer written.Release()
	x.crash(vfs.KeepNone)
	x.file(written, func(from vfs.File) {
		x.file(x.mem, func(to vfs.File) {
			p := make([]byte, vfs.SectorSize)
			at := int64(dead)*PageSize + 5*vfs.SectorSize
			from.ReadAt(p, at)
			to.WriteAt(p, at)
			require.NoError(t, to.Datasync())
		})
	})
	x.open()
	require.Equal(t, shown, x.groups())
	require.Equal(t, before, x.s.LastGroup())
}

// A segment of the chain whose only group was cut off contains only its header. It is needed as long as the scan
// passes through it.
func TestEmptyLinkIsNotReused(t *testing.T) {
	x := newScript(t)
	x.appendTo(8)
	x.checkpointFromEmpty()
	link := x.s.tail.header.successor
	for range 2 { // one header and then another, without a whole group between them
		x.append(1)
		a := x.end() - 1
		x.crash(vfs.KeepAll)
		x.poke(a, 100)
		x.open()
	}
	x.append(1)
	x.sync()
	require.GreaterOrEqual(t, x.s.Segments()[link].Group, x.s.supers[1].start.Group)
	x.s.space.Collect()
	require.NotEqual(t, Free, x.s.Segments()[link].State)
}

// checkpointFromEmpty makes a checkpoint with the tail's segment full, so that the scan starts at the end of
// the segment.
func (x *script) checkpointFromEmpty() {
	for {
		x.checkpoint()
		if x.s.tail.page == 8 {
			return
		}
	}
}

func TestSuperblockFallback(t *testing.T) {
	x := newScript(t)
	a := x.append(1)
	x.checkpoint()
	b := x.append(1)
	x.sync()
	newest := x.s.newestNumber() % 2
	x.crash(vfs.KeepNone)
	x.poke(newest, 200)
	x.open()
	require.Equal(t, []uint64{a, b}, x.groups(), "the scan starts at the older checkpoint")
	require.Nil(t, x.s.supers[newest])
	x.checkpoint()
	require.NotNil(t, x.s.supers[newest], "the damaged one is the next to be written")
	x.crash(vfs.KeepNone)
	x.open()
	require.Empty(t, x.groups())

	x.s.Close()
	x.poke(0, 200)
	x.poke(1, 200)
	_, _, err := Open(x.mem, toyPath, x.opts)
	require.ErrorIs(t, err, ErrCorrupt)
	x.file(x.mem, func(f vfs.File) { // as if neither superblock had been written; only the log in segment 0 is newer
		f.WriteAt(make([]byte, 2*PageSize), 0)
	})
	_, _, err = Open(x.mem, toyPath, x.opts)
	require.ErrorIs(t, err, ErrCorrupt)
}

func TestNewerFormatIsRefused(t *testing.T) {
	x := newScript(t)
	sb := *x.s.supers[0]
	x.s.Close()
	for _, edit := range []func(*superblock){
		func(sb *superblock) { sb.incompatible = knownFeatures + 1 },
		func(sb *superblock) { sb.incompatible, sb.number = knownFeatures+1, 0 }, // the older one only
	} {
		sb := sb
		edit(&sb)
		x.file(x.mem, func(f vfs.File) {
			p := make([]byte, PageSize)
			sb.put(p)
			f.WriteAt(p, 0)
		})
		_, _, err := Open(x.mem, toyPath, x.opts)
		require.ErrorIs(t, err, ErrFormat)
	}
}

// A hole before groups that were durable is damage; a hole after them is the end of the log.
func TestHole(t *testing.T) {
	const groups = 12
	build := func(t *testing.T) (x *script, at map[uint64]Addr) {
		x, at = newScript(t), map[uint64]Addr{}
		for i := range groups {
			no := x.append(1)
			at[no] = x.end() - 1
			if i == 5 || i == 9 {
				x.sync() // later groups then say that these are durable
			}
		}
		x.crash(vfs.KeepAll)
		return x, at
	}
	x, at := build(t)
	x.open()
	require.Len(t, x.groups(), groups)
	first := x.groups()[0]
	for i := range uint64(groups) {
		t.Run(fmt.Sprint("group ", i), func(t *testing.T) {
			x, _ := build(t)
			x.poke(at[first+i], 300)
			if i < 10 { // groups 6 to 11 say that these are durable
				_, _, err := Open(x.mem, toyPath, x.opts)
				require.ErrorIs(t, err, ErrCorrupt)
				var page *PageError
				require.ErrorAs(t, err, &page)
				require.Equal(t, at[first+i], page.Addr)
				return
			}
			x.open()
			require.Len(t, x.groups(), int(i), "no later page vouches for it")
			require.Equal(t, first+i, x.rec.Dropped, "but it is reported")
		})
	}
}

// A page that is not the one written there breaks the chain after it, even if its own checksum is correct.
func TestDigestBindsGroupsTogether(t *testing.T) {
	for _, last := range []bool{false, true} {
		x := newScript(t)
		var first []Addr // page of each group
		var want []uint64
		for range 12 {
			want = append(want, x.append(1))
			first = append(first, x.s.firstPage(x.s.tail.header.segment)+x.s.tail.page-1)
		}
		changed := slices.IndexFunc(first, func(a Addr) bool { return a%8 == 4 })
		if last { // the last page of its segment: the next header has the digest
			changed = slices.IndexFunc(first, func(a Addr) bool { return a%8 == 7 })
		}
		x.s.Close()
		a := first[changed]
		x.file(x.mem, func(f vfs.File) {
			p, h := make([]byte, PageSize), make([]byte, PageSize)
			f.ReadAt(h, int64(a/8*8+headerPage(uint32(a/8)))*PageSize)
			header, ok := getHeaderCopy(h)
			require.True(t, ok)
			f.ReadAt(p, int64(a)*PageSize)
			p[2000]++
			binary.LittleEndian.PutUint32(p, pageCRC(header.salt, a, p))
			f.WriteAt(p, int64(a)*PageSize)
		})
		x.open()
		require.Equal(t, want[:changed+1], x.groups())
	}
}

func TestDamagedHeaderHasACopy(t *testing.T) {
	x := newScript(t)
	var want []uint64
	for range 20 {
		want = append(want, x.append(1))
	}
	x.sync()
	segments := x.s.tail.header.segment
	x.crash(vfs.KeepNone)
	for n := range segments + 1 {
		a := x.headerOf(n)
		x.poke(a, 50)
		x.open()
		require.Equal(t, want, x.groups())
		x.s.Close()
		x.poke(a, 50)
	}
}

func (x *script) headerOf(n uint32) Addr { return uint64(n)*8 + headerPage(n) }

// After a kill some groups are only in the system's cache. Once recovery has shown them, they are durable, and so is
// everything that leads to them.
func TestKillThenPowerCut(t *testing.T) {
	x := newScript(t)
	a := x.append(2)
	b := x.append(9)
	x.become(x.mem.Clone())
	x.open()
	require.Equal(t, []uint64{a, b}, x.groups())
	x.crash(vfs.KeepNone)
	x.open()
	require.Equal(t, []uint64{a, b}, x.groups())
}

func TestDroppedGroupPoisons(t *testing.T) {
	x := newScript(t)
	require.NoError(t, x.s.Reserve(2, true))
	g := x.s.Begin(PageGroup)
	g.Page(BornBit | 1)
	g = x.s.Begin(PageGroup)
	g.Page(BornBit | 1)
	_, err := g.Commit(1)
	require.ErrorIs(t, err, ErrFailed)
	require.ErrorIs(t, x.s.Sync(), ErrFailed)
}

func TestUnreservedPagesPoison(t *testing.T) {
	x := newScript(t)
	g := x.s.Begin(PageGroup)
	for range 1000 {
		g.Page(BornBit | 1)
	}
	_, err := g.Commit(1)
	require.ErrorIs(t, err, ErrFailed)
	x.s.Close()
	x.open()
	require.Empty(t, x.groups())
}

// Runs are found whole in any segment, also in the first one, and across the scan's windows.
func TestRunsOfAllLengths(t *testing.T) {
	inTurn(t)
	for _, segmentPages := range []uint32{8, 1024} {
		x := newScript(t)
		if segmentPages != 8 {
			x.become(vfs.NewMem(64 << 20))
			x.opts.SegmentPages = segmentPages
			x.open()
			x.checkpoint()
			x.checkpoint()
		}
		s := x.s
		want := map[Addr][]byte{}
		for i, n := range []int64{0, 1, runFirstBytes, runFirstBytes + 1, runFirstBytes + PageSize, s.MaxRun()/2 + 3, s.MaxRun() - 1, s.MaxRun()} {
			b := make([]byte, n)
			for j := range b {
				b[j] = byte(j*7 + i)
			}
			pages := RunReserve(RunPages(n))
			require.NoError(t, s.Reserve(pages, true))
			g := s.Begin(RecordGroup)
			a := g.Run(0, b[:n/3], nil, b[n/3:])
			_, err := g.Commit(0)
			require.NoError(t, err)
			s.Release(pages)
			want[a] = b
		}
		check := func() {
			for a, b := range want {
				got, err := x.s.Run(a)
				require.NoError(t, err)
				require.Equal(t, b, append([]byte{}, got...))
			}
		}
		check()
		x.s.Close()
		x.open()
		require.Len(t, x.rec.Groups, len(want))
		check()

		for a, b := range want {
			if int64(len(b)) == x.s.MaxRun() {
				x.s.Close()
				x.poke(a+uint64(RunPages(x.s.MaxRun()))-1, 17)
				x.open()
				require.Len(t, x.rec.Groups, len(want)-1, "a run damaged in its last page cuts its group off")
			}
		}
	}
}
