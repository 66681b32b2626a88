package mvcc

import (
	"time"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// A database that nobody writes to comes to rest: its redo, its free space for the next turn of flushes, and its dead
// pages are of no use to it. When nobody has committed for idlePause, background work
//
//   - flushes everything dirty, in parts if that is much, so that redo starts at the end of the log;
//   - fills leaves up if they are poorly filled, as random puts or deletes leave them, in steps as Compact does. What
//     filling up does not change stays alone in its segment, so each step also empties segments of which little is live;
//   - cleans the emptiest segments, restMoved bytes per turn, until the dead bytes are at most a restDead-th of the
//     live ones;
//   - gives all free segments back, except those held back.
//
// Invariants:
//
//   - What background work appends does not count as activity. Otherwise the cleaner, which goes on for seconds after
//     heavy writing, would put rest off for that long, and rest would never end.
//   - A turn begins only if a restGain-th of ownBytes may come back. After restVain turns in which ownBytes did not
//     fall below its least value since the last commit, there are no more turns until the next commit. So a file at
//     rest is not written again and again, even if something lets it grow after each turn. ownBytes does not count
//     what readers hold, which grows by what a turn moves.
//   - Nothing is zeroed ahead of commits after a turn: the next commit that comes near the end of a segment has that
//     done.
//   - Leaves are filled up once after a commit. A full tree is not poorly filled again before much was put or
//     deleted, and that has written more than filling up does.
//   - Close does the same with what is left, so a process that ends soon writes no more than one that rests first.
//   - A commit that comes meanwhile waits only for the leaves at hand and for what was written so far. Full leaves
//     are only read, possibly all of a large tree, with checkpoints.mu held.
const (
	restGain  = 16       // a turn must give back at least a sixteenth of ownBytes
	restLeast = 2        // and at least 2 segments
	restDead  = 8        // dead bytes may be an eighth of the live ones
	restMoved = 32 << 20 // most bytes that a turn moves
	// A turn that fills leaves up moves a quarter as many pages besides (restBeside), out of segments of which at most a
	// quarter is live (restEmpty).
	restBeside = 4
	restEmpty  = 4
	restTurn   = 8 // a turn fills up an eighth of the leaves, but no more than a turn of Compact
	// Leaves are filled up if the tree takes restTight restLoose-ths (25/20) of the bytes of its records. With 26/20, 42 MB
	// of which half had been deleted rested at 66 MB, more than one and a half times as much.
	restLoose = 20
	restTight = 25
	// restVain: turns that gain nothing, after which rest waits for the next commit: condemned segments leave only
	// two checkpoints later
	restVain = 3
)

// rest notes how long nobody has written. Guarded by checkpoints.mu.
type rest struct {
	committed uint64    // Seq of the last batch of commits, as of the last look
	since     time.Time // when that Seq was first seen
	least     int64     // least ownBytes at the end of a turn
	vain      int       // turns in a row that have not lowered least
	filling   []byte    // key at which filling up goes on
	filled    bool      // filling up has come to the end of the tree
}

// restDue reports whether nobody has committed for so long that the file should shrink. The caller holds the token
// and checkpoints.mu.
func (m *maintenance) restDue() bool {
	r := &m.idle
	if r.since.IsZero() || m.stirs() {
		*r = rest{committed: m.marks.committed.Load(), since: time.Now()}
		return false
	}
	early := min(m.opts.FlushInterval/2, idlePause/4) // the next look may be a whole FlushInterval later
	if m.opts.Manual || r.vain >= restVain || time.Since(r.since) < idlePause-early {
		return false
	}
	s := m.store.SpaceStats()
	if m.loose(s) {
		return true
	}
	gain := m.store.Returning() + m.store.Leaving() + m.store.Surplus(0) + m.store.Outdated() + m.restGarbage(s)
	return gain >= max(m.ownBytes()/restGain, restLeast*m.segmentBytes())
}

// restGarbage returns the bytes of dead pages in live segments that rest cleans.
func (m *maintenance) restGarbage(s logstore.SpaceStats) int64 {
	_, dead := m.store.Victims(m.flusher.stuck, true)
	return max(0, dead*logstore.PageSize-s.PackedBytes/restDead)
}

// loose reports whether leaves should be filled up. The caller holds the token and checkpoints.mu.
func (m *maintenance) loose(s logstore.SpaceStats) bool {
	if r := &m.idle; r.filled {
		return false
	} else if r.filling != nil { // under way
		return true
	}
	return m.pressure.loose(s, restTight)
}

// loose reports whether the tree takes more than tight restLoose-ths of the bytes of its records, and at least
// restLeast segments more than these. Token held.
func (p *pressure) loose(s logstore.SpaceStats, tight int64) bool {
	payload, _, known := p.pages.PayloadBytes(p.tree.records)
	live := s.LiveBytes - s.LoggedBytes
	return known && live*restLoose > payload*tight && live*restLoose <= payload*treeFactor/2*restLoose &&
		live-payload >= restLeast*int64(p.store.SegmentPages())*logstore.PageSize
}

// fillUp fills some leaves up. After an error it does nothing until the next commit. The caller holds checkpoints.mu.
func (m *maintenance) fillUp() (err error) {
	r, c := &m.idle, &compaction{m: m}
	defer func() { r.filled = r.filled || err != nil }()
	if r.filling == nil { // what is dead by now is room for what moves
		if err := m.flusher.flushAndCheckpoint(); err != nil {
			return err
		}
	}
	written, most := 0, min(m.refillPages(), int(m.store.SpaceStats().LiveBytes/restTurn/logstore.PageSize)+refillLeaves)
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
	if err := m.cleanSome(int64(written)/restBeside, int64(m.store.SegmentPages())/restEmpty, false, c.reserve); err != nil {
		return err
	}
	return c.endTurn()
}

// stirs reports whether somebody has committed since the last look, is about to, asks for room, or closes the engine.
// The caller holds checkpoints.mu.
func (m *maintenance) stirs() bool {
	return m.marks.committed.Load() != m.idle.committed || m.readers.active.Load() > 0 || m.readers.unpinned.any() || m.pressure.crowd.asked.Load() > 0 || m.readers.closed.Load()
}

// rest does one turn of making the file shorter when nobody writes. The caller holds checkpoints.mu.
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
			m.due.Store(true) // the next turn, if it is needed, does not wait for the next tick
			m.rouse()
		}
		m.store.ForgoZeros()
	}()
	if err := m.flusher.flushAndCheckpoint(); err != nil {
		return err
	}
	if err := m.cleanSome(restMoved/logstore.PageSize, int64(m.store.SegmentPages()), true, m.pressure.reserveAtRest); err != nil {
		return err
	}
	if err := m.flusher.beginAnew(); err != nil {
		return err
	}
	m.checkpoints.turn.set(0)
	m.checkpoints.trimFrom(1)
	for range 2 { // condemned segments leave after two more checkpoints
		if err := m.checkpoints.checkpoint(); err != nil {
			return err
		}
	}
	m.checkpoints.trimFrom(1)
	return m.Failed()
}

// cleanSome makes up to most live pages dirty, those of the emptiest segments first and of none with more than full of
// them, until so little is dead beside live pages that rest does not clean, as far as reserve finds room. With search it
// also moves value runs. The caller holds checkpoints.mu; a flush follows.
func (m *maintenance) cleanSome(most, full int64, search bool, reserve reservation) error {
	victims, dead := m.store.Victims(m.flusher.stuck, true)
	return m.cleaner.empty(victims, dead-m.store.SpaceStats().PackedBytes/restDead/logstore.PageSize, most, full, search, reserve)
}
