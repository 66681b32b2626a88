package replica

// clockJump is by how many milliseconds the date may move against the monotonic clock: more means that the machine was suspended, and its monotonic clock stood
// still. When it is larger, a tenure may outlast the suspension by as much; when it is smaller, a clock that is set right ends tenures.
const clockJump = 100

// A Standing is what a member is at the moment: a secondary, as which it begins, or the primary. The state machine that the replicas are of has one. One thread uses it.
type Standing struct {
	self     string
	ended    uint64
	follower *Follower // nil: there are no replicas
	reign    *Reign    // nil for a secondary
	rec      Record    // the newest one that was read
	reigned  uint64    // the last term that this life reigned in
	gap      int64     // the date less the monotonic clock, in milliseconds
}

// Join makes the member a secondary of nobody yet. ended is the term that the record had when this life began: it does not go on in it. mono and wall are the
// clocks as they are: nanoseconds, and the machine's date in milliseconds.
func (x *Standing) Join(self string, ended uint64, f *Follower, mono int64, wall uint64) {
	x.self, x.ended, x.follower, x.gap = self, ended, f, int64(wall)-mono/1e6
}

// Follower returns the member as a secondary, and Reign as the primary; nil if it is none.
func (x *Standing) Follower() *Follower { return x.follower }
func (x *Standing) Reign() *Reign       { return x.reign }

// Record returns the newest record that the member was told.
func (x *Standing) Record() Record { return x.rec }

// Learn tells the member what the record says.
func (x *Standing) Learn(rec Record) {
	if rec.Revision <= x.rec.Revision {
		return
	}
	x.rec = rec
	x.follower.Know(&rec)
	if x.reign != nil {
		x.reign.Learn(rec)
	}
}

// Stop obeys the order to follow nobody of the record's term any more; false if the order is void, or this is the primary.
func (x *Standing) Stop(rec *Record, now int64) bool {
	if x.reign != nil && !x.reign.Over() {
		return false
	}
	return x.follower.Stop(rec, now)
}

// Look takes the clocks. If the machine was suspended since the last look, what was granted before is over.
func (x *Standing) Look(mono int64, wall uint64) (suspended bool) {
	gap := int64(wall) - mono/1e6
	if gap <= x.gap+clockJump && gap >= x.gap-clockJump {
		return false
	}
	if x.gap = gap; x.reign != nil {
		x.reign.Suspended(mono)
	}
	return true
}

// Promoted reports whether the record makes this member the primary of a term in which it may reign.
func (x *Standing) Promoted() bool {
	return x.reign == nil && x.rec.Primary == x.self && x.rec.Term > max(x.reigned, x.ended) && x.rec.Term >= x.follower.Barred() &&
		x.follower.Whole() && x.follower.Idle()
}

// Begin makes this member the primary, as the record says. Of the options Self, Record and StopAt are the standing's.
func (x *Standing) Begin(o ReignOptions) *Reign {
	o.Self, o.Record, o.StopAt = x.self, x.rec, x.follower.StopAt()
	x.reign, x.reigned = NewReign(o), x.rec.Term
	return x.reign
}

// End ends the reign, if there is one.
func (x *Standing) End() {
	if x.reign != nil {
		x.reign.Close()
		x.reign = nil
	}
}
