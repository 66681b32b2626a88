package ramp

import (
	"slices"
	"strings"
	"time"

	"flashdbm/servers/fabric/sim"
	"flashdbm/servers/ramp/partition"
	"flashdbm/servers/replica"
)

// power ends all nodes at once.
func (n *simNodes) power() {
	n.m.say("the power fails")
	for i := range n.hosts {
		n.kill(i)
	}
}

// survivor returns the member whose file has the most entries of a partition. It returns nil unless the whole set of
// the record is lost and all nodes of that set are back.
func (n *simNodes) survivor(p int) *simMember {
	rec := &n.tables[p].Record
	var best *simMember
	for _, name := range rec.Set {
		i := slices.IndexFunc(n.hosts, func(h *sim.Node) bool { return strings.HasPrefix(name, h.Name()+".") })
		x := n.members[p][i]
		if x.name == name || x.member == nil || !x.host.Alive() {
			return nil
		}
		if best == nil || x.found.Term > best.found.Term || x.found.Term == best.found.Term && x.found.Seq > best.found.Seq {
			best = x
		}
	}
	return best
}

// revive begins the next life of the table, as package membership does: see revives. If one partition has lost its
// set and another has not, they cannot begin the next life together: once the first has not served for 5 s, the user
// ends all nodes.
func (n *simNodes) revive() {
	m := n.m
	if m.bad != "" || m.mode == partition.Sync {
		return
	}
	m.w.After(50*time.Millisecond+m.upTo(300*time.Millisecond), n.revive)
	for p, table := range n.tables {
		best := n.survivor(p)
		if best == nil {
			continue
		}
		together := true
		for q, other := range n.tables {
			if life := other.Record.Life; life < table.Record.Life || life == table.Record.Life && n.survivor(q) == nil {
				together = false
			}
		}
		if together {
			m.check.forget()
			n.revived++
			r := table.Record
			table.Change(n.etcd, replica.Record{Revision: r.Revision, Term: r.Term + 1, Primary: best.name, Set: []string{best.name}, Life: r.Life + 1}, func(replica.Record) {})
			continue
		}
		if m.w.Now()-n.served[p].Sub(time.Time{}) > 5*time.Second {
			n.cycled++
			n.power()
			return
		}
	}
}
