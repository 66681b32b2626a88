package membership

import (
	"context"
	"slices"
	"time"

	"flashdbm/servers/replica"
)

// Which nodes have a shard follows from which nodes there are. Each shard has an order of its own of all nodes (ranked). The first ones that live
// and are not drained shall be its set, and the first of all its primary. A node that comes or goes changes the sets of few shards, and all
// nodes come to the same result without a word.
//
// A set grows before it shrinks: whoever is new gets a copy and joins, and then whoever is not wanted leaves. A primary that is not
// wanted hands its reign over before that. So nobody waits for a node that is drained, and no shard has fewer copies meanwhile.

const (
	// balanceAfter is how long the first node of a shard's order must have been in the set before the reign is handed over to it. With a shorter
	// time a node that comes and goes takes the reign with it each time.
	balanceAfter = 10 * time.Second
	// planEvery is how often a primary looks whether its set should be another one.
	planEvery = 100 * time.Millisecond
)

// A plan is what shall become of a shard.
type plan struct {
	wishes replica.Wishes
	heirs  []string // who shall be the primary instead of this node, the best one first
	stays  bool     // this node stays in the set
	soon   bool     // there is no need to wait
}

// plan returns what shall become of a shard whose primary this node is.
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
		case k.drained[name] || len(want) == m.config.Replicas: // else it may be one whose session was lost and comes back
			p.wishes.Out = append(p.wishes.Out, name)
		}
	}
	if urgent != nil {
		p.wishes.Out, p.wishes.Least = urgent, m.config.MinInSync
	}
	if _, lives := k.nodes[m.self]; !lives && !leaves || len(want) == 0 || want[0] == m.self {
		return p // without a session of its own, the node does not know who else lives
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

// plan makes this node follow its plan for the shard. It is called by the shard's thread while this node is the primary.
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

// leaveWithin is how long Leave takes at most: the time that passes until nobody relies on the tenure of this node, and to spare.
const leaveWithin = 8 * time.Second

// Leave hands over what this node serves and has the others go on without it, so that nobody waits when it is closed. Where nobody can take over
// it does nothing.
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

// needed reports whether others would wait for this node if it ended now, and need not: who stays can take over, or go on without it.
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
