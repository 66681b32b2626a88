package override

import (
	"sync/atomic"

	"flashdbm/internal/btree"
	"flashdbm/lockfree"
	"flashdbm/logstore"
)

// limbo holds what is no longer current and may still be looked at. Baton holder.
//
//   - A version superseded by a newer one stays in its chain for readers from its own Seq to the newer one's.
//   - The node of a version that became an address is out of its chain; readers that found it before may use it still.
//   - An entry on its way out of the table is of use to readers below the Seq at which parents stopped naming it.
//
// A held reader so costs the versions that it can see, not all that were made since.
type limbo struct {
	young   []remnant // more readers may come for these
	held    []remnant // only readers that are there now; apart, so that the pass over the young ones stays short
	entries []leavingEntry
	pins    []uint64
	heldAt  uint64 // horizon when held was last looked through,
	kept    int    // and what was left then
}

// remnant is a version, or the node of one, that readers at from to until-1 may look at.
type remnant struct {
	from, until uint64
	entry       *entry        // in whose chain the version is; nil for a node
	node        btree.Node    // if entry is nil
	place       logstore.Addr // where the image lies that the node has cells in and that nothing else keeps; 0 = none
}

// leavingEntry is an entry that no reader at seq or above comes by.
type leavingEntry struct {
	entry *entry
	seq   uint64
}

// heldSlack is how many remnants may wait in held for readers that are gone, while an older reader stays.
const heldSlack = 32

// supersede notes that v, in the chain of e, gave way to a version with the given Seq.
func (l *limbo) supersede(e *entry, v *version, until uint64) {
	l.young = append(l.young, remnant{from: v.seq, until: until, entry: e})
}

// leave notes that the node of v is in no chain any more; readers below until may have found it there.
func (l *limbo) leave(v *version, until uint64) {
	l.young = append(l.young, remnant{from: v.seq, until: until, node: v.node})
}

// leaveWith is leave for the newest version of a page, whose place a dies with the flush being installed, at the newest Seq or a later one.
// Readers at that very Seq may be using the node, so if that has cells in the image at a, the image's segment is kept for them as one with
// a name in it is.
func (p *Pages) leaveWith(v *version, a logstore.Addr) {
	p.limbo.leave(v, p.seq+1)
	if v.node.Borrows() {
		p.store.AddName(a)
		p.limbo.young[len(p.limbo.young)-1].place = a
	}
}

// size returns how much waits.
func (l *limbo) size() int {
	return len(l.young) + len(l.held) + len(l.entries)
}

// Reclaim frees what the registry shows that nobody can see, tells the store the horizon and returns it. watermark is the least one that
// readers register at. Baton holder.
func (p *Pages) Reclaim(watermark *atomic.Uint64) (horizon uint64) {
	l := &p.limbo
	pins, horizon := p.registry.Scan(l.pins, watermark)
	l.pins = pins
	p.store.SetHorizon(horizon)

	// With no reader registered, whoever comes from now on finds what took the place of the nodes.
	alone := len(l.young) > 0 && p.registry.Count() == 0
	top := pins[len(pins)-1] // the watermark: readers at it or above may still come
	keep := l.young[:0]
	for _, r := range l.young {
		switch {
		case alone && r.entry == nil:
			p.free(r)
		case r.until > top:
			keep = append(keep, r)
		case lockfree.Pinned(pins, r.from, r.until):
			l.held = append(l.held, r)
		default:
			p.free(r)
		}
	}
	clear(l.young[len(keep):])
	l.young = keep

	if horizon != l.heldAt || len(l.held) > 2*l.kept+heldSlack {
		keep := l.held[:0]
		for _, r := range l.held {
			if lockfree.Pinned(pins, r.from, r.until) {
				keep = append(keep, r)
			} else {
				p.free(r)
			}
		}
		clear(l.held[len(keep):])
		l.held, l.heldAt, l.kept = keep, horizon, len(keep)
	}

	n := 0
	for n < len(l.entries) && l.entries[n].seq <= horizon {
		if p.follow == nil || p.follow.left(p, l.entries[n]) {
			p.detach(l.entries[n].entry) // its older versions are free by now: they gave way at that Seq at the latest
		}
		n++
	}
	l.entries = append(l.entries[:0], l.entries[n:]...)
	return horizon
}

// free gives up a remnant. A superseded version is taken out of its chain. What the chain has of its Seq by now may be another version:
// one that a flush has put in its place.
func (p *Pages) free(r remnant) {
	if r.entry == nil {
		r.node.Release(p.memory)
		if r.place != 0 {
			p.store.DropName(r.place)
		}
		return
	}
	at := &r.entry.head
	for v := at.Load(); v != nil; at, v = &v.next, v.next.Load() {
		if v.seq == r.from {
			at.Store(v.next.Load())
			if v.kind == inMemory {
				v.node.Release(p.memory)
			}
			return
		}
	}
	panic("override: a superseded version is not in its chain")
}
