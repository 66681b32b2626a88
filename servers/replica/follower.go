package replica

import (
	"fmt"
	"slices"
)

// State is the state machine of a secondary: it has what the entries say. All calls are the follower's thread's.
type State interface {
	// Yield is called before the member follows a primary: if it takes itself for the primary, it is none any more.
	Yield()
	// Merge applies an entry; false: there is no room for it now. The body is not kept.
	Merge(seq, term uint64, body []byte) bool
	// Forget begins a copy: the state becomes empty, as of the entry. header is what the primary's Source has said.
	Forget(seq uint64, terms []Term, header []byte) error
	// Piece applies a part of a copy; false: there is no room for it now. What Merge has applied is newer.
	Piece(body []byte) bool
	// Whole makes the copy, which ends with the entry, what the member has from now on; false: not yet. It is called again and again once all of
	// the copy has come.
	Whole(mark uint64) bool
	// Synced returns the newest entry that is durable here; in memory mode the newest one that was merged.
	Synced() uint64
	// Room returns how many bytes may still be put. ok is false while the state cannot go on: then the primary is not answered, and goes on
	// without this member.
	Room() (bytes uint64, ok bool)
}

// FollowerOptions configure a Follower.
type FollowerOptions struct {
	Memory   Allocator
	RingSize int // bytes; as large as the logs of all members
	Log      *Log
	State    State
	Eager    bool // progress is told without being asked: strict and sync mode wait for it
}

// A Follower is a member as a secondary: it has a ring of the primary that it follows. One thread uses it.
type Follower struct {
	o      FollowerOptions
	log    *Log
	link   Link // of the primary that is followed, nil if there is none
	ring   *ring
	term   uint64 // of the primary that was followed last
	barred uint64 // nothing below this term is granted, taken or reigned
	order  uint64 // revision of the record that the order was given from which has raised barred; 0: something else has
	known  uint64 // revision of the record that this member knows
	stopAt int64  // by the member's clock: the last stop, or its start
	fenced bool   // the ring takes nothing more: it is drained, and then given up

	asked  []Link   // have not made an offer yet
	waits  Link     // its offer waits until the last ring is drained
	offer  Message  // that offer
	stops  []uint64 // revisions whose stop has not been answered
	begun  bool     // KindStart has come on this link
	copies bool     // a copy is on its way: what there is is a part of it
	mark   uint64   // of the copy: it is whole with this entry; 0: not known yet
	piece  []byte   // that found no room
	heldP  bool     // there is such a piece
	told   [2]uint64
}

// NewFollower returns a follower whose state has all entries that the log has. start is the present time by the member's clock.
func NewFollower(o FollowerOptions, start int64) *Follower {
	return &Follower{o: o, log: o.Log, stopAt: start}
}

// Offered gives the follower a link on which somebody wants to be its primary.
func (f *Follower) Offered(l Link) { f.asked = append(f.asked, l) }

// Know tells of a record that was read: an order to stop that was given from an older one is void. One that was obeyed has come to nothing if the record has changed and
// the term goes on: the change to the next term would have been made from the revision that the order names, and never will be. If the member went on to obey, nobody
// would follow a primary whose term no failover ends, as that one is alone in its set by then.
func (f *Follower) Know(rec *Record) {
	f.known = max(f.known, rec.Revision)
	if f.order != 0 && rec.Revision > f.order && rec.Term < f.barred {
		f.barred, f.order = rec.Term, 0
	}
}

// Bar makes sure that nothing below the term is granted or taken from now on.
func (f *Follower) Bar(term uint64, now int64) {
	if term <= f.barred {
		return
	}
	f.barred, f.order, f.stopAt = term, 0, now
	if f.ring != nil && f.term < term {
		f.retire()
	}
}

// Barred returns the lowest term that this member may reign in, and StopAt when it was told so, by its clock.
func (f *Follower) Barred() uint64 { return f.barred }
func (f *Follower) StopAt() int64  { return f.stopAt }

// Stop obeys the order to follow nobody of the record's term any more. It returns false if the order is void. The answer is Report, once
// Stopped returns the order's revision.
func (f *Follower) Stop(rec *Record, now int64) bool {
	if rec.Revision < f.known || rec.Term+1 < f.barred {
		return false
	}
	f.known = rec.Revision
	if rec.Term >= f.barred { // else it has granted nothing of the term since an earlier order
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

// Stopped returns the revisions of orders to stop that can be answered with Report now, each once.
func (f *Follower) Stopped() (revisions []uint64) {
	if f.ring == nil {
		revisions, f.stops = f.stops, nil
	}
	return revisions
}

// A Report is what a member says that was stopped.
type Report struct {
	Seq   uint64 // newest entry
	Term  uint64 // in which it was made
	Whole bool   // else it has a part of a copy only
}

// Report returns the follower's.
func (f *Follower) Report() Report {
	return Report{Seq: f.log.Last(), Term: f.log.TermAt(f.log.Last()), Whole: !f.copies}
}

// Spoil says that the state may have entries that no primary will ever have: it is worth as much as a part of a copy.
func (f *Follower) Spoil() { f.copies, f.mark = true, 0 }

// Whole reports whether the state is no part of a copy.
func (f *Follower) Whole() bool { return !f.copies }

// retire fences the ring and gives the link up. What is in the ring is merged by later steps (invariant 2).
func (f *Follower) retire() {
	if f.ring == nil || f.fenced {
		return
	}
	f.fenced = true
	f.ring.region.Fence()
	f.link.Close()
	f.link = nil
}

// drop gives the ring's memory back, once it is drained.
func (f *Follower) drop() {
	f.ring.region.Close()
	f.ring, f.fenced, f.begun = nil, false, false
}

// Close gives up what the follower has of the fabric. What is in the ring is lost.
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

// Step merges what has come and answers. worked is false if there was nothing to do.
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
			f.answer(0) // the primary waits for it
		}
		worked = true
	}
	f.tell()
	return worked
}

// mergeAtOnce is how many entries are merged in one step: some milliseconds, within which no ask is answered.
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

// drained reports whether a fenced ring has nothing that could be merged. Where KindStart has not come, the primary counts nothing as placed.
func (f *Follower) drained() bool {
	if !f.begun {
		return true
	}
	_, _, more := f.ring.peek()
	return !more
}

// offers looks at those who want to be the primary.
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

// accept follows the primary that has made an offer. There is no ring.
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

// listen does what the primary says.
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

// answer tells how far this member is, and grants the ask of the time; 0 for none.
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

// tell tells of progress that somebody waits for.
func (f *Follower) tell() {
	if f.o.Eager && f.link != nil && f.begun && f.told != [2]uint64{f.log.Last(), f.o.State.Synced()} {
		f.answer(0)
	}
}

// Idle reports whether the follower has no ring, so nothing that it could merge.
func (f *Follower) Idle() bool { return f.ring == nil }

// Following returns the term of the primary that this member has a ring of, 0 for none.
func (f *Follower) Following() uint64 {
	if f.ring == nil || f.fenced {
		return 0
	}
	return f.term
}

// Placed returns how many whole entries lie in the ring that are not merged yet. It is for checks, and looks at all of them.
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
