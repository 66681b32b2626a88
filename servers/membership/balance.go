package membership

import (
	"context"
	"slices"
	"time"

	"flashdbm/servers/replica"
)

// The set of nodes determines which nodes have a shard. Each shard orders all nodes in its own way (ranked). The
// first nodes of the order that are alive and not drained should be its set, and the very first its primary. A node
// that comes or goes changes the sets of few shards, and all nodes reach the same result without communication.
//
// A set grows before it shrinks: a new member receives a copy and joins, and then unwanted members leave. A primary
// that is not wanted hands its reign over before that. So no client waits for a drained node, and no shard has fewer
// copies at any time.

const (
	// balanceAfter is how long the first node of a shard's order must have been in the set before the primary hands
	// the reign over to it. Shorter: a node that comes and goes moves the reign each time.
	balanceAfter = 10 * time.Second
	// planEvery is the interval at which a primary checks whether its set should change.
	planEvery = 100 * time.Millisecond
)

// A plan says which nodes should have a shard, and which should be its primary.
type plan struct {
	wishes replica.Wishes
	heirs  []string // nodes that should be the primary instead of this node, the best first
	stays  bool     // this node stays in the set
	soon   bool     // without waiting for balanceAfter
}

// plan returns the plan for a shard whose primary is this node.
func (m *Node) plan(number uint32, rec *replica.Record) (p plan) {
	k := m.knows.Load()
	leaves := m.leaving.Load()
	want := m.ranked(number)
	if leaves {
		want = slices.DeleteFunc(want, func(name string) bool { return name == m.self })
	}
	want = want[:min(len(want), m.config.Replicas)]
	p.stays = slices.Contains(want, m.self)
	p.wishes = replica.Wishes{In: slices.DeleteFunc(slices.Clone(want), func(name string) bool { return name == m.self }), Least: len(want)}
	var urgent []string
	for _, name := range rec.Set {
		switch {
		case name == m.self || slices.Contains(want, name):
		case k.nodes[name].Leaves:
			urgent = append(urgent, name)
		case k.drained[name] || len(want) == m.config.Replicas: // otherwise only the member's session may be lost, and the member may return
			p.wishes.Out = append(p.wishes.Out, name)
		}
	}
	if urgent != nil {
		p.wishes.Out, p.wishes.Least = urgent, m.config.MinInSync
	}
	if _, lives := k.nodes[m.self]; !lives && !leaves || len(want) == 0 || want[0] == m.self {
		return p // without a session of its own, the node does not know which others are alive
	}
	outside := func(name string) bool { return !rec.Has(name) }
	switch {
	case leaves:
		p.soon, p.heirs = true, slices.DeleteFunc(want, outside)
	case p.stays && rec.Has(want[0]), !slices.ContainsFunc(want, outside):
		p.soon, p.heirs = !p.stays, want[:1]
	}
	return p
}

// plan makes the reign follow the node's plan for the shard. The shard's thread calls it while this node is the
// primary.
func (c *Copy) plan(reign *replica.Reign) {
	rec := reign.Record()
	p := c.m.plan(c.number, &rec)
	reign.Want(p.wishes)
	if len(p.heirs) == 0 {
		c.heirSince = time.Time{}
		return
	}
	if c.heirSince.IsZero() {
		c.heirSince = c.read
	}
	if !p.soon && c.read.Sub(c.heirSince) < balanceAfter {
		return
	}
	for _, name := range p.heirs {
		if reign.HandOver(name, p.stays) {
			return
		}
	}
}

// leaveWithin is the longest time that Leave takes: the time until no client relies on the tenure of this node,
// with a margin.
const leaveWithin = 8 * time.Second

// Leave hands over the shards that this node serves and removes the node from the sets of the others, so that no
// client waits when the node is closed. If no other node can take over, it does nothing.
func (m *Node) Leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaveWithin)
	defer cancel()
	m.leaving.Store(true)
	m.mu.Lock()
	s := m.session
	m.mu.Unlock()
	if m.present(ctx, s) != nil {
		return
	}
	for ctx.Err() == nil && m.needed() {
		sleep(ctx, 5*time.Millisecond)
	}
}

// needed reports whether the other nodes would have to wait for this node if it ended now, although they can take
// over or go on without it.
func (m *Node) needed() bool {
	k := m.knows.Load()
	stays := func(name string) bool {
		_, lives := k.nodes[name]
		return name != m.self && lives && !k.drained[name]
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, rec := range m.records {
		switch {
		case !rec.Has(m.self):
		case rec.Primary == m.self && slices.ContainsFunc(rec.Set, stays), stays(rec.Primary) && len(rec.Set) > m.config.MinInSync:
			return true
		}
	}
	return false
}
