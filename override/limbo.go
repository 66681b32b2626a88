package override

import (
	"slices"

	"flashdbm/internal/btree"
	"flashdbm/lockfree"
	"flashdbm/logstore"
)

// limbo holds what is no longer current and may still be looked at. Token held.
//
//   - A version superseded by a newer one stays in its chain for readers from its own Seq to the newer one's.
//   - The node of a version that became an address is out of its chain; readers that found it before may use it still.
//   - An entry on its way out of the table is of use to readers from the Seq of the oldest version in its chain to the Seq at which parents
//     stopped naming it: older versions have gone because nobody can see them.
//
// So a reader that stays open costs the versions and the entries that it can see, not all that were made since.
type limbo struct {
	*images
	registry *lockfree.Registry

	young       []remnant // remnants that further readers may come for
	held        []remnant // remnants that only present readers use; apart, so that the pass over young stays short
	entries     []leavingEntry
	heldEntries []leavingEntry
	pins        []uint64
	heldPins    []uint64 // where readers were at the last pass over held
	kept        int      // length of held after that pass
	passed      int      // number of times that a pass over held was left out since
}

// remnant is a version, or the node of one, that readers at from to until-1 may look at.
type remnant struct {
	from, until uint64
	found       uint64        // least Seq at which a reader that comes now finds another version in its place; 0 for a node that is in no chain
	entry       *entry        // in whose chain the version is; nil for a node that is in none
	node        btree.Node    // in that case
	place       logstore.Addr // where the image lies that the node has cells in and that nothing else keeps; 0 = none
}

// leavingEntry is an entry that no reader at seq or above finds. While readers below seq are there, its name keeps the segment that the name is
// an address in.
type leavingEntry struct {
	entry *entry
	seq   uint64
}

const (
	heldSlack = 32 // how much may wait for readers that are gone, while others stay
	heldPass  = 64 // remnants that are looked through for each pass over the young, where a reader has gone that is not the oldest
)

// supersede notes that v, in the chain of e, gave way to a version with the given Seq.
func (l *limbo) supersede(e *entry, v *version, until uint64) {
	l.young = append(l.young, remnant{from: v.seq, until: until, found: until, entry: e})
}

// seen reports whether a reader that the last pass over the young has found, and that came before that, is at from to until-1.
func (l *limbo) seen(from, until uint64) bool {
	i, _ := slices.BinarySearch(l.pins, from)
	return i < len(l.pins)-1 && l.pins[i] < until
}

// leave notes that the node of v is in no chain any more; readers below until may have found it there.
func (l *limbo) leave(v *version, until uint64) {
	l.young = append(l.young, remnant{from: v.seq, until: until, node: v.node})
}

// leaveWith is leave for the newest version of a page, whose place a dies with the flush being installed, at the newest Seq or a later one.
// Readers at that very Seq may be using the node, so if that has cells in the image at a, the image's segment is kept for them as one with
// a name in it is.
func (l *limbo) leaveWith(v *version, a logstore.Addr) {
	l.leave(v, l.seq+1)
	if v.node.Borrows() {
		l.store.AddName(a)
		l.young[len(l.young)-1].place = a
	}
}

// size returns how much waits.
func (l *limbo) size() int {
	return len(l.young) + len(l.held) + len(l.entries) + len(l.heldEntries)
}

// Reclaim frees what the registry shows that nobody can see, tells the store where readers may be, and returns the horizon. watermark is
// the least one that readers register at. Token held.
func (l *limbo) Reclaim(watermark lockfree.Watermark) (horizon uint64) {
	pins, horizon := l.registry.Scan(l.pins, watermark)
	l.pins = pins
	l.store.SetSnapshots(pins)

	// With no reader registered, whoever comes from now on finds what took the place of the nodes.
	alone := len(l.young) > 0 && l.registry.Count() == 0
	top := pins[len(pins)-1] // the watermark: readers at it or above may still come
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

	if held := len(l.held) + len(l.heldEntries); len(l.heldPins) == 0 || horizon != l.heldPins[0] ||
		held > 2*l.kept+heldSlack || l.passed*heldPass >= held && l.anyGone() {
		l.reclaimHeld()
	} else {
		l.passed++
	}
	return horizon
}

// anyGone reports whether a reader has gone since what is held was looked through last.
func (l *limbo) anyGone() bool {
	for _, pin := range l.heldPins {
		if _, ok := slices.BinarySearch(l.pins, pin); !ok {
			return true
		}
	}
	return false
}

// ReclaimAll is Reclaim that also frees what is held for readers that have gone. Token held.
func (l *limbo) ReclaimAll(watermark lockfree.Watermark) (horizon uint64) {
	horizon = l.Reclaim(watermark)
	if l.passed > 0 && l.anyGone() {
		l.reclaimHeld()
	}
	return horizon
}

// reclaimHeld looks through what is held.
func (l *limbo) reclaimHeld() {
	keep := l.held[:0]
	for _, r := range l.held {
		if lockfree.Pinned(l.pins, r.from, r.until) {
			keep = append(keep, r)
			continue
		}
		if r.place != 0 {
			l.store.LetPlace(r.place)
		}
		l.free(r)
	}
	clear(l.held[len(keep):])
	l.held = keep
	stay := l.heldEntries[:0]
	for _, x := range l.heldEntries { // behind the versions in their chains
		if l.wanted(x) {
			stay = append(stay, x)
			continue
		}
		l.store.LetName(x.entry.id)
		l.letGo(x)
	}
	clear(l.heldEntries[len(stay):])
	l.heldEntries = stay
	l.heldPins, l.kept, l.passed = append(l.heldPins[:0], l.pins...), len(keep)+len(stay), 0
}

// wanted reports whether a reader may come by an entry that leaves. Beside a writer the oldest version tells nothing: see following.
func (l *limbo) wanted(x leavingEntry) bool {
	if l.follow != nil {
		return x.seq > l.pins[0]
	}
	v := x.entry.head.Load()
	for older := v.next.Load(); older != nil; older = v.next.Load() {
		v = older
	}
	return lockfree.Pinned(l.pins, v.seq, x.seq)
}

// letGo takes an entry out of the table that no reader comes by. Its older versions gave way at that Seq at the latest, so they are free
// by now, or will be when what is held is looked through.
func (l *limbo) letGo(x leavingEntry) {
	if l.follow == nil || l.follow.left(x) {
		l.detach(x.entry)
	}
}

// free gives up a remnant. A superseded version is taken out of its chain. What the chain has of its Seq by now may be another version:
// one that a flush has put in its place.
func (l *limbo) free(r remnant) {
	if r.place != 0 {
		l.store.DropName(r.place)
	}
	if r.entry == nil {
		r.node.Release(l.memory)
		return
	}
	at := &r.entry.head
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
