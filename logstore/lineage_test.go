package logstore

import "fmt"

// A lineage is what is known of one history of the toy from outside: what was committed, acknowledged and written where.
type lineage struct {
	hist    map[uint64]toyState // by commit
	acked   uint64              // newest commit that must survive
	issued  uint64              // newest commit that may
	owner   map[Addr]uint64     // group that wrote a page last
	created bool                // a checkpoint was made
}

func newLineage() *lineage {
	l := &lineage{}
	l.reset()
	return l
}

func (l *lineage) reset() {
	*l = lineage{hist: map[uint64]toyState{0: {}}, owner: map[Addr]uint64{}}
}

// clone copies what was known when an image was taken.
func (l *lineage) clone() *lineage {
	c := &lineage{hist: map[uint64]toyState{}, owner: map[Addr]uint64{}, acked: l.acked, issued: l.issued, created: l.created}
	for k, v := range l.hist {
		c.hist[k] = v
	}
	for k, v := range l.owner {
		c.owner[k] = v
	}
	return c
}

func (l *lineage) own(a Addr, n int64, group uint64) {
	for i := range n {
		l.owner[a+uint64(i)] = group
	}
}

// forgetFrom drops the places of groups that a crash cut off.
func (l *lineage) forgetFrom(group uint64) {
	for a, g := range l.owner {
		if g >= group {
			delete(l.owner, a)
		}
	}
}

// recovered compares what recovery found: acknowledged ⊆ recovered ⊆ issued, each commit whole and in order. From now on all of it was
// shown, so it must survive; what was not recovered must never come back.
func (l *lineage) recovered(d *toy) error {
	if d.seq < l.acked || d.seq > l.issued {
		return fmt.Errorf("%w: recovered commit %d, acknowledged %d, issued %d", errToy, d.seq, l.acked, l.issued)
	}
	if got, want := d.state(), l.hist[d.seq]; got != want {
		return fmt.Errorf("%w: commit %d recovered as %v, was %v", errToy, d.seq, got, want)
	}
	for seq := range l.hist {
		if seq > d.seq {
			delete(l.hist, seq)
		}
	}
	l.acked, l.issued = d.seq, d.seq
	l.forgetFrom(d.s.LastGroup() + 1)
	return nil
}
