package replica

import "slices"

// A Failover replaces the primary of a shard. The leader of the cluster drives it; a wrong suspicion of the primary
// costs availability, and nothing else. It orders the members of the record's set to stop (also the primary, which
// obeys if it is no longer the primary), collects their reports, and makes the next record.
type Failover struct {
	rec     Record
	reports map[string]Report
}

// NewFailover begins with a record that was read.
func NewFailover(rec Record) *Failover { return &Failover{rec: rec, reports: map[string]Report{}} }

// Record returns the record that the order to stop names.
func (f *Failover) Record() Record { return f.rec }

// Members returns the members that have not reported yet.
func (f *Failover) Members() []string {
	return slices.DeleteFunc(slices.Clone(f.rec.Set), func(m string) bool { _, ok := f.reports[m]; return ok })
}

// Reported records the report of a member.
func (f *Failover) Reported(member string, r Report) {
	if f.rec.Has(member) && r.Whole {
		f.reports[member] = r
	}
}

// Next returns the record that replaces the old one, by a compare-and-set from its revision; ok is false if no member
// can be promoted. Every member of the set has all committed entries. Next promotes the member with the most entries,
// because a file cannot be cut back: the other members' entries are a prefix of its entries. Members that have not
// reported may still grant, so they are not in the new set.
func (f *Failover) Next() (next Record, ok bool) {
	next = Record{Revision: f.rec.Revision, Term: f.rec.Term + 1, Life: f.rec.Life}
	var best Report
	for _, m := range f.rec.Set {
		r, reported := f.reports[m]
		if !reported {
			continue
		}
		next.Set = append(next.Set, m)
		if next.Primary == "" || r.Term > best.Term || r.Term == best.Term && r.Seq > best.Seq {
			next.Primary, best = m, r
		}
	}
	return next, next.Primary != ""
}
