package replica

import "slices"

// A Failover replaces the primary of a shard. Whoever leads the cluster drives it; to be wrong about the primary costs availability, and nothing
// else. It tells the members of the record's set to stop (the primary too, which obeys if it is no primary any more), takes their reports, and
// makes the next record.
type Failover struct {
	rec     Record
	reports map[string]Report
}

// NewFailover begins with a record that was read.
func NewFailover(rec Record) *Failover { return &Failover{rec: rec, reports: map[string]Report{}} }

// Record is what the members are told to stop.
func (f *Failover) Record() Record { return f.rec }

// Members returns who has not reported yet.
func (f *Failover) Members() []string {
	return slices.DeleteFunc(slices.Clone(f.rec.Set), func(m string) bool { _, ok := f.reports[m]; return ok })
}

// Reported takes what a member has answered.
func (f *Failover) Reported(member string, r Report) {
	if f.rec.Has(member) && r.Whole {
		f.reports[member] = r
	}
}

// Next returns the record to set in place of the old one, by a compare-and-set from its revision; ok is false if nobody can be promoted.
// Every member of the set has all that is committed. The one with the most entries is promoted, as a file cannot be cut back: the others'
// entries are a prefix of its. Members that have not reported may still grant, so they are not in the new set.
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
