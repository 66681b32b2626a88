package space

import (
	"math"

	"flashdbm/internal/invariants"
	"flashdbm/logstore/format"
)

// Reservations are promises of pages to transactions and background work.
//
// Some space is held back so that a full file never stays full. Puts are refused first; deletes still succeed, and
// the space of what they make dead becomes free again. Background work needs these parts of the held-back space for
// that:
//
//	checkpoint  C pages: the table and the map of the file. No dead space is reused without a checkpoint, so there are two of them
//	segment     one: dead space becomes free in whole segments only. Without it deletes from a full file of four segments found no room
//	clean       W pages: the live pages of the emptiest segments are moved together. That also changes the parents of the moved pages:
//	            in the worst case, pages in the order of single changes all over the key space, each of the I inner nodes
//	slack       D pages that deletes may take before anything is cleaned: for every page they write, a page elsewhere dies
//
// Invariants, on a file that cannot grow:
//
//  1. What commits have promised to write, and the flush of what they have made dirty, is reserved before the
//     commits are resolved.
//  2. A put leaves two checkpoints, the segment, W and D. It counts reserved pages twice, because a flush that is
//     killed is written again.
//  3. A delete leaves all of that except D; if cleaning gains nothing more, only two checkpoints. Everything dead
//     then waits only for those.
//  4. Folds and cleaning leave two checkpoints.
//
// So cleaning starts with W pages of room, and with at least D dead pages besides. With N pages in the file, D of
// them dead and spread evenly, cleaning W pages frees W·D/N more than it takes and costs 2C + I besides; it gains
// as long as W·D > N·(2C + I). W and D are both the root of the right side: a tenth of the file where keys are
// short, and at most an eighth.
//
// A file without a limit holds back little until the device has no more room for it: see table.short.
type Reservations struct {
	*table
	log      *Log
	absent   *Absent
	usage    *Usage
	reuse    *Reuse
	maxPages uint64
	limited  bool   // the file has a limit
	reserved int64  // pages promised to transactions and not yet appended
	credit   credit // part of reserved
	bound    bound
	inner    int64 // about the number of inner nodes of the tree: see SetInner
}

// Claim says on whose behalf pages are reserved, which decides how much the reservation has to leave.
type Claim uint8

const (
	ForWrites    Claim = iota // leaves everything that is held back
	ForDeletes                // a transaction that only deletes: leaves what cleaning needs
	ForWant                   // such a transaction after cleaning did not help: leaves only what checkpoints need
	ForEmergency              // leaves nothing
)

// Beyond is what a reservation lacks if no growth of the file could provide it.
const Beyond = math.MaxInt64

// Reserve promises pages, or returns the number of pages that are lacking. beside further pages remain available in
// addition to what the claim leaves.
func (sp *Map) Reserve(pages, beside int64, c Claim) (missing int64) {
	if c == ForWrites && beside == 0 && sp.credit.take(pages) {
		return 0
	}
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if missing = sp.missing(pages, beside, c); missing > 0 {
		sp.collect()
		missing = sp.missing(pages, beside, c)
	}
	invariants.Check(pages >= 0 && sp.reserved >= sp.credit.pages.Load(), "fewer pages are promised than none")
	if missing <= 0 {
		sp.reserved += pages
		if c == ForWrites && beside == 0 && pages <= creditPages/creditShare { // the next reservation may be alike
			sp.lend()
		}
	}
	return missing
}

// Release undoes a reservation of pages.
func (sp *Reservations) Release(pages int64) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if sp.reserved -= pages; sp.reserved < sp.credit.pages.Load() {
		panic("logstore: more pages released than reserved")
	}
}

// Lack returns how many pages would be lacking for a reservation besides those promised and those that deletes must
// leave. What the file cannot grow by on account of its limit, or of a device without room, counts as lacking;
// grows reports that neither is in the way.
func (sp *Map) Lack(pages int64) (lack int64, grows bool) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	lack = pages + sp.promised() + sp.ample(ForDeletes) - sp.available()
	if sp.limited || sp.short {
		return lack - sp.growable(), false
	}
	return lack, true
}

// PutRoom returns the number of pages that may be reserved for puts without growth, which may be less than nothing;
// how many more the file may grow by as far as the map knows; and whether the file has a limit.
func (sp *Map) PutRoom() (room, grow int64, limited bool) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return sp.available() - 2*sp.promised() - sp.ample(ForWrites), sp.growable(), sp.limited
}

// Slack returns the number of pages that deletes may take before a file that cannot grow is cleaned.
func (sp *Reservations) Slack() int64 {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return sp.ample(ForWrites) - sp.ample(ForDeletes)
}

// Room returns the number of pages that cleaning could reserve: those of the file as it is and, if the file has a
// limit, those that it may still grow by. What puts and deletes leave is meant for cleaning, whether it is
// allocated or not. (Cleaning that counted the allocated pages only moved three pages at a time, gained nothing,
// and made the file count as full.)
func (sp *Reservations) Room() int64 {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	room := sp.log.available() - sp.promised()
	if sp.limited {
		room += sp.growable()
	}
	return room
}

// CheckpointPages estimates the number of pages of a checkpoint.
func (sp *Reservations) CheckpointPages() int64 {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return sp.checkpointPages()
}

// SetInner sets the number of inner nodes of the tree.
func (sp *Reservations) SetInner(pages int64) {
	sp.mu.Lock()
	sp.inner = pages
	sp.mu.Unlock()
}

// SetShort records whether the device has no room.
func (sp *Map) SetShort(short bool) {
	sp.mu.Lock()
	if sp.short = short; short {
		sp.takeBack()
	}
	sp.mu.Unlock()
}

// checkpointPages estimates the number of pages of a checkpoint.
func (sp *Reservations) checkpointPages() int64 {
	bytes := sp.usage.names*tableEntrySize + int64(len(sp.segments))*int64(EntrySize+sp.words*8) + sp.usage.logged*int64(sp.segmentPages*2+2+sp.words*8)
	return bytes/format.BodySize + 2
}

// keep returns the number of held-back pages that are allocated in advance.
func (sp *Reservations) keep() int64 {
	if sp.short {
		return sp.ample(ForWrites)
	}
	return sp.heldBack(ForWrites)
}

// heldBack returns the number of pages that a claim must leave in the file as it is, and for which the file grows.
func (sp *Reservations) heldBack(c Claim) int64 {
	n := 2 * sp.checkpointPages()
	switch c {
	case ForEmergency:
		return 0
	case ForWrites:
		n += 8
		if sp.whole() > 1 {
			n += int64(sp.segmentPages) * (32 + int64(sp.absent.allocated())) / 32
		}
	}
	return n
}

// ample returns the number of pages that a claim must leave on a file that cannot grow.
func (sp *Reservations) ample(c Claim) int64 {
	if c == ForWant || c == ForEmergency {
		return sp.heldBack(c)
	}
	all, c2 := int64(sp.pages), 2*sp.checkpointPages()
	if sp.limited && !sp.short {
		all = int64(sp.maxPages)
	}
	overhead := c2 + max(sp.inner, sp.usage.livePages/innerShare)
	each := min(int64(math.Sqrt(float64(all*overhead))), all/8)
	n := c2 + max(each, 8)
	if all > int64(sp.segmentPages) {
		n += int64(sp.segmentPages)
	}
	if c == ForWrites {
		n += each
	}
	return n
}

const innerShare = 200 // assumed pages of a tree per inner node, until SetInner tells

// growable returns how many more pages could be appended if the file grew as far as its limit and the device allow.
func (sp *Reservations) growable() int64 {
	if sp.short {
		return 0
	}
	return sp.allowed()
}

// allowed returns how many more pages could be appended if the file grew as far as its limit allows.
func (sp *Reservations) allowed() int64 {
	size := sp.segmentPages
	segments := int64(sp.maxPages/size) - int64(sp.whole()) + int64(sp.absent.punched) + sp.absent.sparable()
	if next := sp.log.successor; next == 0 || sp.segments[next].state == segmentAbsent {
		segments-- // the log can only enter it once there is another one
	}
	return max(segments, 0) * int64(size-1)
}

// missing returns how many pages are lacking for a reservation of pages that leaves beside further pages in
// addition to what its claim leaves.
func (sp *Reservations) missing(pages, beside int64, c Claim) int64 {
	promised := sp.promised()
	need := pages + beside + promised
	if sp.limited || sp.short {
		all := need + sp.ample(c)
		if c == ForWrites {
			all += promised
		}
		if lack := all - sp.log.available(); lack > 0 && lack > sp.growable() {
			if sp.short && lack <= max(sp.allowed(), int64(sp.maxPages-sp.pages)) {
				return lack // the device may have room again
			}
			return Beyond
		}
	}
	return need + sp.heldBack(c) - sp.log.available()
}

// surplus returns how many pages are free besides those held back and the greater of spare and the pages promised.
func (sp *Reservations) surplus(spare int64) int64 {
	return sp.log.available() - sp.keep() - max(sp.promised(), spare)
}

// Surplus returns the bytes that Condemn would take out of use.
func (sp *Reservations) Surplus(spare int64) int64 {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return max(0, sp.surplus(spare)) * format.PageSize
}

// Condemn takes free segments out of use until the free pages, besides those held back, are the greater of spare
// and the pages promised. It does nothing if fewer than least segments would be gained. The caller makes sure that
// no checkpoint is in progress.
func (sp *Map) Condemn(spare int64, least int) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if n := int(sp.surplus(spare) / int64(sp.segmentPages-1)); n >= least {
		sp.condemn(n)
	}
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
func (sp *Reservations) SpaceStats() SpaceStats {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	u := sp.usage
	return SpaceStats{
		FileBytes: int64(sp.absent.taken()) * format.PageSize, LiveBytes: u.livePages * format.PageSize, LoggedBytes: u.loggedPages * format.PageSize,
		PackedBytes: u.packedPages * format.PageSize, FreeBytes: sp.log.available() * format.PageSize,
		ReservedBytes: (sp.reserved - sp.credit.pages.Load()) * format.PageSize, Segments: len(sp.segments), FreeSegments: len(sp.free),
	}
}

// Counts are what the map counts in pages: see Counts of Map.
type Counts struct {
	Available int64 // may be appended without growing the file
	Promised  int64 // to transactions
	Kept      int64 // held back
	Punched   int64 // segments within the file that have no space
	Holes     int64 // pages without space in segments that are not absent
}

// Counts returns what the map counts in pages. Package logstore tests what it does to the file with it.
func (sp *Map) Counts() Counts {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return Counts{sp.available(), sp.promised(), sp.keep(), int64(sp.punched), int64(sp.holes)}
}
