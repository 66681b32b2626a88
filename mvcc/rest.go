package mvcc

import (
	"time"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// A database that nobody writes to comes to rest: redo, the free space for the next turn and what is dead beside what lives are of no use
// to it. Once nobody has committed for idlePause, all that is dirty is flushed, so that redo starts anew; if leaves are filled poorly, as
// random puts or deletes leave them, they are filled up, a turn of Compact at a time; of what is dead beside what
// lives the emptiest segments are cleaned, restMoved bytes a turn, until it is no more than a restDead-th of what lives; and all free
// segments but those held back are given back. Invariants:
//
//   - What background work appends is no sign of life: else the cleaner, which goes on for seconds behind heavy writing, would put rest off
//     for as long, and rest would never end.
//   - A turn is begun only if a restGain-th of ownBytes may come back, and restVain turns behind which that is no less than it was at any
//     time since the last commit end it, so a file that is at rest is not written again and again, even if something lets it grow behind each
//     turn. What readers hold is not counted: it grows by what a turn moves.
//   - Nothing is written ahead of commits behind a turn: the next commit that comes near the end of a segment has it done.
//   - Leaves are filled up once behind a commit. A tree that is full is not poorly filled before much has been put or deleted, which has
//     written more than the filling up does.
//   - Close does the same with what is left, so a process that ends soon writes no more than one that rests first.
//   - Whoever comes meanwhile waits for no more than the leaves at hand and what was written so far. Full leaves are only read, all of a large
//     tree perhaps, with checkpoints.mu in hand.
const (
	restGain  = 16       // a sixteenth of ownBytes,
	restLeast = 2        // and at least 2 segments: what a turn has to give back, at least
	restDead  = 8        // an eighth of what lives may be dead beside it
	restMoved = 32 << 20 // bytes that a turn moves
	restTurn  = 8        // of the leaves, an eighth is filled up in a turn, or as many as a turn of Compact does
	restLoose = 10       // leaves are filled up if the tree takes 13 tenths of the bytes of its records,
	restTight = 13       //
	restVain  = 3        // turns that gain nothing, behind which rest waits for the next commit: what is condemned leaves two checkpoints later
)

// rest tells how long nobody has written. Guarded by checkpoints.mu.
type rest struct {
	committed uint64    // Seq of the last batch of commits, by the last look
	since     time.Time // that it is the last one
	least     int64     // ownBytes, at the end of a turn
	vain      int       // turns in a row that have not made them fewer than that
	filling   []byte    // key at which filling up goes on
	filled    bool      // it has come to the end of the tree
}

// restDue reports whether nobody has committed for so long that the file should shrink to what lives. The caller holds the token and
// checkpoints.mu.
func (m *maintenance) restDue() bool {
	r := &m.idle
	if r.since.IsZero() || m.stirs() {
		*r = rest{committed: m.marks.committed.Load(), since: time.Now()}
		return false
	}
	if m.opts.Manual || r.vain >= restVain || time.Since(r.since) < idlePause {
		return false
	}
	s := m.store.SpaceStats()
	if m.loose(s) {
		return true
	}
	gain := m.store.Returning() + m.store.Leaving() + m.store.Surplus(0) + m.store.Outdated() + m.restGarbage(s)
	return gain >= max(m.ownBytes()/restGain, restLeast*m.segmentBytes())
}

// restGarbage returns the bytes of dead pages beside live ones that rest cleans away.
func (m *maintenance) restGarbage(s logstore.SpaceStats) int64 {
	_, dead := m.store.Victims(m.flusher.stuck, true)
	return max(0, dead*logstore.PageSize-s.PackedBytes/restDead)
}

// loose reports whether leaves are to be filled up. The caller holds the token and checkpoints.mu.
func (m *maintenance) loose(s logstore.SpaceStats) bool {
	if r := &m.idle; r.filled {
		return false
	} else if r.filling != nil { // under way
		return true
	}
	return m.pressure.loose(s, restTight)
}

// loose reports whether the tree takes that many restLoose-ths of the bytes of its records, and more than a little. Token held.
func (p *pressure) loose(s logstore.SpaceStats, tight int64) bool {
	payload, _, known := p.pages.PayloadBytes(p.tree.records)
	live := s.LiveBytes - s.LoggedBytes
	return known && live*restLoose > payload*tight && live*restLoose <= payload*treeFactor/2*restLoose &&
		live-payload >= restLeast*int64(p.store.SegmentPages())*logstore.PageSize
}

// fillUp fills up some leaves. An error ends it until the next commit. The caller holds checkpoints.mu.
func (m *maintenance) fillUp() (err error) {
	r, c := &m.idle, &compaction{m: m}
	defer func() { r.filled = r.filled || err != nil }()
	if r.filling == nil { // what is dead by now is room for what moves
		if err := m.flusher.beginAnew(); err != nil {
			return err
		}
	}
	written, most := 0, min(m.turnPages(), int(m.store.SpaceStats().LiveBytes/restTurn/logstore.PageSize)+refillLeaves)
	for written < most && !m.stirs() {
		done, err := m.flusher.refillSome(r.filling, btree.Repack)
		if err != nil {
			return err
		}
		written += done.Written
		if r.filling = done.Next; done.Next == nil {
			r.filled = true
			break
		}
		m.checkpoints.pace()
	}
	if written == 0 {
		return nil
	}
	return c.settle()
}

// stirs reports whether somebody has committed since the last look, is about to, asks for room, or closes the engine. The caller holds
// checkpoints.mu.
func (m *maintenance) stirs() bool {
	return m.marks.committed.Load() != m.idle.committed || m.readers.active.Load() > 0 || m.readers.unpinned.any() || m.pressure.crowd.asked.Load() > 0 || m.readers.closed.Load()
}

// rest makes the file shorter once nobody writes. The caller holds checkpoints.mu.
func (m *maintenance) rest() error {
	r := &m.idle
	if r.least == 0 {
		r.least = m.ownBytes()
	}
	var loose bool
	if err := m.tree.withMerged(func() error {
		loose = m.loose(m.store.SpaceStats())
		return m.Failed()
	}); err != nil {
		return err
	}
	if loose {
		if err := m.fillUp(); err != nil {
			return err
		}
	}
	if loose && !r.filled {
		m.due.Store(true)
		m.rouse()
		return nil
	}
	defer func() {
		if r.vain++; m.ownBytes() < r.least {
			r.least, r.vain = m.ownBytes(), 0
			m.due.Store(true) // the next turn, if there is need of one, does not wait for the next tick
			m.rouse()
		}
		m.store.ForgoZeros()
	}()
	if err := m.flusher.beginAnew(); err != nil {
		return err
	}
	victims, dead := m.store.Victims(m.flusher.stuck, true)
	s := m.store.SpaceStats()
	n, moved, over := 0, int64(0), dead-s.PackedBytes/restDead/logstore.PageSize
	for n < len(victims) && over > 0 && moved+victims[n].Live <= restMoved/logstore.PageSize {
		moved += victims[n].Live
		over -= int64(m.store.SegmentPages()) - victims[n].Live
		n++
	}
	m.cleaner.at = time.Now()
	if _, err := m.cleaner.cleanVictims(victims[:n], moved, true, m.pressure.reserveAtRest); err != nil {
		return err
	}
	if err := m.flusher.beginAnew(); err != nil {
		return err
	}
	m.checkpoints.turn.set(0)
	m.checkpoints.trimFrom(1)
	for range 2 { // what was condemned leaves behind two more
		if err := m.checkpoints.checkpoint(); err != nil {
			return err
		}
	}
	m.checkpoints.trimFrom(1)
	return m.Failed()
}
