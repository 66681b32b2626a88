package replica

import (
	"fmt"
	"slices"
)

// State is the state machine of a secondary, which applies the entries. Only the follower's thread calls it.
type State interface {
	// Yield is called before the member follows a primary: a member that believes to be the primary gives that up.
	Yield()
	// Merge applies an entry; false: there is no room now. It does not keep body.
	Merge(seq, term uint64, body []byte) bool
	// Forget begins a copy: the state becomes empty, as of the entry seq. header is the Header of the primary's
	// Source.
	Forget(seq uint64, terms []Term, header []byte) error
	// Piece applies a part of a copy; false: there is no room now. Entries that Merge has applied are newer than the
	// piece.
	Piece(body []byte) bool
	// Whole makes the copy, which ends with entry mark, the member's state; false: not yet. It is called again and
	// again once all of the copy has arrived.
	Whole(mark uint64) bool
	// Synced returns the newest entry that is durable here; in memory mode the newest merged entry.
	Synced() uint64
	// Room returns how many bytes may still be put. ok is false while the state cannot continue: then the follower
	// does not answer, and the primary continues without this member.
	Room() (bytes uint64, ok bool)
}

// FollowerOptions configure a Follower.
type FollowerOptions struct {
	Memory   Allocator
	RingSize int // bytes; equal to the size of the logs of all members
	Log      *Log
	State    State
	Eager    bool // progress is reported without an ask: strict and sync mode wait for it
}

// A Follower is a member in the role of a secondary: it owns the ring into which the primary Writes. One thread uses
// it.
type Follower struct {
	o      FollowerOptions
	log    *Log
	link   Link // to the primary that is followed, nil if there is none
	ring   *ring
	term   uint64 // of the primary that was last followed
	barred uint64 // no grant, entry or reign of a lower term is accepted
	order  uint64 // revision of the record named by the stop order that raised barred; 0: something else raised it
	known  uint64 // revision of the record that this member knows
	stopAt int64  // by the member's clock: the last stop, or the start
	fenced bool   // the ring accepts no more Writes: it is drained, and then dropped

	asked  []Link    // links on which no offer has come yet
	waits  Link      // the link whose offer waits until the last ring is drained
	offer  Message   // that offer
	stops  []uint64  // revisions of stop orders that have not been answered
	begun  bool      // KindStart has arrived on this link
	copies bool      // a copy is under way: the state is a part of it
	mark   uint64    // the entry with which the copy is whole; 0: not known yet
	piece  []byte    // a piece for which there was no room
	heldP  bool      // piece is set
	told   [2]uint64 // the progress last reported: newest entry, synced entry
}

// NewFollower returns a follower whose state has all entries of the log. start is the present time by the member's
// clock.
func NewFollower(o FollowerOptions, start int64) *Follower {
	return &Follower{o: o, log: o.Log, stopAt: start}
}

// Offered gives the follower a link on which a member offers to be its primary.
func (f *Follower) Offered(l Link) { f.asked = append(f.asked, l) }

// Know gives the follower a record that was read; orders to stop that name an older record become invalid. An order
// that was obeyed is undone if the record has changed and its term goes on: the change to the next term would have
// been made from the revision that the order names, and can no longer happen. If the member continued to obey, no
// member would follow the primary of that term, and no failover would end the term, because the primary is alone in
// its set by then.
func (f *Follower) Know(rec *Record) {
	f.known = max(f.known, rec.Revision)
	if f.order != 0 && rec.Revision > f.order && rec.Term < f.barred {
		f.barred, f.order = rec.Term, 0
	}
}

// Bar makes sure that nothing of a lower term is granted or accepted from now on.
func (f *Follower) Bar(term uint64, now int64) {
	if term <= f.barred {
		return
	}
	f.barred, f.order, f.stopAt = term, 0, now
	if f.ring != nil && f.term < term {
		f.retire()
	}
}

// Barred returns the lowest term in which this member may reign. StopAt returns when that term was raised, by the
// member's clock.
func (f *Follower) Barred() uint64 { return f.barred }
func (f *Follower) StopAt() int64  { return f.stopAt }

// Stop obeys the order to follow no primary of the record's term. It returns false if the order is invalid. The
// answer is Report, once Stopped returns the order's revision.
func (f *Follower) Stop(rec *Record, now int64) bool {
	if rec.Revision < f.known || rec.Term+1 < f.barred {
		return false
	}
	f.known = rec.Revision
	if rec.Term >= f.barred { // otherwise it has granted nothing of the term since an earlier order
		f.barred, f.order, f.stopAt = rec.Term+1, rec.Revision, now
	} else if f.order != 0 {
		f.order = rec.Revision
	}
	if f.ring != nil && f.term <= rec.Term {
		f.retire()
	}
	if !slices.Contains(f.stops, rec.Revision) {
		f.stops = append(f.stops, rec.Revision)
	}
	return true
}

// Stopped returns the revisions of stop orders that can now be answered with Report, each once.
func (f *Follower) Stopped() (revisions []uint64) {
	if f.ring == nil {
		revisions, f.stops = f.stops, nil
	}
	return revisions
}

// A Report is the answer of a stopped member.
type Report struct {
	Seq   uint64 // newest entry
	Term  uint64 // in which the newest entry was made
	Whole bool   // otherwise the member has only a part of a copy
}

// Report returns the follower's report.
func (f *Follower) Report() Report {
	return Report{Seq: f.log.Last(), Term: f.log.TermAt(f.log.Last()), Whole: !f.copies}
}

// Spoil records that the state may have entries that no primary will ever have: it counts as a part of a copy.
func (f *Follower) Spoil() { f.copies, f.mark = true, 0 }

// Whole reports whether the state is more than a part of a copy.
func (f *Follower) Whole() bool { return !f.copies }

// retire fences the ring and closes the link. Later steps merge the entries in the ring (invariant 2).
func (f *Follower) retire() {
	if f.ring == nil || f.fenced {
		return
	}
	f.fenced = true
	f.ring.region.Fence()
	f.link.Close()
	f.link = nil
}

// drop frees the ring, which has been drained.
func (f *Follower) drop() {
	f.ring.region.Close()
	f.ring, f.fenced, f.begun = nil, false, false
}

// Close frees the follower's ring and closes its links. Entries in the ring are lost.
func (f *Follower) Close() {
	f.retire()
	if f.ring != nil {
		f.drop()
	}
	for _, l := range append(f.asked, f.waits) {
		if l != nil {
			l.Close()
		}
	}
	f.asked, f.waits = nil, nil
}

// Step merges new entries and answers the primary. worked is false if there was nothing to do.
func (f *Follower) Step(now int64) (worked bool) {
	worked = f.merge()
	if f.link != nil && f.link.Err() != nil {
		f.retire()
		worked = true
	}
	if f.ring != nil && f.fenced && f.drained() {
		f.drop()
		worked = true
	}
	worked = f.listen(now) || worked
	worked = f.offers(now) || worked
	if f.copies && f.mark != 0 && !f.heldP && f.log.Last() >= f.mark && f.o.State.Whole(f.mark) {
		f.copies, f.mark = false, 0
		if f.link != nil {
			f.answer(0) // the primary waits for this answer
		}
		worked = true
	}
	f.tell()
	return worked
}

// mergeAtOnce is the most entries merged in one step: some milliseconds of work, during which no ask is answered.
// Smaller: more steps for the same entries.
const mergeAtOnce = 1024

func (f *Follower) merge() (worked bool) {
	if f.ring == nil || !f.begun {
		return false
	}
	for range mergeAtOnce {
		term, body, ok := f.ring.peek()
		if !ok || !f.o.State.Merge(f.ring.next, term, body) {
			break
		}
		f.log.Append(term, body)
		f.ring.advance()
		worked = true
	}
	return worked
}

// drained reports whether a fenced ring has no entry left to merge. Before KindStart, the primary counts nothing as
// placed.
func (f *Follower) drained() bool {
	if !f.begun {
		return true
	}
	_, _, more := f.ring.peek()
	return !more
}

// offers handles offers of members that want to be the primary.
func (f *Follower) offers(now int64) (worked bool) {
	for i := 0; i < len(f.asked); i++ {
		l := f.asked[i]
		m, ok := l.Receive()
		if !ok && l.Err() == nil {
			continue
		}
		f.asked = slices.Delete(f.asked, i, i+1)
		i--
		worked = true
		switch {
		case !ok || m.Kind != KindOffer:
			l.Close()
		case m.Term < max(f.barred, f.term):
			l.Send(&Message{Kind: KindRefuse, Term: max(f.barred, f.term)})
		case f.waits != nil && f.offer.Term > m.Term:
			l.Send(&Message{Kind: KindRefuse, Term: f.offer.Term})
		default:
			if f.waits != nil {
				f.waits.Close()
			}
			f.waits, f.offer = l, m
			f.offer.Body = nil
			f.retire()
		}
	}
	if f.waits == nil || f.ring != nil {
		return worked
	}
	l, m := f.waits, f.offer
	f.waits = nil
	if m.Term < f.barred || f.accept(l, &m) != nil {
		l.Close()
	}
	return true
}

// accept follows the primary that made the offer m. There is no ring.
func (f *Follower) accept(l Link, m *Message) (err error) {
	f.o.State.Yield()
	if f.ring, err = newRing(f.o.Memory, f.o.RingSize); err != nil {
		return err
	}
	f.link, f.term, f.barred, f.order = l, m.Term, max(f.barred, m.Term), 0
	f.begun, f.heldP = false, false
	f.told = [2]uint64{}
	a := Message{
		Kind: KindAccept, Term: m.Term, Seq: f.log.Last(), Pos: f.log.TermAt(f.log.Last()), Synced: f.o.State.Synced(), Key: f.ring.region.Key(), Time: m.Time,
	}
	if !f.copies {
		a.Flags = FlagWhole
	}
	l.Send(&a)
	return nil
}

// listen handles the messages of the primary.
func (f *Follower) listen(now int64) (worked bool) {
	if f.heldP && f.link != nil && f.o.State.Piece(f.piece) {
		f.heldP = false
		f.link.Send(&Message{Kind: KindTaken})
		worked = true
	}
	for f.link != nil {
		m, ok := f.link.Receive()
		if !ok {
			break
		}
		worked = true
		if err := f.hear(&m); err != nil {
			f.retire()
		}
	}
	return worked
}

func (f *Follower) hear(m *Message) error {
	switch {
	case m.Kind == KindStart && !f.begun:
		if m.Flags&FlagCopy != 0 {
			var h Header
			if err := h.parse(m.Body); err != nil {
				return err
			}
			f.copies, f.mark = true, 0
			if err := f.o.State.Forget(m.Seq, h.Terms, h.State); err != nil {
				return err
			}
			f.log.forget(m.Seq, h.Terms)
		} else if m.Seq != f.log.Last() || f.copies {
			return fmt.Errorf("%w: entries come behind %d, and %d is the newest", ErrMalformed, m.Seq, f.log.Last())
		}
		f.ring.next, f.ring.pos, f.ring.end = m.Seq+1, m.Pos, m.Pos
		f.begun = true
	case m.Kind == KindAsk:
		f.answer(m.Time)
	case m.Kind == KindPiece && f.copies && f.begun && !f.heldP:
		if !f.o.State.Piece(m.Body) {
			f.piece, f.heldP = slices.Clone(m.Body), true
			return nil
		}
		f.link.Send(&Message{Kind: KindTaken})
	case m.Kind == KindMark && f.copies && f.begun:
		f.mark = m.Seq
	default:
		return fmt.Errorf("%w: an unexpected message of kind %d", ErrMalformed, m.Kind)
	}
	return nil
}

// answer reports this member's progress, and grants the ask that was sent at time; 0: no ask.
func (f *Follower) answer(time int64) {
	room, ok := f.o.State.Room()
	if !ok {
		return
	}
	a := Message{Kind: KindAnswer, Term: f.term, Seq: f.log.Last(), Synced: f.o.State.Synced(), Time: time, Room: room}
	if f.begun {
		a.Pos = f.ring.pos
	}
	if !f.copies {
		a.Flags = FlagWhole
	}
	f.told = [2]uint64{a.Seq, a.Synced}
	f.link.Send(&a)
}

// tell reports progress for which the primary waits.
func (f *Follower) tell() {
	if f.o.Eager && f.link != nil && f.begun && f.told != [2]uint64{f.log.Last(), f.o.State.Synced()} {
		f.answer(0)
	}
}

// Idle reports whether the follower has no ring, hence no entries to merge.
func (f *Follower) Idle() bool { return f.ring == nil }

// Following returns the term of the primary that Writes to this member's ring, 0 for none.
func (f *Follower) Following() uint64 {
	if f.ring == nil || f.fenced {
		return 0
	}
	return f.term
}

// Followed returns the highest term whose primary this member has followed, 0 for none.
func (f *Follower) Followed() uint64 { return f.term }

// Placed returns the number of whole entries in the ring that are not merged yet. It is for checks, and reads all of
// them.
func (f *Follower) Placed() (n uint64) {
	if f.ring == nil || !f.begun {
		return 0
	}
	r := *f.ring
	r.scratch = nil
	for {
		if _, _, ok := r.peek(); !ok {
			return n
		}
		r.advance()
		n++
	}
}
