package replica

import "time"

// A handover is the progress of a primary that gives its reign to a member of the set, without a pause that clients
// would notice. Its steps:
//
//	yields  no tenure is passed on. Requests are served as before, until all tenure that was passed on has ended
//	closed  no request is polled. Decided entries are committed, shown and answered, and the heir merges them
//	asks    the record of the next term, with the heir as its primary, is proposed. No read is answered before a
//	        record says
//	        who reigns
//
// If the heir does not have all entries soon enough, the primary takes requests again, and later retries the second
// step. In the third step the record decides.
type handover struct {
	heir   string // "" if there is no handover
	stays  bool   // this member stays in the set
	since  int64  // when it began to yield
	closed int64  // when it closed; 0: not yet
	asks   bool
	again  int64 // earliest time of the next handover
}

const (
	// closedFor is how long requests wait for the heir before they are served again. Smaller: a slow sync causes a
	// retry. Larger: clients notice the pause.
	closedFor = int64(300 * time.Millisecond)
	// handAgain is the pause before a retry.
	handAgain = int64(time.Second)
)

// HandOver begins to give the reign to a member of the set, and reports whether a handover is under way. stays: this
// member stays in the set.
func (r *Reign) HandOver(heir string, stays bool) bool {
	if r.hand.heir != "" {
		return true
	}
	m := r.member(heir)
	if !r.Serving() || r.now < r.hand.again || m == nil || !r.ready(m) {
		return false
	}
	r.hand = handover{heir: heir, stays: stays, since: r.now}
	return true
}

// ready reports whether the member could become the primary at once.
func (r *Reign) ready(m *member) bool {
	return r.rec.Has(m.name) && m.state == follows && m.begun && m.whole && !m.leaves && r.now-m.granted < joinsWithin
}

// Yields reports whether no tenure may be passed on, and Closed whether no request may be polled.
func (r *Reign) Yields() bool { return r.hand.heir != "" }
func (r *Reign) Closed() bool { return r.hand.closed != 0 }

// hands continues a handover.
func (r *Reign) hands() {
	h := &r.hand
	if h.heir == "" || h.asks {
		return
	}
	m := r.member(h.heir)
	switch {
	case m == nil || !r.ready(m):
		r.hand = handover{again: r.now + handAgain}
	case h.closed != 0 && r.now-h.closed > closedFor:
		h.closed, h.since = 0, r.now+handAgain-StopWait // it still yields, and retries later
	case h.closed == 0 && r.now-h.since >= StopWait:
		h.closed = r.now
	}
}

// Still reports that all decided entries are shown and answered. If the heir has them too, Still proposes the record
// of the next term.
func (r *Reign) Still() {
	h := &r.hand
	if h.closed == 0 || h.asks || r.over {
		return
	}
	if m := r.member(h.heir); m != nil && !r.log.Waits() && r.committed == r.log.Last() && m.merged == r.log.Last() {
		h.asks, r.proposed = true, 0
	}
}

// handed returns the record that makes the heir the primary (invariants 11 and 12).
func (r *Reign) handed() Record {
	next := r.rec
	if !r.hand.stays {
		next = next.without(r.o.Self)
	}
	next.Term, next.Primary, next.Handed = r.term+1, r.hand.heir, true
	return next
}
