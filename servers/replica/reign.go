package replica

import (
	"slices"
	"time"
)

// Times of a reign, in nanoseconds where no unit is given.
const (
	// Tenure is how long a grant lasts, counted from its ask. Longer: a new primary waits longer. Shorter: a primary
	// whose secondary is not scheduled for a moment serves no reads.
	Tenure = int64(time.Second)
	// StopWait is how long a new primary waits after its own stop: longer than any grant that it gave before, plus
	// the largest difference in rate of two clocks, with a margin.
	StopWait = int64(1200 * time.Millisecond)
	// askEvery, askEntries and askBytes are the interval, the entries and the bytes after which a secondary is asked,
	// whichever comes first. Larger: the log needs more memory, and tenure is shorter. Smaller: more messages for
	// each entry.
	askEvery   = int64(100 * time.Millisecond)
	askEntries = 32
	askBytes   = 64 << 10
	// leaveAfter is how long a member of the set may be silent before it is removed from the set. It is below Tenure,
	// so that the primary knows of the change before it would have to stop serving reads; and it is several askEvery,
	// so that one slow answer changes nothing.
	leaveAfter = int64(600 * time.Millisecond)
	// proposeEvery is the interval at which a change with unknown outcome is proposed again; redialEvery is the
	// interval of attempts to connect.
	proposeEvery = int64(100 * time.Millisecond)
	redialEvery  = int64(100 * time.Millisecond)
	// joinsWithin is the greatest age of the newest grant of a member that is about to join the set. A member that
	// does not answer would stop all writes until it had left again.
	joinsWithin = int64(300 * time.Millisecond)
)

// Mode says when a member has an entry.
type Mode uint8

const (
	Relaxed Mode = iota // the entry is in its ring
	Strict              // its state has applied the entry
	Synced              // its file has the entry, as has the primary's
)

func (m Mode) String() string { return [...]string{"relaxed", "strict", "sync"}[m] }

// Source is the state machine of a primary, as the source of copies for members that the log cannot bring up to date.
// Only the reign's thread calls it.
type Source interface {
	// Header returns the header of a copy, as of the newest entry.
	Header() []byte
	// Piece returns a part of the state for the member: the records with hashes from from on, as of the entry behind
	// or later. ok is false while the part is not ready: the call is repeated. next is where the next piece begins;
	// last says that there is none.
	Piece(member string, behind, from uint64) (body []byte, next uint64, last, ok bool)
	// ForgetPieces ends a copy for which no piece will be requested any more.
	ForgetPieces(member string)
	// Mark appends an entry that changes no record, and returns its number.
	Mark() uint64
	// Synced returns the newest entry that is durable at the primary, Applied the newest entry in its file; in memory
	// mode both return the newest entry.
	Synced() uint64
	Applied() uint64
}

// Wishes say which other members should be in the set.
type Wishes struct {
	In    []string
	Out   []string // members of the set that should leave it,
	Least int      // but only while the set has more than this many members, including this one
}

// ReignOptions configure a Reign.
type ReignOptions struct {
	Self   string
	Mode   Mode
	Log    *Log
	Source Source
	Record Record // that made this member the primary
	StopAt int64  // the member's last stop, by its clock: nothing is served before StopWait has passed since
}

// A Reign is a member in the role of the primary. One thread uses it.
type Reign struct {
	o         ReignOptions
	log       *Log
	term      uint64
	start     uint64   // newest entry of earlier reigns
	rec       Record   // the newest known record
	proposals []Record // proposed, with unknown outcome
	proposed  int64    // when the last proposal was made
	asked     bool     // the driver has not taken the last proposal yet
	committed uint64
	durable   uint64 // the newest entry that was reported durable
	had       uint64 // what this member had synced when the reign began: at least what earlier reigns have reported durable
	serving   bool
	over      bool
	members   []*member // counted, wanted, or both
	wishes    Wishes
	hand      handover
	tenure    int64 // the end of tenure; 0: none
	ignore    int64 // grants of asks up to this time do not count
	now       int64
}

// NewReign begins a reign. The log has all entries of the member.
func NewReign(o ReignOptions) *Reign {
	r := &Reign{o: o, log: o.Log, term: o.Record.Term, start: o.Log.Last(), had: min(o.Log.Last(), o.Source.Synced()), rec: o.Record}
	r.keep()
	return r
}

// Learn takes a record that was read, from any source. Older records have no effect.
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
			r.disconnect(m) // it was silent; it returns with a new connection
		}
	}
	r.rec, r.proposals, r.asked = rec, nil, false // proposals from an older revision have failed, or are this record (invariant 4)
	r.proposed = 0
	if r.hand.asks { // another change came first
		r.hand = handover{again: r.now + handAgain}
	}
}

// Over reports whether another member reigns, as far as this one knows.
func (r *Reign) Over() bool { return r.over }

// Term returns the reign's term.
func (r *Reign) Term() uint64 { return r.term }

// Record returns the newest known record.
func (r *Reign) Record() Record { return r.rec }

// Want sets which members should be in the set.
func (r *Reign) Want(w Wishes) { r.wishes = w }

// counted reports whether entries are committed only if the member has them (invariant 4).
func (r *Reign) counted(name string) bool {
	if name == r.o.Self {
		return false
	}
	if r.rec.Has(name) {
		return true
	}
	return slices.ContainsFunc(r.proposals, func(p Record) bool { return p.Has(name) })
}

// InSync returns the number of members that have all committed entries, this one included.
func (r *Reign) InSync() int { return len(r.rec.Set) }

// Serving reports whether the reign takes requests. Committed returns the newest committed entry.
func (r *Reign) Serving() bool     { return r.serving && !r.over }
func (r *Reign) Committed() uint64 { return r.committed }

// TenureEnd returns the time until which no other member serves, by this member's clock; 0 if it has passed or is not
// known.
func (r *Reign) TenureEnd() int64 {
	if r.over || !r.serving || r.hand.asks {
		return 0
	}
	return r.tenure
}

// Suspended ends tenure: the clock stood still, so grants of earlier asks no longer
// count.
func (r *Reign) Suspended(now int64) {
	r.ignore, r.tenure = now, 0
	for _, m := range r.members {
		m.granted = 0
	}
}

// Step handles the members' messages and advances the reign. now is the member's clock, read before the call.
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

// Flush sends entries and asks. The caller calls it after appending entries.
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

// choose makes r.members the list of counted and wanted members.
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

// Advance updates what is committed, and whether the reign may serve. The primary calls it after appending entries;
// Step calls it, too.
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
	// Invariant 8. The primary's own file must have the entries with which the reign began: what has no room in
	// memory is looked up there.
	if !r.serving && c >= r.start && r.o.Source.Applied() >= r.start && (r.o.Record.Handed || r.now >= r.o.StopAt+StopWait) {
		r.serving = true
	}
}

// joins reports whether the member may join the set once it has all committed entries.
func (r *Reign) joins(m *member) bool {
	return r.serving && !r.rec.Has(m.name) && slices.Contains(r.wishes.In, m.name) && m.state == follows && m.begun && m.whole && r.now-m.granted < joinsWithin
}

// Durable returns the newest entry that all counted members have synced, in any mode; in memory mode the newest entry
// that they have merged. A member about to join counts, too, so that it can catch up: each member of the set must
// have synced what was durable before it joined, because it may be the last member left.
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

// count computes the end of the tenure (invariant 6).
func (r *Reign) count() {
	end := r.now + Tenure // for a member alone in the set: the lock of the directory excludes other lives, and no other member can be promoted
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

// propose proposes a change of the set, if one is due. A proposal with unknown outcome is proposed again: the first
// attempt that arrives takes effect.
func (r *Reign) propose() {
	if r.asked || r.proposed != 0 && r.now-r.proposed < proposeEvery {
		return
	}
	next, ok := r.change()
	if !ok && len(r.proposals) > 0 {
		next, ok = r.rec, true // the set unchanged: a new revision shows the outcome of the proposals
	}
	if !ok {
		return
	}
	r.proposed, r.asked = r.now, true
	r.proposals = append(slices.DeleteFunc(r.proposals, func(p Record) bool { return p.Term == next.Term && slices.Equal(p.Set, next.Set) }), next)
}

// change returns the record that the reign wants; ok is false if that is the present one.
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

// Proposal returns a change that the driver makes now, by a compare-and-set from Record.Revision. The driver passes
// the resulting record to Learn; a change whose outcome it does not learn is proposed again.
func (r *Reign) Proposal() (Record, bool) {
	if !r.asked || r.over {
		return Record{}, false
	}
	r.asked = false
	return r.proposals[len(r.proposals)-1], true
}

// Fits reports whether all members have room for an item of n bytes, besides the entries on their way to them.
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

// pageBytes is the most that an entry takes in a file besides its own bytes.
const pageBytes = 4096

// keep tells the log which part of its memory is needed (invariant 3).
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

// Close ends the reign: it closes the links and frees the log.
func (r *Reign) Close() {
	r.over = true
	for _, m := range r.members {
		r.disconnect(m)
	}
	r.log.Free()
}

// MemberStats describe the progress of a member.
type MemberStats struct {
	Name    string `json:"name"`
	InSet   bool   `json:"in_set"`
	Linked  bool   `json:"linked"`
	Copying bool   `json:"copying"`
	Lag     uint64 `json:"lag_entries"`
	Granted int64  `json:"-"`
}

// Members returns the state of the secondaries.
func (r *Reign) Members() (list []MemberStats) {
	for _, m := range r.members {
		s := MemberStats{Name: m.name, InSet: r.rec.Has(m.name), Linked: m.state == follows, Copying: m.copies != nil, Granted: m.granted}
		s.Lag = r.log.Last() - min(r.log.Last(), m.has(r.o.Mode))
		list = append(list, s)
	}
	return list
}
