package space

import (
	"math"
	"math/bits"
)

type segmentState uint8

const (
	segmentAbsent  segmentState = iota // not allocated, as far as is known: beyond the end of the file, punched, or condemned
	segmentFree                        // allocated and on the free list: may be opened at once
	segmentUsed                        // holds pages of the log or of large values, dead or alive
	segmentPrivate                     // owned by an active transaction, for a large value
	segmentStates
)

// InUse is the state of a used segment in a space map on disk.
const InUse = byte(segmentUsed)

// A segment is the unit of space reuse. A used segment may be opened again only if all of these hold (each rule
// prevents a loss that a model of random crashes showed):
//
//  1. none of its pages is live, and none was as of the newest durable checkpoint;
//  2. it was last written before the scan start of the older valid superblock;
//  3. no page of either superblock's checkpoint run is in it;
//  4. no name of the translation table lies in it;
//  5. no snapshot lies between the birth of its first page and the death of its last, so no reader can still look
//     at it (readers.go);
//  6. no active transaction owns it, and it is neither the log's tail nor the tail's successor.
type segment struct {
	salt      uint64
	sequence  uint64        // number in its header
	written   uint64        // last group with a page in it
	wrote     uint64        // segmentPrivate: number of the newest write in it, see PrivateWrite
	birth     uint64        // no reader below birth reaches any of its pages; unborn if none was marked live, 0 if unknown
	death     uint64        // if no page is live: no reader at or above death reaches any of its pages
	names     int32         // number of the translation table's names that are addresses in it
	heldNames int32         // number of those names that only readers want
	live      int32         // number of pages in liveMap
	liveMap   bitmap        // live pages
	seenMap   bitmap        // dead pages that a reader sees, see thin.go
	diedMap   bitmap        // pages that have died in this life of the segment since Open
	nodeMap   bitmap        // pages known to be nodes of the tree, see UseNode
	logged    *loggedValues // values in pages of records; nil until there is one
	state     segmentState
	dead      bool // no page was live as of the newest durable checkpoint
	deadNext  bool // no page is live as of the checkpoint being written
	blank     bool // allocated and not written since: see TakeBlank
}

// unborn is the birth of a segment without a page that was marked live.
const unborn = math.MaxUint64

// isBlank reports whether the segment holds nothing, and held nothing, as far as is known.
func (g *segment) isBlank() bool { return g.written == 0 && g.live == 0 && g.names == 0 }

// noteDying makes room to note deaths of pages, except during recovery, which has no readers.
func (g *segment) noteDying(seq, words uint64) {
	if seq > 0 && g.diedMap == nil {
		g.diedMap = make(bitmap, words)
	}
}

// lastLive returns the index of the segment's last live page, or 0 if none is live.
func (g *segment) lastLive() uint64 {
	for i := uint64(len(g.liveMap)); i > 0; i-- {
		if w := g.liveMap[i-1]; w != 0 {
			return i*64 - 1 - uint64(bits.LeadingZeros64(w))
		}
	}
	return 0
}
