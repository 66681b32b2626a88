package space

import (
	"fmt"
	"math/bits"

	"flashdbm/logstore/format"
)

// Usage is what the newest tree uses: live pages, which of them are nodes, and the names of the translation table.
// The logged values are in logged.go.
type Usage struct {
	*table
	readers     *Readers
	livePages   int64
	logged      int64 // number of segments with logged values
	loggedPages int64 // number of pages with logged values
	packedPages int64 // live pages, if the logged values were packed into as few pages as possible
	names       int64 // number of names in the translation table
}

// MarkLive records that the tree uses the pages from a on, and that no reader below birth reaches them. The pages
// hold values and lie in one segment.
func (sp *Usage) MarkLive(a Addr, pages int64, birth uint64) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.markLive(a, pages, birth)
}

// MarkNode is MarkLive for a node of the tree.
func (sp *Usage) MarkNode(a Addr, birth uint64) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.markLive(a, 1, birth)
	sp.noteNode(a)
}

func (sp *Usage) markLive(a Addr, pages int64, birth uint64) {
	if pages == 0 {
		return
	}
	g, o := sp.at(a)
	g.birth = min(g.birth, birth)
	live := sp.within(&g.liveMap)
	var born int
	eachWord(o, pages, func(i, mask uint64) {
		born += bits.OnesCount64(mask &^ live[i])
		live[i] |= mask
	})
	sp.count(g, born)
	sp.packedPages += int64(born)
}

// count adds to the number of live pages.
func (sp *Usage) count(g *segment, pages int) {
	g.live += int32(pages)
	sp.livePages += int64(pages)
}

// noteNode records that the page at a is a node of the tree.
func (sp *Usage) noteNode(a Addr) {
	g, o := sp.at(a)
	sp.within(&g.nodeMap).set(o)
}

// Kill records that no snapshot from seq on sees the pages from a on. The pages hold values and lie in one segment.
// A page known to be a node stays live: a damaged reference to a value led there, and readers may be using the
// node.
func (sp *Usage) Kill(a Addr, pages int64, seq uint64) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	g, _ := sp.at(a)
	sp.kill(a, pages, seq, g.nodeMap)
}

// KillNode is Kill for a node of the tree. Recovery passes seq 0: there a node of an earlier life of the segment
// may die, named by the table of the older checkpoint, and what lies at its place now need not be a node.
func (sp *Usage) KillNode(a Addr, seq uint64) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if seq > 0 {
		sp.noteNode(a)
	}
	sp.kill(a, 1, seq, nil)
}

// kill is Kill for all pages but those in spare.
func (sp *Usage) kill(a Addr, pages int64, seq uint64, spare bitmap) {
	g, o := sp.at(a)
	if g.liveMap == nil {
		return
	}
	var died int
	g.noteDying(seq, sp.words)
	eachWord(o, pages, func(i, mask uint64) {
		if spare != nil {
			mask &^= spare[i]
		}
		mask &^= g.logged.pagesIn(i) // such a page dies with its last value; anything else contradicts the map
		died += bits.OnesCount64(mask & g.liveMap[i])
		if g.diedMap != nil {
			g.diedMap[i] |= mask & g.liveMap[i]
		}
		g.liveMap[i] &^= mask
	})
	if died > 0 {
		g.death = max(g.death, seq)
		sp.readers.noteDead(a, pages, seq)
	}
	sp.count(g, -died)
	sp.packedPages -= int64(died)
}

// IsUsed reports whether a reference may lead to the page at a: the page is live, or was live since Open so that an
// older reader may still reach it, or belongs to a transaction that has not committed. A reference to any other
// page means that the space map contradicts the tree; the segment of such a page may be overwritten while the page
// is read.
func (sp *Usage) IsUsed(a Addr) bool {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	g, o := sp.find(a)
	return g != nil && (g.state == segmentPrivate || g.liveMap.has(o) || g.diedMap.has(o))
}

// UseNode is IsUsed for a verified page that is about to be read as a node of the tree. It refuses a page that died
// as a value. From then on the page is known to be a node, so no death of a value frees it (see Kill). Both happen
// under one hold of the mutex: either the death comes first and the node is refused, or the node comes first and
// stays. Nodes that this process wrote are known from their write on, because they are read without this call.
func (sp *Usage) UseNode(a Addr) bool {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	g, o := sp.find(a)
	if g == nil {
		return false
	}
	if g.liveMap.has(o) {
		sp.noteNode(a)
		return true
	}
	return g.diedMap.has(o) && g.nodeMap.has(o)
}

// IsLive reports whether the page at a is live.
func (sp *Usage) IsLive(a Addr) bool {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	g, o := sp.find(a)
	return g != nil && g.liveMap.has(o)
}

// AddName records that the translation table has an entry for id. The entry takes room in checkpoints and, if id is
// an address, keeps the segment of that address from being reused.
func (sp *Usage) AddName(id PageID) { sp.countName(id, 1) }

// DropName undoes AddName.
func (sp *Usage) DropName(id PageID) { sp.countName(id, -1) }

func (sp *Usage) countName(id PageID, by int32) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.names += int64(by)
	if !format.IsAddr(id) {
		return
	}
	g, _ := sp.at(id)
	if g.names += by; g.names < 0 {
		panic("logstore: a name left its segment twice")
	}
}

// Pinned reports whether nothing is live in the segment of a and only names in the table keep it from being reused.
func (sp *Usage) Pinned(a Addr) bool {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	g, _ := sp.find(a)
	return g != nil && g.live == 0 && g.names > 0
}

// LiveIn returns the number of live pages of a segment.
func (sp *Usage) LiveIn(segment uint32) int64 {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if segment >= uint32(len(sp.segments)) {
		return 0
	}
	return int64(sp.segments[segment].live)
}

// LastWritten returns the newest group that wrote into a segment.
func (sp *Usage) LastWritten(segment uint32) uint64 {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if segment >= uint32(len(sp.segments)) {
		return 0
	}
	return sp.segments[segment].written
}

// CheckCounts compares the counters of each segment with its bitmaps.
func (sp *Usage) CheckCounts() error {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return sp.checkCounts()
}

func (sp *Usage) checkCounts() error {
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
		logged += g.logged.count()
		packed += g.packed()
	}
	if total != sp.livePages || logged != sp.loggedPages || packed != sp.packedPages {
		return fmt.Errorf("flashdbm: %d live pages, %d with logged values, %d packed counted, %d, %d and %d in the map", sp.livePages, sp.loggedPages,
			sp.packedPages, total, logged, packed)
	}
	return nil
}
