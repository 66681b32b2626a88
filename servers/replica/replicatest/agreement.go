// Package replicatest simulates the surroundings of a shard's replicas: the cluster's agreement, leaders that may be
// wrong, and links between members. The simulators of tables use it.
package replicatest

import (
	"slices"
	"time"

	"flashdbm/servers/fabric/sim"
	"flashdbm/servers/replica"
)

// An Agreement is the record of a shard, as a cluster keeps it: requests and answers may be lost or late.
type Agreement struct {
	World   *sim.World
	At      *sim.Node // the node that keeps the record
	Say     func(format string, args ...any)
	Record  replica.Record
	Members map[string]*Seat // by name: the present lives

	Calm bool // no more faults happen

	Reigns, Handed int // how many reigns have begun, and how many of them by a handover

	dialled map[string]*Link // the dialled members' ends, by hello
}

// NewAgreement returns the agreement on a new shard, whose first primary is alone in the set.
func NewAgreement(w *sim.World, at *sim.Node, first string, say func(format string, args ...any)) *Agreement {
	return &Agreement{
		World: w, At: at, Say: say, Members: map[string]*Seat{}, dialled: map[string]*Link{},
		Record: replica.Record{Revision: 1, Term: 1, Primary: first, Set: []string{first}},
	}
}

func (a *Agreement) rand(n int) int { return a.World.Rand().IntN(n) }

func (a *Agreement) upTo(d time.Duration) time.Duration { return time.Duration(a.rand(int(d))) }

// slow returns a random time to the cluster and back, or between processes outside the fabric: occasionally seconds.
func (a *Agreement) slow() time.Duration {
	switch a.rand(30) {
	case 0:
		return a.upTo(2 * time.Second)
	case 1, 2:
		return a.upTo(30 * time.Millisecond)
	}
	return a.upTo(500 * time.Microsecond)
}

// Read passes the record to a node that asks for it, unless the request or the answer is lost.
func (a *Agreement) Read(n *sim.Node, answer func(replica.Record)) {
	a.World.After(a.slow(), func() {
		if !a.World.Reaches(n, a.At) {
			return
		}
		rec := a.Record
		a.World.After(a.slow(), func() {
			if a.World.Reaches(a.At, n) && a.rand(30) > 0 {
				answer(rec)
			}
		})
	})
}

// Change is a compare-and-set. The request or the answer may be lost; watchers learn of a change late or never.
func (a *Agreement) Change(n *sim.Node, next replica.Record, answer func(replica.Record)) {
	a.World.After(a.slow(), func() {
		if !a.World.Reaches(n, a.At) {
			return
		}
		if a.Record.Revision == next.Revision {
			next.Revision++
			next.Set = slices.Clone(next.Set)
			if next.Term > a.Record.Term {
				a.Reigns++
				if next.Handed {
					a.Handed++
				}
			}
			a.Record = next
			a.Say("record %+v", next)
			for _, s := range a.sorted() {
				a.World.After(a.slow(), func() {
					if a.World.Reaches(a.At, s.Node) && a.rand(20) > 0 {
						s.Learn(next)
					}
				})
			}
		}
		rec := a.Record
		a.World.After(a.slow(), func() {
			if a.World.Reaches(a.At, n) && a.rand(20) > 0 {
				answer(rec)
			}
		})
	})
}

// sorted returns the members in a fixed order, so that a seed determines the run.
func (a *Agreement) sorted() (list []*Seat) {
	for _, s := range a.Members {
		list = append(list, s)
	}
	slices.SortFunc(list, func(x, y *Seat) int {
		if x.Name < y.Name {
			return -1
		}
		return 1
	})
	return list
}

// Lead makes a node act as the leader that looks after the shard, until over returns true.
func (a *Agreement) Lead(at *sim.Node, over func() bool) {
	if over() {
		return
	}
	a.World.After(200*time.Millisecond+a.upTo(300*time.Millisecond), func() { a.Lead(at, over) })
	a.Read(at, func(rec replica.Record) {
		p := a.Members[rec.Primary]
		suspect := p == nil || !p.Up() || !p.Node.Running() || !a.World.Reaches(p.Node, a.At) || !a.Calm && a.rand(60) == 0 ||
			p.Shard.Reign() == nil && a.rand(3) == 0 || a.stopped(&rec, at)
		if !suspect {
			return
		}
		f := replica.NewFailover(rec)
		for _, name := range f.Members() {
			if s := a.Members[name]; s != nil {
				s.order(at, f)
			}
		}
		done := false
		a.World.After(a.upTo(200*time.Millisecond), func() {
			if next, ok := f.Next(); ok && !done {
				done = true
				a.Say("a leader promotes %+v", next)
				a.Change(at, next, func(replica.Record) {})
			}
		})
	})
}

// stopped reports whether a leader that has not finished the failover has stopped a member: that member follows no
// primary in this term.
func (a *Agreement) stopped(rec *replica.Record, at *sim.Node) bool {
	return slices.ContainsFunc(rec.Set, func(name string) bool {
		s := a.Members[name]
		return s != nil && s.Up() && a.World.Reaches(s.Node, at) && s.Shard.Follower().Barred() > rec.Term
	})
}

// Isolate cuts a node off from others for a while, so that it cannot learn that another node serves. In half of the
// cases the node also stops meanwhile.
func Isolate(w *sim.World, n *sim.Node, others []*sim.Node) {
	for _, o := range others {
		w.Cut(n, o)
		w.Cut(o, n)
	}
	upTo := func(d time.Duration) time.Duration { return time.Duration(w.Rand().IntN(int(d))) }
	d := time.Second + upTo(4*time.Second)
	if w.Rand().IntN(2) == 0 && n.Running() {
		w.After(upTo(200*time.Millisecond), func() {
			if n.Running() {
				n.Stop()
				w.After(upTo(d), n.Resume)
			}
		})
	}
	w.After(d, func() {
		for _, o := range others {
			w.Heal(n, o)
			w.Heal(o, n)
		}
	})
}
