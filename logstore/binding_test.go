package logstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// Each test in this file checks one of the rules that bind the parts of the log to each other and to their places.

// The log continues in a segment only if the segment's header continues the chain exactly there: it names the
// predecessor's salt, has the next sequence number, and names the expected group, page index and digest.
func TestHeaderContinuesTheChain(t *testing.T) {
	changes := map[string]func(h *header){
		"predecessor": func(h *header) { h.predecessor ^= 1 << 40 },
		"sequence":    func(h *header) { h.sequence++ },
		"group":       func(h *header) { h.group++ },
		"page":        func(h *header) { h.index++ },
		"digest":      func(h *header) { h.digest ^= 1 },
		"private":     func(h *header) { h.private = true },
		"none":        func(h *header) {},
	}
	for name, change := range changes {
		x := newScript(t)
		from := x.s.tail.header.segment
		var before, all []uint64
		for x.s.tail.header.segment == from || x.s.tail.page < 4 {
			if g := x.append(1); x.s.tail.header.segment == from {
				before = append(before, g)
				all = append(all, g)
			} else {
				all = append(all, g)
			}
		}
		n := x.s.tail.header.segment
		x.s.Close()
		x.file(x.mem, func(f vfs.File) {
			p := make([]byte, PageSize)
			at := int64(x.headerOf(n)) * PageSize
			_, err := f.ReadAt(p, at)
			require.NoError(t, err)
			h, ok := getHeader(p, n, x.s.uuid)
			require.True(t, ok)
			change(&h)
			h.put(p)
			_, err = f.WriteAt(p, at)
			require.NoError(t, err)
		})
		x.openOnly()
		if name == "none" {
			require.Equal(t, all, x.groups(), name)
		} else {
			require.Equal(t, before, x.groups(), name)
			require.Equal(t, from, x.s.tail.header.segment, name)
		}
	}
}

// Before a page is appended, the remains of interrupted groups are invalid on the disk, and nothing else has changed.
// The n-th page after the end of the log can only belong to one of the next n+1 groups. A page with another group
// number is of an earlier life of the segment, or holds bytes of values.
func TestWhatIsInvalidated(t *testing.T) {
	for ahead, invalid := range map[int64]bool{-1: false, 0: true, 1: true, 2: true, 3: false, 1 << 40: false} {
		x := newScript(t)
		next := x.append(1) + 1
		for x.s.tail.page+3 >= 8 {
			next = x.append(1) + 1
		}
		x.sync()
		end := x.end()
		x.crash(vfs.KeepAll)
		before, empty := make([]byte, PageSize), make([]byte, PageSize)
		m := mux{kind: KindRecord, digest: 77, group: uint64(int64(next) + ahead)}
		m.put(before)
		before[2000] = 1
		x.overwrite(end+2, before)
		x.open()
		x.crash(vfs.KeepNone)
		want := before
		if invalid {
			want = make([]byte, PageSize)
			m = mux{group: m.group}
			m.put(want)
		}
		require.Equal(t, want, x.page(end+2), "%d groups ahead", ahead)
		require.Equal(t, empty, x.page(end+1))
		x.open()
		require.Equal(t, next-1, x.s.LastGroup())
		require.Equal(t, end, x.s.firstPage(x.s.tail.header.segment)+x.s.tail.page, "the log goes on in place")
	}
}

// After a failed sync the system assumes that the invalidated pages are written, while the disk still has the old
// pages. The next recovery invalidates them again.
func TestInvalidatedAgainAfterAFailedSync(t *testing.T) {
	x := newScript(t)
	x.mem.SetLoss(vfs.LoseLater, 0)
	x.appendTo(6)
	x.sync()
	last, end := x.s.LastGroup(), x.s.firstPage(x.s.tail.header.segment)+6
	opened := x.headerOf(x.s.tail.header.successor)
	x.append(3) // two pages here, one in the successor
	x.crash(vfs.KeepAll)
	x.poke(end, 500)
	was := [][]byte{x.page(end), x.page(end + 1), x.page(opened)}
	now := func() [][]byte { return [][]byte{x.page(end), x.page(end + 1), x.page(opened)} }

	x.mem.OnOp(func(op vfs.Op) error {
		if op.Kind == vfs.OpDatasync {
			return errors.New("lost")
		}
		return nil
	})
	x.openOnly()
	require.Equal(t, last, x.s.LastGroup())
	require.Error(t, x.s.EndRecovery(x.rec))
	x.become(x.mem.Clone()) // killed
	for i, p := range now() {
		require.NotEqual(t, was[i], p, "invalidated, as far as the system knows")
	}
	lost := x.mem.Crash(vfs.KeepNone, 1)
	for i, a := range []Addr{end, end + 1, opened} {
		x.file(lost, func(f vfs.File) { require.Equal(t, was[i], x.read(f, a), "and not on the disk") })
	}
	lost.Release()

	x.open()
	invalidated := now()
	x.crash(vfs.KeepNone)
	require.Equal(t, invalidated, now())
	x.open()
	require.Equal(t, last, x.s.LastGroup())
	require.Equal(t, last+1, x.append(3))
	x.sync()
	x.crash(vfs.KeepNone)
	x.open()
	require.Equal(t, last+1, x.s.LastGroup())
}

// A power cut may keep only the second copy of the header of a segment that was cut off, while the first copy is of an
// earlier life. The second copy is invalidated too. Otherwise it would count if the first copy were damaged later.
func TestBothCopiesOfAHeaderAreInvalidated(t *testing.T) {
	for _, kept := range []int{0, headerCopyAt} {
		x := newScript(t)
		x.appendTo(7)
		x.sync()
		opened := x.headerOf(x.s.tail.header.successor)
		x.append(2) // a page here, one in the successor
		x.crash(vfs.KeepAll)
		x.poke(opened+1, 500)
		p := x.page(opened)
		h, ok := getHeaderCopy(p)
		require.True(t, ok)
		other, earlier := h, make([]byte, PageSize)
		other.predecessor, other.salt = 1, 2
		other.put(earlier)
		copy(earlier[kept:kept+headerSize], p[kept:])
		x.overwrite(opened, earlier)
		x.open()
		x.crash(vfs.KeepNone)
		want := make([]byte, PageSize)
		h.group = invalidGroup
		h.put(want)
		require.Equal(t, want, x.page(opened), "copy at %d", kept)
		x.open()
	}
}

// A reader beside a writer has seen a group that the next recovery does not find, because the system has dropped some
// or all of its pages after a failed sync. The reader starts again, and uses no page from before that.
func TestLostGroupBeside(t *testing.T) {
	for name, drop := range map[string]func(x *script, a Addr){
		"the last page": func(x *script, a Addr) { x.poke(a+1, 500) },
		"all pages": func(x *script, a Addr) {
			x.overwrite(a, make([]byte, PageSize))
			x.overwrite(a+1, make([]byte, PageSize))
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newScript(t)
			x.appendTo(3)
			x.sync()
			durable := x.s.firstPage(x.s.tail.header.segment) + 2
			shown := x.append(2)
			opts := x.opts
			opts.Beside = true
			open := func() *Store {
				r, rec, err := Open(x.mem, toyPath, opts)
				require.NoError(t, err)
				t.Cleanup(func() { r.Close() })
				require.NoError(t, r.EndRecovery(rec))
				return r
			}
			r, other := open(), open()
			require.Equal(t, shown, r.LastGroup())
			require.False(t, r.CheckpointedSince(shown))

			x.s.Close()
			drop(x, durable+1)
			x.open()
			require.Equal(t, shown-1, x.s.LastGroup())
			require.Equal(t, shown, x.append(2), "another group in the same place")
			x.sync()
			x.append(1) // says that the one before it is durable
			gone := func(r *Store) {
				_, err := r.Page(durable + 1)
				require.ErrorIs(t, err, ErrCorrupt, "it is none of the pages that were shown")
				require.True(t, r.CheckpointedSince(shown), "nor damage")
				_, err = r.Page(durable)
				require.NoError(t, err, "a group that the writer had known to be durable")
			}
			gone(r)
			groups, lost, err := r.Follow(1)
			require.NoError(t, err)
			require.True(t, lost)
			require.Empty(t, groups)
			gone(r) // as seen by transactions that began before

			again := open()
			require.Equal(t, shown+1, again.LastGroup())
			x.append(1)
			groups, lost, err = again.Follow(1)
			require.NoError(t, err)
			require.False(t, lost)
			require.Len(t, groups, 1)
			_, err = again.Page(durable + 1)
			require.NoError(t, err)

			x.poke(Addr(x.s.newestNumber()%2), 300) // the superblock with the new lineage
			gone(other)
			_, lost, err = other.Follow(1)
			require.NoError(t, err)
			require.True(t, lost)
			x.poke(Addr(x.s.newestNumber()%2), 300)
			x.checkpoint()
			gone(other)
			lineage := x.s.lineage
			x.crash(vfs.KeepAll)
			x.openOnly()
			require.Equal(t, lineage, x.s.lineage, "checkpoints keep it")
		})
	}
}

// A crash wastes no space: the log continues where it ended, whatever was cut off there.
func TestCrashTakesNoRoom(t *testing.T) {
	x := newScript(t)
	x.appendTo(3)
	x.sync()
	room := x.s.Room()
	for range 10 {
		end := x.end()
		require.NoError(t, x.s.Reserve(7, true))
		x.s.Release(7)
		before := x.s.Room()
		require.LessOrEqual(t, room, before)
		x.append(7)
		x.crash(vfs.KeepAll)
		x.poke(end+2, 500)
		x.open()
		require.Equal(t, before, x.s.Room())
	}
}

// If a power cut has kept only the first copy of a header, recovery restores the second copy before the log
// continues in that segment. Commits acknowledged after that are found even if the first copy is damaged later.
func TestTornHeaderIsMadeWhole(t *testing.T) {
	x := newScript(t)
	for first := x.s.tail.header.segment; x.s.tail.header.segment == first || x.s.tail.page < 2; {
		x.append(1)
	}
	n := x.s.tail.header.segment
	lose := func(at int64, bytes int) {
		x.crash(vfs.KeepAll)
		x.file(x.mem, func(f vfs.File) {
			_, err := f.WriteAt(make([]byte, bytes), int64(x.headerOf(n))*PageSize+at)
			require.NoError(t, err)
			require.NoError(t, f.Datasync())
		})
		x.open()
	}
	lose(headerCopyAt, PageSize-headerCopyAt)
	last := x.append(1)
	x.sync()
	lose(0, 512)
	require.Equal(t, last, x.s.LastGroup())
}

// A sync makes durable what was written before it began, not what was written during it.
func TestSyncCoversWhatCameBefore(t *testing.T) {
	x := newScript(t)
	before := x.append(1)
	var during uint64
	x.mem.OnOp(func(op vfs.Op) error {
		if op.Kind == vfs.OpDatasync && during == 0 {
			during = x.append(1)
		}
		return nil
	})
	x.sync()
	x.mem.OnOp(nil)
	require.Equal(t, before, x.s.Durable())
	x.sync()
	require.Equal(t, during, x.s.Durable())
}

// A run that was read before is not accepted as a page of the tree, nor a page of the tree as a run.
func TestKindsAreNotMixedUp(t *testing.T) {
	x := newScript(t)
	s := x.s
	require.NoError(t, s.Reserve(10, true))
	defer s.Release(10)
	g := s.Begin(PageGroup)
	run := g.Run(0, []byte("a value"))
	page, _ := g.Page(BornBit | 1)
	_, err := g.Commit(1)
	require.NoError(t, err)
	for range 2 {
		_, err = s.Run(run)
		require.NoError(t, err)
		_, err = s.Page(page)
		require.NoError(t, err)
		_, err = s.Page(run)
		require.ErrorIs(t, err, ErrCorrupt)
		_, err = s.Run(page)
		require.ErrorIs(t, err, ErrCorrupt)
		require.NoError(t, s.Sync()) // what a sync has covered is not checked again
	}
}

// The length of a run is checked against what is possible before anything is read or allocated by it, even if
// the page's checksum is correct.
func TestHostileRunLength(t *testing.T) {
	x := newScript(t)
	require.NoError(t, x.s.Reserve(10, true))
	g := x.s.Begin(PageGroup)
	a := g.Run(0, make([]byte, 2*PageSize))
	_, err := g.Commit(1)
	require.NoError(t, err)
	x.s.Release(10)
	x.s.Close()
	limit := uint64(x.s.MaxRun())
	for _, length := range []uint64{limit, limit + 1, 1 << 31, 1<<31 + 1, 1 << 32, 1 << 63, 1<<63 + 1, math.MaxUint64 - PageSize, math.MaxUint64} {
		x.file(x.mem, func(f vfs.File) {
			p, h := make([]byte, PageSize), make([]byte, PageSize)
			f.ReadAt(h, int64(x.headerOf(x.s.segmentOf(a)))*PageSize)
			header, ok := getHeaderCopy(h)
			require.True(t, ok)
			f.ReadAt(p, int64(a)*PageSize)
			binary.LittleEndian.PutUint64(p[MuxSize:], length)
			binary.LittleEndian.PutUint32(p, pageCRC(header.salt, a, p))
			f.WriteAt(p, int64(a)*PageSize)
		})
		x.openOnly()
		require.Empty(t, x.groups(), "length %d", length)
		_, err := x.s.Run(a)
		require.ErrorIs(t, err, ErrCorrupt, "length %d", length)
		x.s.Close()
	}
	x.s = nil
}

// What recovery has shown survives, even if after a failed sync the system assumes that it is written: pages, the
// headers that lead to them, and the chosen superblock.
func TestFailedSyncThenKillThenPowerCut(t *testing.T) {
	x := newScript(t)
	x.mem.SetLoss(vfs.LoseLater, 0)
	failSyncs := func(from int) {
		n := 0
		x.mem.OnOp(func(op vfs.Op) error {
			if op.Kind == vfs.OpDatasync {
				if n++; n >= from {
					return errors.New("lost")
				}
			}
			return nil
		})
	}
	afterwards := func() (groups []uint64, checkpoint uint64) {
		killed := x.mem.Clone()
		x.become(killed)
		x.open()
		groups, checkpoint = x.groups(), x.rec.super.number
		x.crash(vfs.KeepNone)
		x.open()
		return groups, checkpoint
	}

	// The file must not grow in between, because growth syncs too.
	require.NoError(t, x.s.Reserve(40, true))
	x.s.Release(40)
	want := []uint64{x.append(2), x.append(20)}
	require.NoError(t, x.s.Reserve(10, true))
	g := x.s.Begin(RecordGroup)
	value := bytes.Repeat([]byte("value "), 2000)
	run := g.Run(0, value)
	_, err := g.Commit(0)
	require.NoError(t, err)
	x.s.Release(10)
	want = append(want, x.append(1))
	failSyncs(1)
	require.Error(t, x.s.Sync())
	groups, _ := afterwards()
	require.Equal(t, want, groups)
	require.Equal(t, want, x.groups())
	found, err := x.s.Run(run)
	require.NoError(t, err)
	require.Equal(t, value, found)

	failSyncs(2) // the second one is the sync of the superblock
	x.s.Rebase(x.s.LastGroup())
	require.NoError(t, x.s.Reserve(4, true))
	c := x.s.BeginCheckpoint(nil)
	for done := false; !done; {
		var err error
		done, err = c.WritePart()
		require.NoError(t, err)
	}
	before := x.rec.super.number
	require.Error(t, c.Finish())
	_, checkpoint := afterwards()
	require.Equal(t, before+1, checkpoint)
	require.Equal(t, checkpoint, x.rec.super.number)
}

// A large value may hold any bytes. Even if one of its pages has the right checksum of a page of the log, that page
// does not prove that any group was durable.
func TestValuesDoNotVouch(t *testing.T) {
	x := newScript(t)
	x.append(1)
	v := x.s.NewPrivate()
	_, err := v.Write(make([]byte, PageSize))
	require.NoError(t, err)
	a := v.Start() + 1
	salt, ok := x.s.space.SaltOf(a)
	require.True(t, ok)
	page := make([]byte, PageSize)
	m := mux{kind: KindTree, flags: uint8(PageGroup)<<groupKindAt | flagLast, name: BornBit | 1, group: x.s.LastGroup() + 100, pages: 1, count: 1}
	m.put(page)
	binary.LittleEndian.PutUint32(page, pageCRC(salt, a, page))
	_, err = v.Write(page)
	require.NoError(t, err)
	_, err = v.Finish()
	require.NoError(t, err)
	x.sync()
	want := x.s.LastGroup()
	x.crash(vfs.KeepAll)
	x.open()
	require.Equal(t, want, x.s.LastGroup())
}

// Pages that were verified before their segment was reused are verified again afterwards.
func TestForgetsWhatWasChecked(t *testing.T) {
	x := newScript(t)
	write := func(fill byte) (*Private, Extent) {
		v := x.s.NewPrivate()
		_, err := v.Write(bytes.Repeat([]byte{fill}, 2*PageSize))
		require.NoError(t, err)
		extents, err := v.Finish()
		require.NoError(t, err)
		require.NoError(t, x.s.SyncPrivate())
		return v, extents[0]
	}
	v, before := write(1)
	_, err := x.s.Raw(before)
	require.NoError(t, err)
	v.Discard()
	v, after := write(2)
	require.Equal(t, before.Addr, after.Addr)
	x.poke(after.Addr, 100)
	_, err = x.s.Raw(after)
	require.ErrorIs(t, err, ErrCorrupt)
	v.Discard()
}

// Each life of each segment has its own salt.
func TestSaltIsDrawnAnew(t *testing.T) {
	x := newScript(t)
	type life struct {
		segment  uint32
		sequence uint64
	}
	salts := map[uint64]life{}
	lives := map[uint32]map[uint64]bool{}
	again := 0
	for range 400 {
		x.append(1)
		if x.s.LastGroup()%6 == 0 {
			x.checkpoint()
		}
		h := x.s.tail.header
		if now, ok := salts[h.salt]; ok {
			require.Equal(t, life{h.segment, h.sequence}, now)
			continue
		}
		salts[h.salt] = life{h.segment, h.sequence}
		if lives[h.segment] == nil {
			lives[h.segment] = map[uint64]bool{}
		}
		lives[h.segment][h.sequence] = true
		again = max(again, len(lives[h.segment]))
	}
	require.GreaterOrEqual(t, again, 3, "lives of a segment")
}
