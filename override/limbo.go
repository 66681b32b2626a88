package override

import (
	"slices"

	"flashdbm/internal/btree"
	"flashdbm/internal/invariants"
	"flashdbm/lockfree"
	"flashdbm/logstore"
)

// limbo has the versions, nodes and table entries that are no longer current and that readers may still use. Reclaim
// frees each of them when the registry of snapshots shows that no reader can reach it. Token held.
//
//   - A version that was superseded stays in its chain for readers from its own Seq up to but excluding the
//     newer version's Seq.
//   - The node of a version that became an address is not in a chain any more. Readers that found it before may
//     still use it.
//   - An entry that is leaving the table serves readers from the Seq of the oldest version in its chain up to
//     but excluding the Seq at which parents stopped using its name. Versions older than that are gone because
//     no reader can see them.
//
// So a long-running reader keeps only the versions and entries that it can see, and not all those made since it began.
type limbo struct {
	*images
	registry *lockfree.Registry

	young       []remnant // remnants that future readers may still reach
	held        []remnant // remnants that only present readers use; in their own list so that a pass over young stays short
	entries     []leavingEntry
	heldEntries []leavingEntry
	pins        []uint64
	heldPins    []uint64 // Seqs of the readers that were registered during the last pass over held
	kept        int      // length of held and heldEntries after that pass
	passed      int      // calls of Reclaim since that pass

	// passing: a pass has begun and not ended. The two sweeps are its positions: first in held, then in heldEntries.
	passing  bool
	versions sweep
	leaving  sweep
}

// sweep is the position of a pass in a list. list[:stay] has the elements that stay, list[stay:next] is zero, and the
// pass has not visited list[next:] yet.
type sweep struct {
	stay, next int
	done       bool
}

// sweepPart continues a pass: it visits the next elements of the list, at most the given number, and returns how many
// it has visited. stays reports whether an element stays in the list; if not, stays has freed it.
func sweepPart[T any](s *sweep, list *[]T, most int, stays func(T) bool) (looked int) {
	if s.done {
		return 0
	}
	begin, end := s.next, min(s.next+most, len(*list))
	for _, x := range (*list)[begin:end] {
		if stays(x) {
			(*list)[s.stay] = x
			s.stay++
		}
	}
	clear((*list)[max(begin, s.stay):end])
	if s.next = end; end == len(*list) {
		*list = (*list)[:s.stay]
		*s = sweep{done: true}
	}
	return end - begin
}

// remnant is an old version, or the node of one, that is freed later. Readers at Seqs in [from, until) may use it.
type remnant struct {
	from, until uint64
	found       uint64        // readers that register from now on at this Seq or above cannot reach it; 0 for a node that is in no chain
	entry       *entry        // entry in whose chain the version is; nil for a node that is in no chain
	node        btree.Node    // set if entry is nil
	place       logstore.Addr // address of an image with cells of the node, whose segment only this remnant keeps from reuse; 0: none
}

// leavingEntry is an entry that no reader at seq or above looks up. While there are readers below seq, a name
// that is an address keeps its segment.
type leavingEntry struct {
	entry *entry
	seq   uint64
}

const (
	// A new pass over held begins once held has grown by more than 1/heldShare of its size after the last pass, plus
	// heldSlack remnants. So passes visit about eight remnants for each one added. Smaller: fewer visits, but remnants
	// of readers that have ended stay longer, and each can keep a page of the file. With a heldShare of 1, four readers
	// on 6.6 MB of live data held up to 73 MB.
	heldShare = 8
	heldSlack = 32
	// heldPart is how many remnants and entries one call of Reclaim visits in a pass, plus two for each one that the
	// call has added, so that a pass ends. Larger: commits wait longer. They wait up to 0.5 ms for 256 that are in no
	// cache of the processor, and up to 1.9 ms for 1,024. When whole passes were made, they waited 1 to 3.7 ms at the
	// end of a backup during which four writers had made 10,000 commits a second each. Smaller: what readers that have
	// ended have held stays longer.
	heldPart = 1 << 8
	heldPass = 64 // once a reader has ended, a pass begins after at most held/heldPass calls of Reclaim, where held counts remnants and entries
)

// supersede notes that v, in the chain of e, was replaced by a version with the Seq until.
func (l *limbo) supersede(e *entry, v *version, until uint64) {
	l.young = append(l.young, remnant{from: v.seq, until: until, found: until, entry: e})
}

// seen reports whether the last Reclaim found a registered reader at a Seq in [from, until).
func (l *limbo) seen(from, until uint64) bool {
	i, _ := slices.BinarySearch(l.pins, from)
	return i < len(l.pins)-1 && l.pins[i] < until
}

// leave notes that the node of v is in no chain any more. Readers below until may have found it there.
func (l *limbo) leave(v *version, until uint64) {
	l.young = append(l.young, remnant{from: v.seq, until: until, node: v.node})
}

// leaveWith is leave for the newest version of a page. The page's place a dies with the step being installed,
// at the newest Seq or a later one, but readers at the newest Seq may be using the node. If the node has cells
// in the image at a, the segment is kept for them in the same way as a segment with a name in it.
func (l *limbo) leaveWith(v *version, a logstore.Addr) {
	l.leave(v, l.seq+1)
	if v.node.Borrows() {
		l.store.AddName(a)
		l.young[len(l.young)-1].place = a
	}
}

// size returns how many remnants and entries are waiting.
func (l *limbo) size() int {
	return len(l.young) + l.holds() + len(l.entries)
}

// holds returns how many of them are held for present readers only.
func (l *limbo) holds() int {
	return len(l.held) - (l.versions.next - l.versions.stay) + len(l.heldEntries) - (l.leaving.next - l.leaving.stay)
}

// Reclaim frees what no reader can see any more, according to the registry. It tells the store at which Seqs
// readers may be, and returns the horizon. watermark is the least watermark at which readers register. Token
// held.
func (l *limbo) Reclaim(watermark lockfree.Watermark) (horizon uint64) {
	pins, horizon := l.registry.Scan(l.pins, watermark)
	l.pins = pins
	l.store.SetSnapshots(pins)

	before := len(l.held) + len(l.heldEntries)
	// If no reader is registered, all readers are future ones, and these find the newer versions.
	alone := len(l.young) > 0 && l.registry.Count() == 0
	top := pins[len(pins)-1] // the watermark: future readers are at this Seq or above
	keep := l.young[:0]
	for _, r := range l.young {
		switch {
		case alone && r.found <= top:
			l.free(r)
		case r.until > top:
			keep = append(keep, r)
		case lockfree.Pinned(pins, r.from, r.until):
			l.held = append(l.held, r)
			if r.place != 0 {
				l.store.HoldPlace(r.place)
			}
		default:
			l.mustBeUnseen(r.from, r.until)
			l.free(r)
		}
	}
	clear(l.young[len(keep):])
	l.young = keep

	n := 0
	for n < len(l.entries) && l.entries[n].seq <= top {
		n++
	}
	for _, x := range l.entries[:n] {
		switch {
		case x.seq <= horizon:
			l.letGo(x)
		case l.wanted(x):
			l.heldEntries = append(l.heldEntries, x)
			l.store.HoldName(x.entry.id)
		default:
			l.letGo(x)
		}
	}
	l.entries = slices.Delete(l.entries, 0, n)

	if held := l.holds(); l.passing || len(l.heldPins) == 0 || horizon != l.heldPins[0] ||
		held > l.kept+l.kept/heldShare+heldSlack || l.passed*heldPass >= held && l.anyGone() {
		l.reclaimHeld(heldPart + 2*(len(l.held)+len(l.heldEntries)-before))
	} else {
		l.passed++
	}
	return horizon
}

// anyGone reports whether a reader has ended that was registered during the last pass over held.
func (l *limbo) anyGone() bool {
	for _, pin := range l.heldPins {
		if _, ok := slices.BinarySearch(l.pins, pin); !ok {
			return true
		}
	}
	return false
}

// ReclaimAll is Reclaim, except that it also frees at once what was held for readers that have ended. Token held.
func (l *limbo) ReclaimAll(watermark lockfree.Watermark) (horizon uint64) {
	horizon = l.Reclaim(watermark)
	if l.passing {
		l.reclaimHeld(l.holds())
	}
	if l.passed > 0 && l.anyGone() {
		l.reclaimHeld(l.holds())
	}
	return horizon
}

// reclaimHeld makes a pass over held, then over heldEntries, and frees what no present reader uses. One call visits at
// most the given number of elements; the next call continues the pass. heldPins collects the readers of all calls of a
// pass. So if a reader ends during the pass, anyGone reports it afterwards, and another pass follows.
func (l *limbo) reclaimHeld(most int) {
	first := !l.passing
	if first {
		l.passing, l.versions, l.leaving = true, sweep{}, sweep{}
		l.heldPins = l.heldPins[:0]
	}
	for _, pin := range l.pins {
		if i, ok := slices.BinarySearch(l.heldPins, pin); !ok {
			l.heldPins = slices.Insert(l.heldPins, i, pin)
		}
	}
	most -= sweepPart(&l.versions, &l.held, most, func(r remnant) bool {
		if lockfree.Pinned(l.pins, r.from, r.until) {
			return true
		}
		if r.place != 0 {
			l.store.LetPlace(r.place)
		}
		l.mustBeUnseen(r.from, r.until)
		l.free(r)
		return false
	})
	if !l.versions.done {
		return
	}
	// After the versions: a version freed above may have been the oldest in the chain of an entry.
	sweepPart(&l.leaving, &l.heldEntries, most, func(x leavingEntry) bool {
		if l.wanted(x) {
			return true
		}
		l.store.LetName(x.entry.id)
		l.letGo(x)
		return false
	})
	if !l.leaving.done {
		return
	}
	if l.passing, l.kept, l.passed = false, l.holds(), 0; !first {
		l.passed = 1 // readers may have ended after the first part: lets ReclaimAll make another pass
	}
}

// wanted reports whether a reader may still look up a leaving entry. In a follower the entry may also serve readers
// below the Seq of its oldest version: see following.
func (l *limbo) wanted(x leavingEntry) bool {
	if l.follow != nil {
		return x.seq > l.pins[0]
	}
	v := x.entry.newest()
	for older := v.next.Load(); older != nil; older = v.next.Load() {
		v = older
	}
	return lockfree.Pinned(l.pins, v.seq, x.seq)
}

// letGo removes an entry from the table once no reader looks it up any more. Its older versions were superseded at the
// entry's Seq or before, so they are freed already, or the next pass over held frees them.
func (l *limbo) letGo(x leavingEntry) {
	if l.follow == nil || l.follow.left(x) {
		l.detach(x.entry)
	}
}

// unmoved is a watermark as it was when Reclaim read it.
type unmoved uint64

func (w unmoved) Load() uint64 { return uint64(w) }

// mustBeUnseen checks, in builds with the tag invariants, that no reader is registered now from Seq from up to but
// excluding until, by another look than the one because of which something is freed.
func (l *limbo) mustBeUnseen(from, until uint64) {
	if invariants.Enabled {
		now, _ := l.registry.Scan(nil, unmoved(l.pins[len(l.pins)-1]))
		invariants.Check(!lockfree.Pinned(now, from, until), "a version is freed that a reader may see")
	}
}

// free frees a remnant. It removes a superseded version from its chain. A flush may have replaced that version by one
// with the same Seq and an address; free then removes the replacement.
func (l *limbo) free(r remnant) {
	if r.place != 0 {
		l.store.DropName(r.place)
	}
	if r.entry == nil {
		r.node.Release(l.memory)
		return
	}
	at := &r.entry.link.head
	for v := at.Load(); v != nil; at, v = &v.next, v.next.Load() {
		if v.seq == r.from {
			at.Store(v.next.Load())
			if v.kind == inMemory {
				v.node.Release(l.memory)
			}
			return
		}
	}
	panic("override: a superseded version is not in its chain")
}
