package replica

// clockJump is how many milliseconds the date may move relative to the monotonic clock. A larger move means that the
// machine was suspended, and its monotonic clock stood still. Larger: a tenure may outlast a suspension by that much.
// Smaller: setting the clock ends tenures.
const clockJump = 100

// A Standing is the present role of a member: a secondary, as which it begins, or the primary. The replicated state
// machine has one. One thread uses it.
type Standing struct {
	self     string
	ended    uint64    // the record's term when this life began
	follower *Follower // nil without replicas
	reign    *Reign    // nil for a secondary
	rec      Record    // the newest record that was read
	reigned  uint64    // the last term in which this life reigned
	gap      int64     // the date minus the monotonic clock, in milliseconds
}

// Join makes the member a secondary that does not follow a primary yet. ended is the record's term when this life
// began: the member does not reign in it. mono and wall are the present clocks: the monotonic one in nanoseconds, the
// machine's date in milliseconds.
func (x *Standing) Join(self string, ended uint64, f *Follower, mono int64, wall uint64) {
	x.self, x.ended, x.follower, x.gap = self, ended, f, int64(wall)-mono/1e6
}

// Follower returns the member's part as a secondary. Reign returns its part as the primary, nil if it is not the
// primary.
func (x *Standing) Follower() *Follower { return x.follower }
func (x *Standing) Reign() *Reign       { return x.reign }

// Record returns the newest record that the member has learned.
func (x *Standing) Record() Record { return x.rec }

// Learn tells the member the content of the record.
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

// Stop obeys the order to follow no primary of the record's term; false if the order is invalid, or this member is
// the primary.
func (x *Standing) Stop(rec *Record, now int64) bool {
	if x.reign != nil && !x.reign.Over() {
		return false
	}
	return x.follower.Stop(rec, now)
}

// Look checks the clocks. If the machine was suspended since the last call, earlier grants no longer count.
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

// Begin makes this member the primary, as the record says. It sets the options Self, Record and StopAt.
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
