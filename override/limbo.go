package override

import (
	"slices"

	"flashdbm/internal/btree"
	"flashdbm/lockfree"
	"flashdbm/logstore"
)

// limbo holds what is no longer current but may still be in use by readers. Token held.
//
//   - A version that was superseded stays in its chain for readers from its own Seq up to but excluding the
//     newer version's Seq.
//   - The node of a version that became an address is not in a chain any more. Readers that found it before may
//     still use it.
//   - An entry that is leaving the table serves readers from the Seq of the oldest version in its chain up to
//     but excluding the Seq at which parents stopped using its name. Versions older than that are gone because
//     no reader can see them.
//
// So a long reader costs the versions and the entries that it can see, not all that were made since it began.
type limbo struct {
	*images
	registry *lockfree.Registry

	young       []remnant // remnants that future readers may still reach
	held        []remnant // remnants that only present readers use; in their own list so that a pass over young stays short
	entries     []leavingEntry
	heldEntries []leavingEntry
	pins        []uint64
	heldPins    []uint64 // pins during the last pass over held
	kept        int      // length of held and heldEntries after that pass
	passed      int      // calls of Reclaim since that pass

	// Of a pass under way: how far it has come in held, and after that in heldEntries.
	passing  bool
	versions sweep
	leaving  sweep
}

// sweep is how far a pass has come in a list: list[:stay] stays, list[stay:next] is empty, and the rest has yet to be
// looked at.
type sweep struct {
	stay, next int
	done       bool
}

// sweepPart goes on through at most most elements of the list, and returns how many it has looked at. stays reports
// whether an element stays; it has freed the element if not.
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

// remnant is a version, or the node of one, that readers from Seq from up to but excluding until may use.
type remnant struct {
	from, until uint64
	found       uint64        // a reader that comes from now on at this Seq or above does not find the remnant; 0 for a node that is in no chain
	entry       *entry        // entry in whose chain the version is; nil for a node that is in no chain
	node        btree.Node    // if entry is nil
	place       logstore.Addr // place of the image in which the node has cells, if only this remnant keeps it; 0: none
}

// leavingEntry is an entry that no reader at seq or above looks up. While there are readers below seq, a name
// that is an address keeps its segment.
type leavingEntry struct {
	entry *entry
	seq   uint64
}

const (
	// A pass over held is due once held has grown by a heldShare-th and by heldSlack remnants more. The share makes a
	// pass cost each new remnant eight looks. It also bounds what the file keeps for readers that have gone, such as a
	// transaction that was open during a flush: each remnant can keep a page. With passes at twice the size, four
	// readers on 6.6 MB of live data held up to 73 MB.
	heldShare = 8
	heldSlack = 32
	// heldPart is how many remnants or entries one Reclaim looks at in a pass over held, besides two for each that it has
	// added, so that the pass ends. Commits wait for it, up to half a millisecond where these are in no cache of the
	// processor; for 1,024 of them up to 1.9 ms. With whole passes they waited 1 to 3.7 ms when a backup ended, beside
	// which four writers had made 10,000 commits a second each. Smaller: what readers that have gone have held stays for
	// longer.
	heldPart = 1 << 8
	heldPass = 64 // remnants: a pass over held comes at the latest after held/heldPass calls of Reclaim, once any reader has gone
)

// supersede notes that v, in the chain of e, was replaced by a version with the Seq until.
func (l *limbo) supersede(e *entry, v *version, until uint64) {
	l.young = append(l.young, remnant{from: v.seq, until: until, found: until, entry: e})
}

// seen reports whether the last Reclaim found a registered reader at a Seq from from up to but excluding until.
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
	// If no reader is registered, every reader that comes from now on finds the replacements.
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

// anyGone reports whether a reader has gone since the last pass over held.
func (l *limbo) anyGone() bool {
	for _, pin := range l.heldPins {
		if _, ok := slices.BinarySearch(l.pins, pin); !ok {
			return true
		}
	}
	return false
}

// ReclaimAll is Reclaim, except that it also frees at once what is held for readers that have gone. Token held.
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

// reclaimHeld makes a pass over held and then heldEntries and frees what no present reader uses; or a part of a pass,
// over at most that many of them. The next call then goes on. A reader that has gone since a part was made makes
// another pass due: heldPins has all readers during the pass.
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
		l.free(r)
		return false
	})
	if !l.versions.done {
		return
	}
	// After the versions, which may have been the oldest of these chains.
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
		l.passed = 1 // the first parts have not seen who has gone since
	}
}

// wanted reports whether a reader may still look up a leaving entry. In a follower the Seq of the oldest
// version says nothing: see following.
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

// letGo takes a leaving entry that no reader looks up out of the table. Its older versions were superseded at
// its Seq at the latest, so they are free by now or will be freed by the next pass over held.
func (l *limbo) letGo(x leavingEntry) {
	if l.follow == nil || l.follow.left(x) {
		l.detach(x.entry)
	}
}

// free frees a remnant. A superseded version is taken out of its chain; a flush may have put another version
// with the same Seq in its place, which then is the one to take out.
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
