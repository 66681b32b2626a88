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
	segmentAbsent  segmentState = iota // not allocated, as far as is known: beyond the end of the file, or punched; or about to be
	segmentFree                        // allocated, may be opened at once; on the free list
	segmentUsed                        // holds pages of the log or of large values, dead or alive
	segmentPrivate                     // taken by an active transaction for a large value
	segmentStates
)

// A segment is the unit of reuse. A used one may be opened again only if all of these hold (each rule fixes a loss that a model of
// random crashes showed):
//
//  1. none of its pages is live, and none was as of the newest durable checkpoint;
//  2. it was last written before the scan start of the older valid superblock;
//  3. no page of either superblock's checkpoint run is in it;
//  4. no name of the translation table lies in it;
//  5. no snapshot lies between the birth of its first page and the death of its last: no reader can still look at it (lifetime.go);
//  6. no active transaction owns it, and it is neither the log's tail nor the tail's successor.
type segment struct {
	salt        uint64
	sequence    uint64   // of its header
	written     uint64   // last group with a page in it
	wrote       uint64   // segmentPrivate: number of the newest write in it, see privateSyncs
	birth       uint64   // no reader below it comes to a page, unborn if none was marked live; 0 if unknown
	death       uint64   // nor one at or above it, if none lives
	names       int32    // names of the table that are addresses in it,
	heldNames   int32    // and of those, ones that are wanted by readers only
	live        int32    // set bits of its live map
	liveMap     []uint64 // which pages live, a bit each; nil as long as none has
	seenMap     []uint64 // of those that have died, which a reader sees: see thin.go; nil as long as none is
	diedMap     []uint64 // which have died in this life of the segment since the file was opened; nil as long as none has
	nodeMap     []uint64 // which are known as nodes of the tree, see useNode; nil as long as none is
	masks       []uint16 // of each page, which of its logged values live; nil as long as none has
	values      int32    // logged values that live,
	valueBytes  int32    // bytes of the records of these, on average
	loggedPages int32    // and pages with such, raw ones too
	raw         []uint64 // pages that are raw ones of the page of records before them, a bit each; there with masks
	state       segmentState
	dead        bool // as of the newest durable checkpoint
	deadNext    bool // as of the checkpoint being written
	blank       bool // allocated and not written since: see ZeroAhead
}

// space is the map of the file: which pages live, which segments are free. All fields are guarded by mu, which is a leaf lock.
type space struct {
	mu           sync.Mutex
	segmentPages uint64
	words        uint64 // of a segment's live map
	segments     []segment
	free         []uint32 // allocated and reusable, highest number first: the lowest is taken first, so that the tail can be cut
	pages        uint64   // allocated pages of the file
	maxPages     uint64
	limited      bool                 // by MaxFileSize
	punched      uint64               // segments within pages that are absent, without the condemned
	leaving      map[uint32]condemned // absent segments that still have, or may have, their space
	reserved     int64                // pages promised to transactions and not yet appended
	credit       credit               // of those
	snapshots    []uint64             // where readers may be: see SetSnapshots
	deaths       []deadPages          // above the last of those
	places       map[Addr]int32       // held by readers: see HoldPlace
	thin         map[uint32]thinned   // segments that are kept for readers only, as far as they see them
	holes        uint64               // pages of those that have no space
	tail         uint32               // segment being appended to
	tailPage     uint64               // next page in it
	successor    uint32
	livePages    int64
	logged       int64              // segments with logged values
	loggedPages  int64              // pages with such
	packedPages  int64              // live ones, with those values in as few as can be
	names        int64              // of the table
	inner        int64              // inner nodes of the tree, roughly: see SetInner
	short        bool               // the device had no room when the file was to grow last
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

// End returns how many pages the file has, punched ones included.
func (s *Store) End() Addr { return s.space.end() }

// end returns how many pages the file has.
func (sp *space) end() uint64 {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return sp.pages
}

// whole returns how many segments are allocated from first to last page.
func (sp *space) whole() uint32 { return uint32(sp.pages / sp.segmentPages) }

// allocated returns how many of those have their space, as far as is known.
func (sp *space) allocated() uint64 { return uint64(sp.whole()) - sp.punched }

// have returns how many pages of the file have their space.
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

// saltOf returns the salt of the segment of a page; ok is false if the page is not allocated.
func (sp *space) saltOf(a Addr) (salt uint64, ok bool) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	n := a / sp.segmentPages
	if a >= sp.pages || n >= uint64(len(sp.segments)) || sp.segments[n].state == segmentAbsent {
		return 0, false
	}
	return sp.segments[n].salt, true
}

// isLive reports whether a page of one of the segments lives.
func (sp *space) isLive(a Addr) bool {
	m, o := sp.segments[a/sp.segmentPages].liveMap, a%sp.segmentPages
	return m != nil && m[o/64]>>(o%64)&1 != 0
}

// MarkLive notes that the tree uses the pages from a on, which hold values and lie in one segment, and that no reader below birth comes to
// them.
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

// noteNode notes that the page at a is a node of the tree.
func (sp *space) noteNode(a Addr) {
	g, o := &sp.segments[a/sp.segmentPages], a%sp.segmentPages
	if g.nodeMap == nil {
		g.nodeMap = make([]uint64, sp.words)
	}
	g.nodeMap[o/64] |= 1 << (o % 64)
}

// Kill notes that from seq on no new snapshot sees the pages from a on, which hold values and lie in one segment. A page that is known as a
// node stays live: a damaged reference to a value led to it, and readers may be using it.
func (s *Store) Kill(a Addr, pages int64, seq uint64) {
	sp := s.space
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.kill(a, pages, seq, sp.segments[a/sp.segmentPages].nodeMap)
}

// KillNode is Kill for a node of the tree.
func (s *Store) KillNode(a Addr, seq uint64) {
	sp := s.space
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if seq > 0 {
		sp.noteNode(a)
	}
	sp.kill(a, 1, seq, nil)
}

// kill is Kill without the pages that have a bit in spare, nil for none.
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
		mask &^= g.loggedIn(i) // such a page dies with the last value in it: a contradiction otherwise
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

// noteDying has the pages that are going to die noted, unless it is recovery that lets them, which has no readers.
func (g *segment) noteDying(seq, words uint64) {
	if seq > 0 && g.diedMap == nil {
		g.diedMap = make([]uint64, words)
	}
}

// eachWord calls f for each word of a segment's map in which the pages from the given one of the segment on have bits, with the mask of
// those.
func eachWord(o uint64, pages int64, f func(i, mask uint64)) {
	for end := o + uint64(pages); o < end; {
		n := min(end-o, 64-o%64)
		f(o/64, ^uint64(0)>>(64-n)<<(o%64))
		o += n
	}
}

// isUsed reports whether the page at a lives, or did since the file was opened, so that an older reader may still come to it, or is one of a
// transaction that has not committed. No reference leads to any other page, unless the space map contradicts the tree: the segment of such a
// page may be written again while the page is read.
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

// useNode is isUsed for a page that was verified, and is about to be read as a node of the tree: one that died as a value is none. From now on the page is
// known as a node, so no death of a value takes it (see Kill). Both are one step under mu: either the death comes first, and the node is
// refused, or the node does, and stays. The nodes that this process has written are known as well, for they are read without this.
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

// AddName notes that the translation table has an entry for id, which takes room in checkpoints and, if it is an address, keeps the
// segment there from being reused.
func (s *Store) AddName(id PageID) { s.space.countName(id, 1) }

// DropName takes AddName back.
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
	FileBytes     int64 // allocated: the file's length without what was punched
	LiveBytes     int64 // pages that the newest tree uses
	LoggedBytes   int64 // of these, pages with logged values, of which some may be dead
	PackedBytes   int64 // pages that the newest tree would use if none of those values were dead
	FreeBytes     int64 // may be appended without growing the file
	ReservedBytes int64 // of it, promised to transactions
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

// checkCounts compares the counters of each segment with its live map.
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

// Live is a copy of the space map: which pages lived at a moment. It takes a bit for each page of the segments in which any did.
type Live struct {
	sp     *space
	pages  map[uint32][]uint64 // of each segment in which any did
	masks  map[uint32][]uint16 // the same, of logged values
	raw    map[uint32][]uint64 // the same, of raw pages behind these
	end    uint32              // segments there were
	counts error               // that the counters did not agree with the map
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

// Check compares the map with what its user knows: must pages have to be live, others than may pages must not. It also says whether the
// counters agreed with the map. At most 100 problems are returned.
func (l *Live) Check(use func(a Addr) (must, may bool)) (problems []error) {
	if l.counts != nil {
		problems = append(problems, l.counts)
	}
	for n := range l.end {
		words, raw := l.pages[n], l.raw[n]
		before := false // the page before may live
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
