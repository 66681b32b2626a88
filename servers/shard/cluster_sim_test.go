package shard

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/arena"
	"flashdbm/servers/fabric/sim"
	"flashdbm/servers/replica"
	"flashdbm/servers/replica/replicatest"
)

// A clusterSim is a shard with three replicas, the record on which they agree, and clients, all determined by a seed.
// The invariants are checked after each step of each replica, and the history of all operations at the end.
type clusterSim struct {
	w       *sim.World
	seed    uint64
	bad     string
	mode    Durability
	acks    replica.Mode
	members []*simMember // of the three nodes, in their present lives
	all     map[string]*simMember
	etcd    *sim.Node
	rec     replica.Record // the record on which the cluster has agreed
	clients []*clusterClient
	history []porcupine.Operation
	dialled map[string]*replicatest.Link // by hello: the dialled end of a link
	moves   *moveSim                     // the simulation of moves that this shard belongs to; nil: there is one shard
	number  uint32
	losses  int       // number of lives that have ended and lost what they had in memory
	looked  [2]uint64 // losses, and the revision of the record, when gone last found that a member still has everything

	committed map[uint64]uint64 // by entry: the version that a primary has shown
	newest    uint64            // newest key of committed
	versions  map[string]uint64 // by value: the version that it was shown with
	bases     map[uint64]bool   // of the versions of all reigns
	counts    clusterCounts
}

type clusterCounts struct {
	ops, reads, accepted, reigns, copies, kills, unknown, lost, handed, moved, closed, scans, undecided int
}

// clusterRing is the size of the log and of the rings, in bytes: room for a few dozen entries.
const clusterRing = 4096

func newClusterSim(seed uint64) *clusterSim {
	w := sim.New(seed, sim.Faults{LoseOne: 3000, StallOne: 300})
	c := newShardSim(w, w.NewNode("etcd"), seed, 0, nil)
	for i := range 2 + c.rand(2) {
		c.clients = append(c.clients, newClusterClient([]*clusterSim{c}, i))
	}
	return c
}

// newShardSim makes the replicas of a shard.
func newShardSim(w *sim.World, etcd *sim.Node, seed uint64, number uint32, moves *moveSim) *clusterSim {
	c := &clusterSim{
		w: w, etcd: etcd, seed: seed, all: map[string]*simMember{}, committed: map[uint64]uint64{}, versions: map[string]uint64{}, bases: map[uint64]bool{},
		dialled: map[string]*replicatest.Link{}, moves: moves, number: number,
	}
	c.mode = Durability(seed % 3)
	if c.acks = replica.Synced; c.mode != Sync {
		c.acks = replica.Mode(seed / 3 % 2)
	}
	for i := range 3 {
		m := &simMember{c: c, i: i, n: c.w.NewNode(fmt.Sprintf("node-%d-%d", number, i)), file: &memberFile{}}
		c.members = append(c.members, m)
	}
	first := c.members[0].name(1)
	c.rec = replica.Record{Revision: 1, Term: 1, Primary: first, Set: []string{first}}
	if moves != nil {
		moves.shards = append(moves.shards, c)
		c.versions = moves.shards[0].versions
	}
	for i, m := range c.members {
		m.begin(0)
		if i == 0 {
			m.learn(c.rec)
		}
	}
	return c
}

func (c *clusterSim) rand(n int) int { return c.w.Rand().IntN(n) }

func (c *clusterSim) upTo(d time.Duration) time.Duration { return time.Duration(c.rand(int(d))) }

func (c *clusterSim) violation(format string, args ...any) {
	if c.bad != "" {
		return
	}
	c.bad = fmt.Sprintf(format, args...)
	c.say("VIOLATION: %s", c.bad)
	if c.moves != nil {
		for _, x := range c.moves.shards {
			x.bad = c.bad
		}
	}
}

func (c *clusterSim) say(format string, args ...any) {
	if *simLog {
		fmt.Printf("%14v  %s\n", c.w.Now(), fmt.Sprintf(format, args...))
	}
}

// read gives the record to a node that asks for it, unless the request or the answer is lost.
func (c *clusterSim) read(n *sim.Node, answer func(replica.Record)) {
	c.w.After(c.slow(), func() {
		if !c.w.Reaches(n, c.etcd) {
			return
		}
		rec := c.rec
		c.w.After(c.slow(), func() {
			if c.w.Reaches(c.etcd, n) && c.rand(30) > 0 {
				answer(rec)
			}
		})
	})
}

// slow draws how long a message takes to etcd or from it, or between processes outside of the fabric: sometimes
// seconds.
func (c *clusterSim) slow() time.Duration {
	switch c.rand(30) {
	case 0:
		return c.upTo(2 * time.Second)
	case 1, 2:
		return c.upTo(30 * time.Millisecond)
	}
	return c.upTo(500 * time.Microsecond)
}

// change is a compare-and-set. The request or the answer may be lost. Every member that watches learns of the change
// late or never.
func (c *clusterSim) change(n *sim.Node, next replica.Record, answer func(replica.Record)) {
	c.w.After(c.slow(), func() {
		if !c.w.Reaches(n, c.etcd) {
			return
		}
		if c.rec.Revision == next.Revision {
			if next.Revision++; c.moves != nil {
				c.moves.revision++
				next.Revision = c.moves.revision
			}
			next.Set = slices.Clone(next.Set)
			if next.Term > c.rec.Term {
				c.counts.reigns++
			}
			if next.Handed && next.Term > c.rec.Term {
				c.counts.handed++
			}
			c.rec = next
			c.say("record of shard %d %+v", c.number, next)
			if c.moves != nil {
				c.moves.tell()
			} else {
				for _, m := range c.members {
					c.w.After(c.slow(), func() {
						if c.w.Reaches(c.etcd, m.n) && c.rand(20) > 0 {
							m.learn(next)
						}
					})
				}
			}
		}
		rec := c.rec
		c.w.After(c.slow(), func() {
			if c.w.Reaches(c.etcd, n) && c.rand(20) > 0 {
				answer(rec)
			}
		})
	})
}

// lead is the work of a leader, which looks after the shard. Two nodes do it, because two nodes may believe that they
// lead.
func (c *clusterSim) lead(at *sim.Node) {
	if c.bad != "" {
		return
	}
	c.w.After(200*time.Millisecond+c.upTo(300*time.Millisecond), func() { c.lead(at) })
	c.read(at, func(rec replica.Record) {
		p := c.all[rec.Primary]
		suspect := p == nil || p.lost || !p.alive() || !p.n.Running() || !c.w.Reaches(p.n, c.etcd) || c.rand(60) == 0 ||
			(p.shard == nil || p.shard.Reign() == nil) && c.rand(3) == 0
		if !suspect {
			return
		}
		f := replica.NewFailover(rec)
		for _, name := range f.Members() {
			if m := c.all[name]; m != nil && !m.lost {
				m.order(at, f)
			}
		}
		done := false
		decide := func() {
			if next, ok := f.Next(); ok && !done {
				done = true
				c.say("a leader promotes %+v", next)
				c.change(at, next, func(replica.Record) {})
			}
		}
		c.w.After(c.upTo(200*time.Millisecond), decide)
	})
}

// trouble causes one fault, and calls itself again after a while.
func (c *clusterSim) trouble() {
	if c.bad != "" {
		return
	}
	c.w.After(100*time.Millisecond+c.upTo(1500*time.Millisecond), c.trouble)
	m := c.members[c.rand(3)]
	if p := c.all[c.rec.Primary]; p != nil && !p.lost && c.rand(2) == 0 {
		m = p
	}
	switch c.rand(11) {
	case 9, 10:
		c.isolate(m)
	case 0:
		if m.n.Running() {
			c.say("node %d stops", m.i)
			m.n.Stop()
			c.w.After(c.upTo(3*time.Second), m.n.Resume)
		}
	case 1:
		if m.n.Running() && c.rand(3) == 0 {
			m.n.Suspend()
			m.slept = true
			c.w.After(c.upTo(3*time.Second), m.n.Resume)
		}
	case 2, 3:
		m.kill()
	case 4:
		if m.alive() {
			m.file.full = m.n.Running() && c.rand(3) == 0
			c.w.After(c.upTo(time.Second), func() { m.file.full = false })
		}
	default:
		ends := []*sim.Node{c.etcd}
		for _, x := range c.shards() {
			for _, m := range x.members {
				ends = append(ends, m.n)
			}
			for _, x := range x.clients {
				ends = append(ends, x.n)
			}
		}
		a, b := ends[c.rand(len(ends))], ends[c.rand(len(ends))]
		c.w.Cut(a, b)
		both := c.rand(2) == 0
		if both {
			c.w.Cut(b, a)
		}
		c.say("cut %s to %s, both %v", a.Name(), b.Name(), both)
		c.w.After(c.upTo(3*time.Second), func() {
			c.w.Heal(a, b)
			if both {
				c.w.Heal(b, a)
			}
		})
	}
}

// shards returns all shards of the simulation.
func (c *clusterSim) shards() []*clusterSim {
	if c.moves != nil {
		return c.moves.shards
	}
	return []*clusterSim{c}
}

// isolate cuts a member off from everybody but the clients, and stops it in half of the cases: it cannot learn that
// another member serves.
func (c *clusterSim) isolate(m *simMember) {
	others := []*sim.Node{c.etcd}
	for _, y := range c.shards() {
		for _, x := range y.members {
			if x != m {
				others = append(others, x.n)
			}
		}
	}
	c.say("node %d is isolated", m.i)
	for _, n := range others {
		c.w.Cut(m.n, n)
		c.w.Cut(n, m.n)
	}
	d := time.Second + c.upTo(4*time.Second)
	if c.rand(2) == 0 && m.n.Running() {
		c.w.After(c.upTo(200*time.Millisecond), func() {
			if m.n.Running() {
				m.n.Stop()
				c.w.After(c.upTo(d), m.n.Resume)
			}
		})
	}
	c.w.After(d, func() {
		for _, n := range others {
			c.w.Heal(m.n, n)
			c.w.Heal(n, m.n)
		}
	})
}

// showed checks an entry that a member shows:
//
//  1. All members show an entry with one version, that of the reign which has committed the entry.
//  2. When a primary shows an entry first, all members of the record have it and cannot lose it (invariant 4 of the
//     design).
//  3. No write is applied twice: each value has one version. The members of a move's new owner show what its old owner
//     has sent before that counts.
func (c *clusterSim) showed(m *simMember, seq, version uint64, value string) {
	if m.shard.Reign() == nil && m.shard.Follower().Following() != c.rec.Term {
		return // the entry may be of a reign that is over; no later reign has it
	}
	was, ok := c.committed[seq]
	if ok && was != version {
		c.violation("%s has entry %d with version %d, and %d was committed", m.id, seq, version, was)
	}
	if m.shard.Reign() == nil {
		return
	}
	if !ok {
		c.committed[seq], c.newest = version, max(c.newest, seq)
		for name := range c.needed() { // invariant 4 of the design: every member has the acknowledged entries
			x := c.all[name]
			if x != nil && !x.lost && x.has() < seq {
				c.violation("entry %d is committed by %s, and %s of the set has %d", seq, m.id, name, x.has())
			}
		}
	}
	if value != "" {
		if was, ok := c.versions[value]; ok && was != version {
			c.violation("the write of %s happened twice: versions %d and %d", value, was, version)
		}
		c.versions[value] = version
	}
}

// needed returns the members of the record: one of them is promoted if the primary is lost.
func (c *clusterSim) needed() map[string]bool {
	set := map[string]bool{}
	for _, name := range c.rec.Set {
		set[name] = true
	}
	return set
}

// check checks what holds between any two steps: a replica's log ends with its newest entry; a primary that serves
// has every committed entry; at most one member has tenure, and while it serves no client relies on the tenure of
// another one; and the table agrees with what was shown.
func (c *clusterSim) check(m *simMember) {
	s := m.shard
	if s.o.Log.Last() != s.seq {
		c.violation("%s has entry %d, and its log %d", m.id, s.seq, s.o.Log.Last())
	}
	if s.Reign() != nil && s.Reign().Serving() && s.seq < c.newest && s.Reign().Term() == c.rec.Term {
		c.violation("%s reigns with %d entries, and %d are committed", m.id, s.seq, c.newest)
	}
	if r := s.Reign(); r != nil && r.Serving() && !m.slept && m.n.Now().UnixNano() < r.TenureEnd() {
		for _, x := range c.members { // no client relies on the tenure of another member
			if x != m && x.passed > c.w.Now() {
				c.violation("%s serves, and clients of %s have tenure for %v", m.id, x.id, x.passed-c.w.Now())
			}
		}
	}
	if s.Reign() != nil {
		c.bases[s.base] = true
	}
	serving := ""
	for _, x := range c.members { // invariant 3 of the design: at most one life of a member has tenure
		if x.shard == nil || x.shard.Reign() == nil || !x.alive() || x.slept || x.n.Now().UnixNano() >= x.shard.Reign().TenureEnd() {
			continue
		}
		if serving != "" {
			c.violation("%s and %s have tenure", serving, x.id)
		}
		serving = x.id
	}
	m.checkTable()
	if c.moves != nil {
		c.moves.check(m)
	}
}

// begin starts clients, leaders and faults.
func (c *clusterSim) begin() {
	for _, x := range c.clients {
		x.begin()
	}
	c.w.After(2*time.Second+c.upTo(2*time.Second), c.trouble)
	for i := range 2 {
		c.w.After(c.upTo(time.Second), func() { c.lead(c.members[i].n) })
	}
}

func (c *clusterSim) run() string {
	for _, x := range c.shards() {
		x.begin()
	}
	done := func() bool {
		if c.bad != "" || slices.ContainsFunc(c.shards(), (*clusterSim).gone) {
			return true
		}
		for _, x := range c.clients {
			if x.left > 0 || x.busy() {
				return false
			}
		}
		return true
	}
	if !c.w.RunUntil(5*time.Minute, done) {
		c.violation("the clients wait for ever")
		for _, m := range slices.Concat(c.members, c.shards()[len(c.shards())-1].members) {
			if s := m.shard; s != nil {
				c.say("out %+v, in %+v", s.out, s.in)
				c.say("%s: alive %v running %v, record %+v, ended %d, entry %d, reign %+v, follower %v", m.id, m.alive(), m.n.Running(), s.Record(), s.o.Ended, s.seq, s.Reign(), s.Follower())
			}
		}
	}
	for _, x := range c.clients {
		x.leave()
	}
	if c.bad == "" {
		c.checkHistory()
	}
	c.w.Close()
	return c.bad
}

// gone reports whether no living member has everything that was acknowledged. This happens if a leader has promoted a
// member that died at that moment, and the others had not answered in time. In memory and async mode the shard then
// waits for a user's decision.
func (c *clusterSim) gone() bool {
	now := [2]uint64{uint64(c.losses), c.rec.Revision}
	if now == c.looked {
		return false
	}
	for _, name := range c.rec.Set {
		if x := c.all[name]; c.mode == Sync || x == nil || !x.lost {
			c.looked = now
			return false
		}
	}
	c.counts.lost++
	return true
}

func (c *clusterSim) checkHistory() {
	for _, part := range model.Partition(c.history) {
		switch porcupine.CheckOperationsTimeout(model, part, checkTime) {
		case porcupine.Ok:
			continue
		case porcupine.Unknown:
			c.counts.undecided++
			continue
		}
		c.violation("the history of %s is not linearizable", part[0].Input.(call).key)
		slices.SortFunc(part, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
		for _, o := range part {
			c.say("%d-%d by %d: %+v: %+v", o.Call, o.Return, o.ClientId, o.Input, o.Output)
		}
	}
}

func (c *clusterSim) record(client int, in call, r result, from int64) {
	to := c.w.Now().Nanoseconds()
	if r.open {
		to = math.MaxInt64
	}
	c.history = append(c.history, porcupine.Operation{ClientId: client, Input: in, Output: r, Call: from, Return: to})
}

// TestClusterSimulation runs 40 seeds, or those that the flags name. A failure prints the line that runs its seed
// again.
func TestClusterSimulation(t *testing.T) {
	runs, limit := *simRuns, *simTime
	if runs == 0 && limit == 0 {
		runs = 40
	}
	began := time.Now()
	var all clusterCounts
	n := 0
	for seed := *simSeed; n < runs || runs == 0 && time.Since(began) < limit; seed++ {
		c := newClusterSim(seed)
		runSeed(t, seed, c.run)
		if n++; n%1000 == 0 {
			t.Logf("%d seeds, up to %d, in %v", n, seed, time.Since(began).Round(time.Second))
		}
		all.add(&c.counts)
	}
	t.Logf("%d seeds in %v: %+v", n, time.Since(began).Round(time.Second), all)
	require.Positive(t, all.accepted)
	require.Positive(t, all.reigns)
	require.Positive(t, all.copies)
	require.Positive(t, all.handed)
}

func (a *clusterCounts) add(b *clusterCounts) {
	a.ops += b.ops
	a.reads += b.reads
	a.accepted += b.accepted
	a.reigns += b.reigns
	a.copies += b.copies
	a.kills += b.kills
	a.unknown += b.unknown
	a.lost += b.lost
	a.handed += b.handed
	a.moved += b.moved
	a.closed += b.closed
	a.scans += b.scans
	a.undecided += b.undecided
}

var clusterArena = arena.Options{Extent: 64 << 10, Limit: 1 << 20}
