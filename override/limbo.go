package override

import (
	"sync/atomic"

	"flashdbm/internal/btree"
	"flashdbm/lockfree"
)

// limbo holds what is no longer current and may still be looked at:
//
//   - versions superseded by a newer one: free when no reader is in [their Seq, their successor's);
//   - nodes whose version became an address: their readers are registered below or at the Seq of that change;
//   - entries on their way out of the table: free when no reader is below the Seq that made them unreachable.
//
// A version that a held reader can see waits in held, apart, so that the pass over the young ones stays short.
type limbo struct {
	young   []superseded
	held    []superseded
	nodes   []leaving
	entries []leavingEntry
	pins    []uint64
	heldAt  uint64 // horizon when held was last looked through
}

type superseded struct {
	entry *entry
	v     *version
	until uint64 // Seq of the version that took its place
}

type leaving struct {
	node btree.Node
	seq  uint64
}

type leavingEntry struct {
	entry *entry
	seq   uint64
}

func (l *limbo) supersede(e *entry, v *version, until uint64) {
	l.young = append(l.young, superseded{e, v, until})
}

// size returns how much waits.
func (l *limbo) size() int {
	return len(l.young) + len(l.held) + len(l.nodes) + len(l.entries)
}

// Reclaim frees what the registry shows that nobody can see, tells the store the horizon and returns it. watermark is the least one that
// readers register at. Baton holder.
func (p *Pages) Reclaim(watermark *atomic.Uint64) (horizon uint64) {
	l := &p.limbo
	pins, horizon := p.registry.Scan(l.pins, watermark)
	l.pins = pins
	p.store.SetHorizon(horizon)

	// Superseded versions. The watermark is the last pin: what was superseded above it has readers to come.
	top := pins[len(pins)-1]
	keep := l.young[:0]
	for i, s := range l.young {
		if s.until > top {
			keep = append(keep, l.young[i])
		} else if lockfree.Pinned(pins, s.v.seq, s.until) {
			l.held = append(l.held, s)
		} else {
			p.unlink(s)
		}
	}
	clear(l.young[len(keep):])
	l.young = keep

	if horizon != l.heldAt && len(l.held) > 0 {
		keep := l.held[:0]
		for _, s := range l.held {
			if lockfree.Pinned(pins, s.v.seq, s.until) {
				keep = append(keep, s)
			} else {
				p.unlink(s)
			}
		}
		clear(l.held[len(keep):])
		l.held = keep
	}
	l.heldAt = horizon

	// With no reader registered, whoever registers from now on finds the new versions.
	alone := len(l.nodes) > 0 && p.registry.Count() == 0
	n := 0
	for n < len(l.nodes) && (alone || l.nodes[n].seq < horizon) {
		l.nodes[n].node.Release(p.memory)
		n++
	}
	l.nodes = append(l.nodes[:0], l.nodes[n:]...)
	n = 0
	for n < len(l.entries) && l.entries[n].seq <= horizon {
		p.expel(l.entries[n].entry)
		n++
	}
	l.entries = append(l.entries[:0], l.entries[n:]...)
	return horizon
}

// unlink takes a superseded version out of its chain and frees its image. The chain may hold another version of the same Seq by now:
// one that a flush has put in its place.
func (p *Pages) unlink(s superseded) {
	at := &s.entry.head
	for v := at.Load(); v != nil; at, v = &v.next, v.next.Load() {
		if v.seq == s.v.seq {
			at.Store(v.next.Load())
			if v.kind == inMemory {
				v.node.Release(p.memory)
			}
			return
		}
	}
}

// expel takes an entry that nobody can reach out of the table, with all its versions.
func (p *Pages) expel(e *entry) {
	p.detach(e)
	for v := e.head.Load(); v != nil; v = v.next.Load() {
		if v.kind == inMemory {
			v.node.Release(p.memory)
		}
	}
	e.head.Store(nil)
}
