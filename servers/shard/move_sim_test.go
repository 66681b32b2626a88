package shard

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/servers/circle"
	"flashdbm/servers/fabric/sim"
	"flashdbm/servers/guard"
	"flashdbm/servers/replica"
	"flashdbm/servers/replica/replicatest"
)

// A moveSim is two shards with three replicas each. Parts of the circle move between them while clients work and all
// faults of a clusterSim happen. The invariants of each shard are checked as in a clusterSim, and the invariants of
// moves as well.
type moveSim struct {
	shards   []*clusterSim
	revision uint64 // of the newest change in the cluster
	circle   circle.Assignment
	changed  uint64
	at       *circle.Circle // made of circle
	hashes   [moveKeys]uint64
	owners   [moveKeys]uint32 // of the keys, by at
	last     *View
	newest   map[string]uint64 // by key: the version that an owner has last shown
}

// moveKeys is the number of keys, of which some move.
const moveKeys = 8

func newMoveSim(seed uint64) *moveSim {
	s := &moveSim{revision: 1, circle: circle.First(1), newest: map[string]uint64{}}
	for k := range s.hashes {
		s.hashes[k] = circle.Hash(1, []byte(simKey(k)))
	}
	s.agree(s.circle)
	w := sim.New(seed, sim.Faults{LoseOne: 3000, StallOne: 300})
	etcd := w.NewNode("etcd")
	for i := range uint32(2) {
		newShardSim(w, etcd, seed, i, s)
	}
	c := s.shards[0]
	for i := range 2 + c.rand(2) {
		x := newClusterClient(s.shards, i)
		x.keys, x.circle = moveKeys, s.at
		c.clients = append(c.clients, x)
	}
	w.After(c.upTo(2*time.Second), s.reshape)
	w.After(c.upTo(time.Second), s.follow)
	return s
}

// view returns the state on which the cluster has agreed.
func (s *moveSim) view() *View {
	v := &View{Revision: s.revision, Circle: s.circle, Changed: s.changed, Seed: 1, Records: map[uint32]replica.Record{}}
	for _, c := range s.shards {
		v.Records[c.number] = c.rec
	}
	s.last = v.Complete(s.last)
	return s.last
}

// tell sends that state to all members, which get it late or never.
func (s *moveSim) tell() {
	v := s.view()
	for _, c := range s.shards {
		for _, m := range c.members {
			s.tellOne(m, v)
		}
	}
}

func (s *moveSim) tellOne(m *simMember, v *View) {
	c := m.c
	c.w.After(c.slow(), func() {
		if c.w.Reaches(c.etcd, m.n) && c.rand(20) > 0 {
			m.see(v)
		}
	})
}

// follow sends that state to one member of each shard, as a node gets it that lists again after its watch has ended.
func (s *moveSim) follow() {
	c := s.shards[0]
	if c.bad != "" {
		return
	}
	for _, x := range s.shards {
		s.tellOne(x.members[c.rand(3)], s.view())
	}
	c.w.After(c.upTo(300*time.Millisecond), s.follow)
}

// reshape has the shards share the circle in another way, once the last change is done. Sometimes it takes back a
// change that is under way.
func (s *moveSim) reshape() {
	c := s.shards[0]
	if c.bad != "" {
		return
	}
	c.w.After(c.upTo(3*time.Second), s.reshape)
	next := [][]uint32{{0}, {1}, {0, 1}}[c.rand(3)]
	switch {
	case !s.circle.Moving() && !slices.Equal(next, s.circle.Shards):
		s.circle.Next = next
		s.circle.Change++
	case s.circle.Moving() && len(s.circle.Moved) == 0 && c.rand(6) == 0:
		s.circle.Next = nil
	default:
		return
	}
	s.set(s.circle)
}

func (s *moveSim) agree(a circle.Assignment) {
	s.circle, s.at = a, a.At(1)
	for k, h := range s.hashes {
		s.owners[k], _ = s.at.Owner(h)
	}
}

func (s *moveSim) set(a circle.Assignment) {
	s.revision++
	s.changed = s.revision
	s.agree(a)
	s.shards[0].say("circle %+v", a)
	s.tell()
}

// serve does the work of a node for its shard while parts of the circle move.
func (s *moveSim) serve(m *simMember) {
	c, x := m.c, m.shard
	if p, ok := x.CircleProposal(); ok {
		c.say("%s proposes that %+v is done", m.id, p.Pair)
		c.w.After(c.slow(), func() {
			if !c.w.Reaches(m.n, c.etcd) || s.changed != p.View.Changed {
				return
			}
			for _, number := range []uint32{p.Pair.From, p.Pair.To} {
				if s.shards[number].rec.Revision != p.View.Records[number].Revision {
					return
				}
			}
			s.shards[0].counts.moved++
			s.set(p.View.Circle.Done(1, p.Pair))
		})
	}
	if x.out != nil && x.out.phase >= moveCloses {
		s.shards[0].counts.closed++
	}
	if to, linked := x.MoveDial(); linked != nil {
		s.dial(m, to, linked)
	}
	if c.rand(300) == 0 && x.out != nil && x.out.link != nil { // sometimes a link breaks
		x.out.link.Close()
	}
}

// dial connects the primary of one shard to the primary of another shard.
func (s *moveSim) dial(m *simMember, to uint32, linked func(replica.Link)) {
	c, life := m.c, m.life
	t := s.shards[to].all[m.shard.view.Records[to].Primary]
	c.w.After(c.slow(), func() {
		if m.life != life || !m.alive() {
			return
		}
		if t == nil || t.lost || !t.alive() || t.shard == nil || !c.w.Reaches(m.n, t.n) || !c.w.Reaches(t.n, m.n) {
			linked(nil)
			return
		}
		l, far := replicatest.Pair(m.port, t.port)
		t.shard.Arrive(far)
		t.wake()
		linked(l)
		m.wake()
	})
}

// showed checks that the versions of a key that its owners show never become older.
func (s *moveSim) showed(m *simMember, e *entry, it *guard.Item) {
	x := m.shard
	if x.Reign() == nil || x.Reign().Over() || e.seq != it.Version-x.base {
		return // the item is a copy, or has the version of another shard
	}
	key := string(it.Key)
	if was := s.newest[key]; it.Version < was && m.c.rec.Term == x.Reign().Term() {
		m.c.violation("%s shows version %d of %s, and %d was shown", m.id, it.Version, key, was)
	}
	s.newest[key] = max(s.newest[key], it.Version)
}

// check checks the invariants of moves that hold between any two steps. A key is served by the shard that owns it,
// and by one member at most. While a member serves a key, no client may rely on a pointer to that key in the memory
// of another shard.
func (s *moveSim) check(m *simMember) {
	x := m.shard
	if x.passive() || m.slept || m.n.Now().UnixNano() >= x.Reign().TenureEnd() {
		return
	}
	var others []*simMember // other members that may serve
	for _, c := range s.shards {
		for _, o := range c.members {
			if o != m && o.shard != nil && o.alive() && !o.slept && !o.shard.passive() && o.n.Now().UnixNano() < o.shard.Reign().TenureEnd() {
				others = append(others, o)
			}
		}
	}
	for k, h := range s.hashes {
		if x.serves(h) != 0 {
			continue
		}
		key := simKey(k)
		if s.owners[k] != m.c.number {
			m.c.violation("%s serves %s, which is shard %d's", m.id, key, s.owners[k])
		}
		for _, o := range others {
			if o.shard.serves(h) == 0 {
				m.c.violation("%s and %s serve %s", m.id, o.id, key)
			}
		}
		for _, cl := range s.shards[0].clients {
			p, ok := cl.cache[key]
			if now := cl.n.Now(); !ok || p.m.c == m.c || p.m.shard == nil || p.m.life != p.life || !p.m.alive() || !now.Before(p.lease) || !now.Before(p.tenure) {
				continue
			}
			if a := p.m.shard.arena; a.InUse(p.Extent, p.Offset) && p.m.shard.term == p.Term {
				if it := guard.Bytes(p.m.shard.arenaAt(p.Extent, p.Offset)); guard.Shown(it) && string(guard.Parse(it).Key) == key {
					m.c.violation("%s serves %s, and client %d may Read it at %s", m.id, key, cl.id, p.m.id)
				}
			}
		}
	}
}

// TestMoveSimulation runs 12 seeds, 4 of them with -short, or those that the flags name. A failure prints the line
// that runs its seed again.
func TestMoveSimulation(t *testing.T) {
	runs, limit := *simRuns, *simTime
	if runs == 0 && limit == 0 {
		if runs = 12; testing.Short() {
			runs = 4
		}
	}
	began := time.Now()
	var all clusterCounts
	n := 0
	for seed := *simSeed; n < runs || runs == 0 && time.Since(began) < limit; seed++ {
		c := newMoveSim(seed).shards[0]
		runSeed(t, seed, c.run)
		if n++; n%1000 == 0 {
			t.Logf("%d seeds, up to %d, in %v", n, seed, time.Since(began).Round(time.Second))
		}
		all.add(&c.counts)
	}
	t.Log(fmt.Sprintf("%d seeds in %v: %+v", n, time.Since(began).Round(time.Second), all))
	require.Positive(t, all.accepted)
	require.Positive(t, all.moved)
	require.Positive(t, all.scans)
}
