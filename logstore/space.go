package logstore

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sync"
)

type segmentState uint8

const (
	segmentAbsent  segmentState = iota // not allocated, as far as is known: beyond the end of the file, punched, or condemned
	segmentFree                        // allocated and on the free list: may be opened at once
	segmentUsed                        // holds pages of the log or of large values, dead or alive
	segmentPrivate                     // owned by an active transaction, for a large value
	segmentStates
)

// A segment is the unit of space reuse. A used segment may be opened again only if all of these hold (each rule prevents a loss that a
// model of random crashes showed):
//
//  1. none of its pages is live, and none was as of the newest durable checkpoint;
//  2. it was last written before the scan start of the older valid superblock;
//  3. no page of either superblock's checkpoint run is in it;
//  4. no name of the translation table lies in it;
//  5. no snapshot lies between the birth of its first page and the death of its last, so no reader can still look at it (lifetime.go);
//  6. no active transaction owns it, and it is neither the log's tail nor the tail's successor.
type segment struct {
	salt        uint64
	sequence    uint64   // number in its header
	written     uint64   // last group with a page in it
	wrote       uint64   // segmentPrivate: number of the newest write in it, see privateSyncs
	birth       uint64   // no reader below birth reaches any of its pages; unborn if none was marked live, 0 if unknown
	death       uint64   // if no page lives: no reader at or above death reaches any of its pages
	names       int32    // number of the translation table's names that are addresses in it
	heldNames   int32    // number of those names that only readers want
	live        int32    // number of set bits of liveMap
	liveMap     []uint64 // bitmap of the live pages; nil until there is one
	seenMap     []uint64 // bitmap of the dead pages that a reader sees, see thin.go; nil until there is one
	diedMap     []uint64 // bitmap of the pages that have died in this life of the segment since Open; nil until there is one
	nodeMap     []uint64 // bitmap of the pages known to be nodes of the tree, see useNode; nil until there is one
	masks       []uint16 // for each page, which of its logged values live; nil until there is one
	values      int32    // number of live logged values
	valueBytes  int32    // average bytes of the records of those values
	loggedPages int32    // number of pages with logged values, raw pages included
	raw         []uint64 // bitmap of the raw pages that belong to the page of records before them; allocated together with masks
	state       segmentState
	dead        bool // no page was live as of the newest durable checkpoint
	deadNext    bool // no page is live as of the checkpoint being written
	blank       bool // allocated and not written since: see ZeroAhead
}

// space is the map of the file: which pages are live and which segments are free. mu guards all fields and is a leaf lock.
type space struct {
	mu           sync.Mutex
	segmentPages uint64
	words        uint64 // words of a segment's bitmap
	segments     []segment
	free         []uint32 // free segments, highest number first: the lowest is taken first, so that the end of the file can be cut off
	pages        uint64   // allocated pages of the file
	maxPages     uint64
	limited      bool                 // MaxFileSize is set
	punched      uint64               // number of absent segments within the file, condemned ones not counted
	leaving      map[uint32]condemned // absent segments whose space is, or may be, still allocated
	reserved     int64                // pages promised to transactions and not yet appended
	credit       credit               // part of reserved
	snapshots    []uint64             // where readers may be, ascending: see SetSnapshots
	deaths       []deadPages          // deaths above the last of the snapshots
	places       map[Addr]int32       // places that readers hold: see HoldPlace
	thin         map[uint32]thinned   // segments chosen for thinning: see thin.go
	holes        uint64               // number of pages of those segments that have no space
	tail         uint32               // segment being appended to
	tailPage     uint64               // next page in it
	successor    uint32
	livePages    int64
	logged       int64              // number of segments with logged values
	loggedPages  int64              // number of pages with logged values
	packedPages  int64              // live pages, if the logged values were packed into as few pages as possible
	names        int64              // number of names in the translation table
	inner        int64              // about the number of inner nodes of the tree: see SetInner
	short        bool               // the device had no room when the file last tried to grow
	runs         [2]map[uint32]bool // segments of each superblock's checkpoint run
	oldestStart  uint64             // group of the older valid superblock's scan start
}

func newSpace(segmentPages uint32, maxBytes int64) *space {
	sp := &space{segmentPages: uint64(segmentPages), leaving: map[uint32]condemned{}, thin: map[uint32]thinned{}, words: (uint64(segmentPages) + 63) / 64, maxPages: math.MaxUint32 * uint64(segmentPages)}
	if maxBytes > 0 {
		sp.maxPages, sp.limited = uint64(maxBytes)/PageSize, true
	}
	return sp
}

// End returns the number of pages of the file, punched ones included.
func (s *Store) End() Addr { return s.space.end() }

// end is End under mu.
func (sp *space) end() uint64 {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return sp.pages
}

// whole returns the number of segments that are allocated from first to last page.
func (sp *space) whole() uint32 { return uint32(sp.pages / sp.segmentPages) }

// allocated returns the number of those segments that still have their space, as far as is known.
func (sp *space) allocated() uint64 { return uint64(sp.whole()) - sp.punched }

// have returns the number of pages of the file that have their space.
func (sp *space) have() uint64 {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return sp.taken()
}

// taken is have under mu.
func (sp *space) taken() uint64 { return sp.pages - sp.punched*sp.segmentPages - sp.holes }

func (sp *space) extendTo(segments uint32) {
	if n := int(segments) - len(sp.segments); n > 0 {
		sp.segments = append(sp.segments, make([]segment, n)...)
	}
}

// saltOf returns the salt of the segment that holds a page; ok is false if the page is not allocated.
func (sp *space) saltOf(a Addr) (salt uint64, ok bool) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	n := a / sp.segmentPages
	if a >= sp.pages || n >= uint64(len(sp.segments)) || sp.segments[n].state == segmentAbsent {
		return 0, false
	}
	return sp.segments[n].salt, true
}

// isLive reports whether any of the pages is live. The pages lie in one segment.
func (sp *space) isLive(a Addr) bool {
	m, o := sp.segments[a/sp.segmentPages].liveMap, a%sp.segmentPages
	return m != nil && m[o/64]>>(o%64)&1 != 0
}

// MarkLive records that the tree uses the pages from a on, and that no reader below birth reaches them. The pages hold values and lie in one
// segment.
func (s *Store) MarkLive(a Addr, pages int64, birth uint64) {
	sp := s.space
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.markLive(a, pages, birth)
}

// MarkNode is MarkLive for a node of the tree.
func (s *Store) MarkNode(a Addr, birth uint64) {
	sp := s.space
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.markLive(a, 1, birth)
	sp.noteNode(a)
}

func (sp *space) markLive(a Addr, pages int64, birth uint64) {
	if pages == 0 {
		return
	}
	g := &sp.segments[a/sp.segmentPages]
	g.birth = min(g.birth, birth)
	if g.liveMap == nil {
		g.liveMap = make([]uint64, sp.words)
	}
	var born int
	eachWord(a%sp.segmentPages, pages, func(i, mask uint64) {
		born += bits.OnesCount64(mask &^ g.liveMap[i])
		g.liveMap[i] |= mask
	})
	g.live += int32(born)
	sp.livePages += int64(born)
	sp.packedPages += int64(born)
}

// noteNode records that the page at a is a node of the tree.
func (sp *space) noteNode(a Addr) {
	g, o := &sp.segments[a/sp.segmentPages], a%sp.segmentPages
	if g.nodeMap == nil {
		g.nodeMap = make([]uint64, sp.words)
	}
	g.nodeMap[o/64] |= 1 << (o % 64)
}

// Kill records that no snapshot from seq on sees the pages from a on. The pages hold values and lie in one segment. A page known to be a
// node stays live: a damaged reference to a value led there, and readers may be using the node.
func (s *Store) Kill(a Addr, pages int64, seq uint64) {
	sp := s.space
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.kill(a, pages, seq, sp.segments[a/sp.segmentPages].nodeMap)
}

// KillNode is Kill for a node of the tree. Recovery passes seq 0: there a node of an earlier life of the segment may die, named by the table of
// the older checkpoint, and what lies at its place now need not be a node.
func (s *Store) KillNode(a Addr, seq uint64) {
	sp := s.space
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if seq > 0 {
		sp.noteNode(a)
	}
	sp.kill(a, 1, seq, nil)
}

// kill is Kill for all pages but those whose bit is set in spare; spare may be nil.
func (sp *space) kill(a Addr, pages int64, seq uint64, spare []uint64) {
	g := &sp.segments[a/sp.segmentPages]
	if g.liveMap == nil {
		return
	}
	var died int
	g.noteDying(seq, sp.words)
	eachWord(a%sp.segmentPages, pages, func(i, mask uint64) {
		if spare != nil {
			mask &^= spare[i]
		}
		mask &^= g.loggedIn(i) // such a page dies with its last value; anything else contradicts the map
		died += bits.OnesCount64(mask & g.liveMap[i])
		if g.diedMap != nil {
			g.diedMap[i] |= mask & g.liveMap[i]
		}
		g.liveMap[i] &^= mask
	})
	if died > 0 {
		g.death = max(g.death, seq)
		sp.noteDead(a, pages, seq)
	}
	g.live -= int32(died)
	sp.livePages -= int64(died)
	sp.packedPages -= int64(died)
}

// noteDying records the deaths of the pages, except during recovery, which has no readers.
func (g *segment) noteDying(seq, words uint64) {
	if seq > 0 && g.diedMap == nil {
		g.diedMap = make([]uint64, words)
	}
}

// eachWord calls f for each word of a segment's bitmap that has bits of the given pages, with the mask of those bits. from is the index of
// the first page in the segment.
func eachWord(o uint64, pages int64, f func(i, mask uint64)) {
	for end := o + uint64(pages); o < end; {
		n := min(end-o, 64-o%64)
		f(o/64, ^uint64(0)>>(64-n)<<(o%64))
		o += n
	}
}

// isUsed reports whether a reference may lead to the page at a: the page is live, or was live since Open so that an older reader may still
// reach it, or belongs to a transaction that has not committed. A reference to any other page means that the space map contradicts the
// tree; the segment of such a page may be overwritten while the page is read.
func (sp *space) isUsed(a Addr) bool {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	n, o := a/sp.segmentPages, a%sp.segmentPages
	if n >= uint64(len(sp.segments)) {
		return false
	}
	g := &sp.segments[n]
	return g.state == segmentPrivate || sp.isLive(a) || g.diedMap != nil && g.diedMap[o/64]>>(o%64)&1 != 0
}

// useNode is isUsed for a verified page that is about to be read as a node of the tree. It refuses a page that died as a value. From then on
// the page is known to be a node, so no death of a value frees it (see Kill). Both happen under one hold of mu: either the death comes
// first and the node is refused, or the node comes first and stays. Nodes that this process wrote are known from their write on, because
// they are read without this call.
func (sp *space) useNode(a Addr) bool {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	n, o := a/sp.segmentPages, a%sp.segmentPages
	if n >= uint64(len(sp.segments)) {
		return false
	}
	g := &sp.segments[n]
	if sp.isLive(a) {
		sp.noteNode(a)
		return true
	}
	return g.diedMap != nil && g.nodeMap != nil && g.diedMap[o/64]&g.nodeMap[o/64]>>(o%64)&1 != 0
}

// IsLive reports whether the page at a is live.
func (s *Store) IsLive(a Addr) bool {
	sp := s.space
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if a/sp.segmentPages >= uint64(len(sp.segments)) {
		return false
	}
	return sp.isLive(a)
}

// AddName records that the translation table has an entry for id. The entry takes room in checkpoints and, if id is an address, keeps the
// segment of that address from being reused.
func (s *Store) AddName(id PageID) { s.space.countName(id, 1) }

// DropName undoes AddName.
func (s *Store) DropName(id PageID) { s.space.countName(id, -1) }

func (sp *space) countName(id PageID, by int32) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.names += int64(by)
	if !IsAddr(id) {
		return
	}
	g := &sp.segments[id/sp.segmentPages]
	if g.names += by; g.names < 0 {
		panic("logstore: a name left its segment twice")
	}
}

func (sp *space) reusable(n uint32) bool {
	g := &sp.segments[n]
	return g.state == segmentUsed && g.live == 0 && g.dead && g.written < sp.oldestStart && g.names == 0 && !sp.visible(g) &&
		n != sp.tail && n != sp.successor && !sp.runs[0][n] && !sp.runs[1][n]
}

// collect puts every segment that has become reusable on the free list.
func (sp *space) collect() {
	for n := range sp.whole() {
		if sp.reusable(n) && !sp.left(n) {
			sp.release(n)
		}
	}
}

// release puts an allocated segment on the free list.
func (sp *space) release(n uint32) {
	sp.segments[n].state = segmentFree
	i, _ := slices.BinarySearchFunc(sp.free, n, func(a, b uint32) int { return int(int64(b) - int64(a)) })
	sp.free = slices.Insert(sp.free, i, n)
}

// take pops the lowest free segment.
func (sp *space) take() (uint32, bool) {
	if len(sp.free) == 0 {
		return 0, false
	}
	n := sp.free[len(sp.free)-1]
	sp.free = sp.free[:len(sp.free)-1]
	return n, true
}

// SpaceStats describes the file.
type SpaceStats struct {
	FileBytes     int64 // allocated bytes: the file's length without its holes
	LiveBytes     int64 // bytes of the pages that the newest tree uses
	LoggedBytes   int64 // of LiveBytes: pages with logged values, some of which may be dead
	PackedBytes   int64 // LiveBytes if none of the logged values in live pages were dead
	FreeBytes     int64 // bytes that may be appended without growing the file
	ReservedBytes int64 // of FreeBytes: promised to transactions
	Segments      int
	FreeSegments  int
}

// SpaceStats returns the present counts.
func (s *Store) SpaceStats() SpaceStats {
	sp := s.space
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return SpaceStats{
		FileBytes: int64(sp.taken()) * PageSize, LiveBytes: sp.livePages * PageSize, LoggedBytes: sp.loggedPages * PageSize,
		PackedBytes: sp.packedPages * PageSize, FreeBytes: sp.available() * PageSize, ReservedBytes: (sp.reserved - sp.credit.pages.Load()) * PageSize, Segments: len(sp.segments), FreeSegments: len(sp.free),
	}
}

// checkCounts compares the counters of each segment with its bitmaps.
func (sp *space) checkCounts() error {
	var total, logged, packed int64
	for n := range sp.segments {
		g := &sp.segments[n]
		var live int
		for _, w := range g.liveMap {
			live += bits.OnesCount64(w)
		}
		if live != int(g.live) {
			return fmt.Errorf("flashdbm: segment %d counts %d live pages, its map %d", n, g.live, live)
		}
		total += int64(live)
		if err := g.checkLogged(n); err != nil {
			return err
		}
		logged += int64(g.loggedPages)
		packed += g.effective()
	}
	if total != sp.livePages || logged != sp.loggedPages || packed != sp.packedPages {
		return fmt.Errorf("flashdbm: %d live pages, %d with logged values, %d packed counted, %d, %d and %d in the map", sp.livePages, sp.loggedPages,
			sp.packedPages, total, logged, packed)
	}
	return nil
}

// Live is a copy of the space map: which pages were live at one moment. It takes a bit per page of each segment that had live pages.
type Live struct {
	sp     *space
	pages  map[uint32][]uint64 // bitmap of live pages, per segment that had any
	masks  map[uint32][]uint16 // the same for logged values
	raw    map[uint32][]uint64 // the same for the raw pages of logged values
	end    uint32              // number of segments
	counts error               // disagreement between counters and map, if any
}

// Live returns a copy of the space map as it is now.
func (s *Store) Live() *Live {
	sp := s.space
	sp.mu.Lock()
	defer sp.mu.Unlock()
	l := &Live{sp: sp, pages: map[uint32][]uint64{}, masks: map[uint32][]uint16{}, raw: map[uint32][]uint64{}, end: uint32(len(sp.segments)), counts: sp.checkCounts()}
	for n := range sp.segments {
		if words := sp.segments[n].liveMap; words != nil {
			l.pages[uint32(n)] = slices.Clone(words)
		}
		if masks := sp.segments[n].masks; masks != nil {
			l.masks[uint32(n)], l.raw[uint32(n)] = slices.Clone(masks), slices.Clone(sp.segments[n].raw)
		}
	}
	return l
}

// Check compares the copied map with what the caller knows: every page of must has to be live, and no page outside of may. It also returns
// whether the counters agreed with the map. It returns at most 100 problems.
func (l *Live) Check(use func(a Addr) (must, may bool)) (problems []error) {
	if l.counts != nil {
		problems = append(problems, l.counts)
	}
	for n := range l.end {
		words, raw := l.pages[n], l.raw[n]
		before := false // the previous page may be live
		for o := range l.sp.segmentPages {
			a := uint64(n)*l.sp.segmentPages + o
			live := words != nil && words[o/64]>>(o%64)&1 != 0
			must, may := use(a)
			before = may || before && raw != nil && raw[o/64]>>(o%64)&1 != 0
			switch may = before; {
			case must && !live:
				problems = append(problems, fmt.Errorf("%w: page %d is in the tree and dead in the space map", ErrCorrupt, a))
			case live && !may:
				problems = append(problems, fmt.Errorf("%w: page %d is live in the space map and in no tree", ErrCorrupt, a))
			}
			if len(problems) >= 100 {
				return problems
			}
		}
	}
	return problems
}
