package replica

import (
	"slices"
	"time"
)

// Times of a reign, in nanoseconds.
const (
	// Tenure is how long a grant lasts, from when it was asked for. When it is longer, a new primary waits longer; when it is shorter, a
	// primary whose secondary is not scheduled for a moment serves no reads.
	Tenure = int64(time.Second)
	// StopWait is how long a new primary waits from its own stop: longer than any grant that it has given before, by what clocks may differ in
	// rate, and to spare.
	StopWait = int64(1200 * time.Millisecond)
	// askEvery, askEntries and askBytes are how often a secondary is asked, whichever comes first. More seldom: the log needs more memory, and
	// tenure is shorter. More often: more messages for each entry.
	askEvery   = int64(100 * time.Millisecond)
	askEntries = 32
	askBytes   = 64 << 10
	// leaveAfter is how long a member of the set may be silent before the set goes on without it. It is below Tenure, so that the primary knows of
	// the change before it must stop to serve reads; above several askEvery, so that one slow answer changes nothing.
	leaveAfter = int64(600 * time.Millisecond)
	// proposeEvery is how soon a change whose outcome is unknown is proposed again, and redialEvery the same for a connection.
	proposeEvery = int64(100 * time.Millisecond)
	redialEvery  = int64(100 * time.Millisecond)
	// joinsWithin is how old the newest grant of a member may be that is about to join the set. One that does not answer would stop all writes until
	// it had left again.
	joinsWithin = int64(300 * time.Millisecond)
)

// Mode says when a member has an entry.
type Mode uint8

const (
	Relaxed Mode = iota // its ring has it
	Strict              // its state has it
	Synced              // its file has it, as has the primary's
)

func (m Mode) String() string { return [...]string{"relaxed", "strict", "sync"}[m] }

// Source is the state machine of a primary, as far as members without the log need it. All calls are the reign's thread's.
type Source interface {
	// Header returns what a copy begins with, as of the newest entry.
	Header() []byte
	// Piece returns a part of the state for the member: what hashes from the given one on have, at the entry behind or later. ok is false while
	// it is not there yet: the call is repeated. next is where the next piece begins, last says that there is none.
	Piece(member string, behind, from uint64) (body []byte, next uint64, last, ok bool)
	// ForgetPieces ends a copy that will not be asked for any more.
	ForgetPieces(member string)
	// Mark appends an entry that changes nothing, and returns its number.
	Mark() uint64
	// Synced returns the newest entry that is durable at the primary, and Applied the newest one that its file has; in memory mode the newest one.
	Synced() uint64
	Applied() uint64
}

// Wishes are who shall be in the set, this member apart.
type Wishes struct {
	In    []string
	Out   []string // members of the set that shall leave it,
	Least int      // but only as long as this many members are left, this one included
}

// ReignOptions configure a Reign.
type ReignOptions struct {
	Self   string
	Mode   Mode
	Log    *Log
	Source Source
	Record Record // that made this member the primary
	StopAt int64  // by the member's clock: nothing is served before StopWait has passed since
}

// A Reign is a member as the primary. One thread uses it.
type Reign struct {
	o         ReignOptions
	log       *Log
	term      uint64
	start     uint64   // newest entry of earlier reigns
	rec       Record   // as it is known
	proposals []Record // not settled
	proposed  int64    // when the last one was made
	asked     bool     // the driver has not taken the last one yet
	committed uint64
	durable   uint64 // the newest entry that was said to be
	had       uint64 // what this member had synced when the reign began: no less than what earlier reigns have said to be durable
	serving   bool
	over      bool
	members   []*member // counted, wanted, or both
	wishes    Wishes
	hand      handover
	tenure    int64 // end; 0: none
	ignore    int64 // grants of asks before this time do not count
	now       int64
}

// NewReign begins a reign. The log has all entries of the member.
func NewReign(o ReignOptions) *Reign {
	r := &Reign{o: o, log: o.Log, term: o.Record.Term, start: o.Log.Last(), had: min(o.Log.Last(), o.Source.Synced()), rec: o.Record}
	r.keep()
	return r
}

// Learn takes a record that was read, from whatever source. Older ones change nothing.
func (r *Reign) Learn(rec Record) {
	if rec.Revision <= r.rec.Revision || r.over {
		return
	}
	if rec.Term != r.term || rec.Primary != r.o.Self {
		r.over = true
		return
	}
	for _, m := range r.members {
		if r.rec.Has(m.name) && !rec.Has(m.name) && !m.leaves {
			r.disconnect(m) // it was silent: it comes back by a new connection
		}
	}
	r.rec, r.proposals, r.asked = rec, nil, false // whatever was proposed from an older revision has failed, or is this record (invariant 4)
	r.proposed = 0
	if r.hand.asks { // another change has come first
		r.hand = handover{again: r.now + handAgain}
	}
}

// Over reports whether somebody else reigns, as far as is known.
func (r *Reign) Over() bool { return r.over }

// Term returns the reign's.
func (r *Reign) Term() uint64 { return r.term }

// Record returns the record as it is known.
func (r *Reign) Record() Record { return r.rec }

// Want says who shall be in the set.
func (r *Reign) Want(w Wishes) { r.wishes = w }

// counted reports whether the member has to have an entry before it counts (invariant 4).
func (r *Reign) counted(name string) bool {
	if name == r.o.Self {
		return false
	}
	if r.rec.Has(name) {
		return true
	}
	return slices.ContainsFunc(r.proposals, func(p Record) bool { return p.Has(name) })
}

// InSync returns how many members have all that is committed, this one included.
func (r *Reign) InSync() int { return len(r.rec.Set) }

// Serving reports whether the reign takes requests, and Committed which entries count.
func (r *Reign) Serving() bool     { return r.serving && !r.over }
func (r *Reign) Committed() uint64 { return r.committed }

// TenureEnd returns until when nobody else serves, by the member's clock; 0 if that is over or not known.
func (r *Reign) TenureEnd() int64 {
	if r.over || !r.serving || r.hand.asks {
		return 0
	}
	return r.tenure
}

// Suspended ends tenure: the clock has stood still, so no ask from before says anything.
func (r *Reign) Suspended(now int64) {
	r.ignore, r.tenure = now, 0
	for _, m := range r.members {
		m.granted = 0
	}
}

// Step takes what members have said and goes on as far as is possible. now is the member's clock, read before.
func (r *Reign) Step(now int64) (worked bool) {
	r.now = now
	if r.over {
		return false
	}
	r.choose()
	for _, m := range r.members {
		worked = r.listen(m) || worked
	}
	r.Advance()
	r.count()
	r.hands()
	r.propose()
	return worked
}

// Flush puts entries and asks on their way. It is called behind what appends entries.
func (r *Reign) Flush() (worked bool) {
	if r.over {
		return false
	}
	for _, m := range r.members {
		worked = r.post(m) || worked
		r.ask(m)
		worked = r.copy(m) || worked
	}
	r.keep()
	return worked
}

// choose makes the list of members what is counted and what is wanted.
func (r *Reign) choose() {
	add := func(name string) {
		if name == r.o.Self || r.member(name) != nil {
			return
		}
		r.members = append(r.members, &member{name: name, heard: r.now, since: r.now})
	}
	for _, name := range r.rec.Set {
		add(name)
	}
	for _, name := range r.wishes.In {
		add(name)
	}
	r.members = slices.DeleteFunc(r.members, func(m *member) bool {
		if r.counted(m.name) || slices.Contains(r.wishes.In, m.name) {
			return false
		}
		r.disconnect(m)
		return true
	})
}

func (r *Reign) member(name string) *member {
	for _, m := range r.members {
		if m.name == name {
			return m
		}
	}
	return nil
}

// Advance finds what is committed, and whether the reign may serve. The primary calls it when it has appended entries; Step does, too.
func (r *Reign) Advance() {
	c := r.log.Last()
	if r.o.Mode == Synced {
		c = min(c, r.o.Source.Synced())
	}
	for _, m := range r.members {
		if r.counted(m.name) {
			c = min(c, m.has(r.o.Mode))
		}
	}
	r.committed = max(r.committed, c)
	// Invariant 8. The primary's own file has to have what it began with: what has found no room in memory is looked for there.
	if !r.serving && c >= r.start && r.o.Source.Applied() >= r.start && (r.o.Record.Handed || r.now >= r.o.StopAt+StopWait) {
		r.serving = true
	}
}

// joins reports whether the member may join the set once it is level.
func (r *Reign) joins(m *member) bool {
	return r.serving && !r.rec.Has(m.name) && slices.Contains(r.wishes.In, m.name) && m.state == follows && m.begun && m.whole && r.now-m.granted < joinsWithin
}

// Durable returns the newest entry that all counted members have synced, whatever the mode; in memory mode the newest one that they have merged. Whoever is
// about to join counts as well, so that it becomes level: each member that is ever in the set has synced what was durable before, as the last one of them may be
// all that is left.
func (r *Reign) Durable() uint64 {
	d := r.o.Source.Synced()
	for _, m := range r.members {
		if r.counted(m.name) || r.joins(m) {
			d = min(d, m.synced)
		}
	}
	r.durable = max(r.durable, d)
	return r.durable
}

// count finds the end of the tenure (invariant 6).
func (r *Reign) count() {
	end := r.now + Tenure // alone: the lock of the directory keeps other lives away, and nobody else can be promoted
	for _, m := range r.members {
		if !r.counted(m.name) {
			continue
		}
		if m.granted == 0 {
			r.tenure = 0
			return
		}
		end = min(end, m.granted+Tenure)
	}
	r.tenure = end
}

// propose looks whether the set should change. What was proposed and is not settled is proposed again: one of the attempts will be the first.
func (r *Reign) propose() {
	if r.asked || r.proposed != 0 && r.now-r.proposed < proposeEvery {
		return
	}
	next, ok := r.change()
	if !ok && len(r.proposals) > 0 {
		next, ok = r.rec, true // the set as it is: any change of the revision settles what was proposed
	}
	if !ok {
		return
	}
	r.proposed, r.asked = r.now, true
	r.proposals = append(slices.DeleteFunc(r.proposals, func(p Record) bool { return p.Term == next.Term && slices.Equal(p.Set, next.Set) }), next)
}

// change returns the record that the reign would have.
func (r *Reign) change() (next Record, ok bool) {
	next = r.rec
	for _, m := range r.members {
		if r.rec.Has(m.name) && (m.leaves || r.now-max(m.heard, m.since) > leaveAfter) {
			next, ok = next.without(m.name), true
		}
	}
	switch {
	case ok:
		return next, true
	case r.hand.asks:
		return r.handed(), true
	}
	for _, m := range r.members {
		if r.joins(m) && m.has(r.o.Mode) >= r.committed && m.synced >= max(r.durable, r.had) {
			return next.with(m.name), true
		}
	}
	for _, name := range r.wishes.Out {
		if r.rec.Has(name) && name != r.o.Self && len(r.rec.Set) > r.wishes.Least {
			return next.without(name), true
		}
	}
	return next, false
}

// Proposal returns a change that the driver shall make now: a compare-and-set from Record.Revision. Whatever it learns goes to Learn; a change
// whose outcome it does not learn comes again.
func (r *Reign) Proposal() (Record, bool) {
	if !r.asked || r.over {
		return Record{}, false
	}
	r.asked = false
	return r.proposals[len(r.proposals)-1], true
}

// Fits reports whether all members have room for an item of n bytes, behind what is on its way to them.
func (r *Reign) Fits(n int) bool {
	for _, m := range r.members {
		if m.state != follows || !r.counted(m.name) || m.room == 0 {
			continue
		}
		underWay := (r.log.Last()-m.merged)*pageBytes + r.log.head - m.credited
		if m.room < underWay+uint64(n)+pageBytes {
			return false
		}
	}
	return true
}

// pageBytes is what an entry takes in a file beside its own bytes, at the worst.
const pageBytes = 4096

// keep tells the log what its memory is needed for (invariant 3).
func (r *Reign) keep() {
	least, any := r.log.head, false
	for _, m := range r.members {
		if !r.counted(m.name) && m.state != follows {
			continue
		}
		any = true
		if at, ok := r.log.start(m.kept(r.o.Mode)); ok {
			least = min(least, at)
		}
		if m.state == follows {
			least = min(least, m.completed)
		}
	}
	if any {
		r.log.Keep(least)
	} else {
		r.log.Free()
	}
}

// Close ends the reign: the links are closed, and the log is free.
func (r *Reign) Close() {
	r.over = true
	for _, m := range r.members {
		r.disconnect(m)
	}
	r.log.Free()
}

// A MemberStats tells how far a member is.
type MemberStats struct {
	Name    string `json:"name"`
	InSet   bool   `json:"in_set"`
	Linked  bool   `json:"linked"`
	Copying bool   `json:"copying"`
	Lag     uint64 `json:"lag_entries"`
	Granted int64  `json:"-"`
}

// Members returns the secondaries.
func (r *Reign) Members() (list []MemberStats) {
	for _, m := range r.members {
		s := MemberStats{Name: m.name, InSet: r.rec.Has(m.name), Linked: m.state == follows, Copying: m.copies != nil, Granted: m.granted}
		s.Lag = r.log.Last() - min(r.log.Last(), m.has(r.o.Mode))
		list = append(list, s)
	}
	return list
}
