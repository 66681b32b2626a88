package dbm

import (
	"cmp"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
)

// Offsets in an entry of the space map, see docs/format.md.
const (
	mapState, mapForm, mapSalt, mapSequence, mapLast, mapLive = 0, 1, 2, 10, 18, 26
	streamTable                                               = logstore.MuxSize // length of the table, u64; that of the map follows
)

// spaceMap returns the entries of the space map in the checkpoint whose only page is at a. It returns none if the
// checkpoint has more pages or is already damaged. Segments are so small here that the live map is one word.
func (h *hostile) spaceMap(a int) (entries [][]byte) {
	p := h.page(a)
	table := le.Uint64(p[streamTable:])
	if table > logstore.PageSize-64 {
		return nil
	}
	b := p[streamTable+16+table:]
	if len(b) < 4 {
		return nil
	}
	count := le.Uint32(b)
	b = b[4:]
	for range count {
		n := mapLive
		if len(b) >= n && b[mapForm] > 0 {
			n += 8
		}
		if len(b) >= n && b[mapForm] == 2 {
			n += maskBytes*h.segment/logstore.PageSize + mapMean + mapRaw
		}
		if len(b) < n {
			return nil
		}
		entries = append(entries, b[:n])
		b = b[n:]
	}
	return entries
}

// space changes an entry of the space map.
func (h *hostile) space() {
	if len(h.kinds[logstore.KindCheckpoint]) == 0 {
		return
	}
	a := one(h.rng, h.kinds[logstore.KindCheckpoint])
	entries := h.spaceMap(a)
	if len(entries) == 0 {
		return
	}
	n := h.rng.IntN(len(entries))
	e, other := entries[n], entries[h.rng.IntN(len(entries))]
	switch h.rng.IntN(8) {
	case 0:
		e[mapState] = byte(h.rng.IntN(5))
	case 1:
		e[mapForm] ^= 1
	case 2:
		le.PutUint64(e[mapSequence:], oddNumber[uint64](h.rng, h.sealer))
	case 3:
		le.PutUint64(e[mapLast:], oddNumber[uint64](h.rng, h.sealer))
	case 4: // no page is live, or all, or others
		if len(e) > mapLive {
			le.PutUint64(e[mapLive:], one(h.rng, []uint64{0, 0xF8, 0xFE, h.rng.Uint64() & 0xFE, 1, 1 << 63}))
		}
	case 5: // no page of any segment is live
		for _, e := range entries {
			clear(e[mapLive:])
		}
	case 6: // the live pages of another segment
		copy(e[mapSalt:mapLive], other[mapSalt:mapLive])
	case 7: // all segments have the same state, or were never written
		for _, e := range entries {
			if h.rng.IntN(2) == 0 {
				e[mapState] = byte(n % 4)
			} else {
				le.PutUint64(e[mapLast:], 0)
			}
		}
	}
	h.note("segment %d in the space map of page %d", n, a)
}

// TestHostileMap: a space map that says that no page is live contradicts the tree. A transaction that needs a page
// that is free for other uses gets an error, so nothing that was shown changes while it is read.
func TestHostileMap(t *testing.T) {
	whole, err := drawBase(hostileClosed(t))
	require.NoError(t, err)
	s := whole.spoiled(func(h *hostile) {
		n := 0
		for _, a := range h.kinds[logstore.KindCheckpoint] {
			for _, e := range h.spaceMap(a) {
				clear(e[mapLive:])
				n++
			}
		}
		require.NotZero(t, n)
	})
	mem := s.mem(len(s.file))
	defer mem.Release()
	for _, readOnly := range []bool{true, false} {
		o := s.load.options(rand.New(rand.NewPCG(1, 1)))
		o.Store.ReadOnly = readOnly
		db, err := openEngine(mem, crashPath, o)
		require.NoError(t, err)
		_, err = scan(db, nil)
		require.ErrorIs(t, err, ErrCorrupt)
		require.ErrorContains(t, err, "nothing is here")
		db.Close()
	}
}

// TestHostileAbsent: a space map says that a segment does not exist but has live pages. The segment would be filled
// and overwritten, so the file is refused.
func TestHostileAbsent(t *testing.T) {
	whole, err := drawBase(hostileClosed(t))
	require.NoError(t, err)
	s := whole.spoiled(func(h *hostile) {
		n := 0
		for _, a := range h.kinds[logstore.KindCheckpoint] {
			for _, e := range h.spaceMap(a) {
				if len(e) > mapLive {
					e[mapState] = 0
					n++
				}
			}
		}
		require.NotZero(t, n)
	})
	mem := s.mem(len(s.file))
	defer mem.Release()
	_, err = openEngine(mem, crashPath, s.load.options(rand.New(rand.NewPCG(1, 1))))
	require.ErrorIs(t, err, ErrCorrupt)
	require.ErrorContains(t, err, "the segment is absent")
	o := s.load.options(rand.New(rand.NewPCG(1, 1)))
	o.Store.ReadOnly = true
	db, err := openEngine(mem, crashPath, o)
	require.NoError(t, err)
	defer db.Close()
	_, err = scan(db, nil)
	require.ErrorIs(t, err, ErrCorrupt)
}

// TestHostileSuccessor: the last segment of the log names as its successor one that is in use. It is not
// overwritten.
func TestHostileSuccessor(t *testing.T) {
	whole, err := drawBase(hostileClosed(t))
	require.NoError(t, err)
	s := whole.spoiled(func(h *hostile) {
		tail := h.chain[len(h.chain)-1] / (h.segment / logstore.PageSize)
		to := slices.IndexFunc(h.spaceMap(h.newestMap()), func(e []byte) bool { return len(e) > mapLive })
		require.GreaterOrEqual(t, to, 0)
		require.NotEqual(t, tail, to)
		le.PutUint32(h.page(h.headerOf(tail))[headerSuccessor:], uint32(to))
	})
	mem := s.mem(len(s.file))
	defer mem.Release()
	o := s.load.options(rand.New(rand.NewPCG(1, 1)))
	_, err = openEngine(mem, crashPath, o)
	require.ErrorIs(t, err, ErrCorrupt)
	require.ErrorContains(t, err, "is in use")
}

// TestHostileEnd: the superblocks say that the log ends before pages that the tree uses. The pages are not
// overwritten.
func TestHostileEnd(t *testing.T) {
	whole, err := drawBase(hostileClosed(t))
	require.NoError(t, err)
	s := whole.spoiled(func(h *hostile) {
		entries := h.spaceMap(h.newestMap())
		segment := slices.IndexFunc(entries, func(e []byte) bool { return len(e) > mapLive })
		require.GreaterOrEqual(t, segment, 0)
		last := bits.Len64(le.Uint64(entries[segment][mapLive:])) - 1 // last live page of that segment
		for slot := range 2 {
			p := h.page(slot)[superStart:]
			le.PutUint32(p[posSegment:], uint32(segment))
			le.PutUint32(p[posPage:], uint32(last))
			copy(p[posCheck:posCheck+4], h.page(h.headerOf(segment))[headerSalt:])
			le.PutUint64(p[posGroup:], le.Uint64(h.page(h.newestMap())[muxGroup:])+1) // a group that no page of the log covers
		}
	})
	mem := s.mem(len(s.file))
	defer mem.Release()
	_, err = openEngine(mem, crashPath, s.load.options(rand.New(rand.NewPCG(1, 1))))
	require.ErrorIs(t, err, ErrCorrupt)
	require.ErrorContains(t, err, "lies behind the end of the log")
	require.Equal(t, s.file, content(mem, 0, fileSize(mem)))
}

// TestHostileName: the translation table has a name that the log has not given yet, which is the address of the
// page that it will write next. The page that gets this name would be read at the place in the table.
func TestHostileName(t *testing.T) {
	inTurn(t)
	var s *specimen
	for seed := uint64(0); s == nil; seed++ {
		whole, err := drawBase(seed)
		require.NoError(t, err)
		whole.spoiled(func(h *hostile) {
			if p := h.page(h.newestMap()); whole.closed && le.Uint64(p[tableCount:]) > 1 && h.chain[len(h.chain)-1]%(h.segment/logstore.PageSize) < 5 {
				s = whole
			}
		})
	}
	bad := s.spoiled(func(h *hostile) {
		p, n := h.page(h.newestMap())[tableEntries:], int(le.Uint64(h.page(h.newestMap())[tableCount:]))
		for i := range n {
			if e := p[i*tableEntryBytes:]; le.Uint64(e)>>62 != 3 { // not the root
				le.PutUint64(e, uint64(h.chain[len(h.chain)-1]+1))
				return
			}
		}
		t.Fatal("no name but the root's")
	})
	mem := bad.mem(len(s.file))
	defer mem.Release()
	_, err := openEngine(mem, crashPath, s.load.options(rand.New(rand.NewPCG(1, 1))))
	require.ErrorIs(t, err, ErrCorrupt)
	require.ErrorContains(t, err, "has yet to write")
	require.Equal(t, bad.file, content(mem, 0, fileSize(mem)))
}

// newestMap returns the page of the newest space map.
func (h *hostile) newestMap() int {
	return slices.MaxFunc(h.kinds[logstore.KindCheckpoint], func(a, b int) int {
		return cmp.Compare(le.Uint64(h.page(a)[muxGroup:]), le.Uint64(h.page(b)[muxGroup:]))
	})
}

// hostileClosed returns the seed of a base of three levels that was closed.
func hostileClosed(t *testing.T) uint64 {
	for seed := range uint64(1000) {
		if s, err := drawBase(seed); err == nil && s.closed && s.load.style == 4 {
			return seed
		}
	}
	t.Fatal("no such base")
	return 0
}
