package ramp

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"flashdbm/servers/circle"
	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/sim"
	"flashdbm/servers/ramp/partition"
	"flashdbm/servers/replica"
	"flashdbm/servers/replica/replicatest"
	"flashdbm/servers/store"

	"github.com/stretchr/testify/require"
)

// simNodes are three nodes, and the record on which they agree. Each node has a replica of every partition of a
// table.
type simNodes struct {
	m       *simulation
	etcd    *sim.Node
	hosts   []*sim.Node
	tables  []*replicatest.Agreement // by partition
	members [][]*simMember           // by partition and node
	mode    replica.Mode
	forgets bool        // files are in memory: each life begins without records
	served  []time.Time // by partition: when it last served
	kills   int
	copies  int
	cuts    int
	revived int // how often a partition whose whole set was lost was revived
	cycled  int // how often the user ended all nodes, so that partitions could be revived
}

// A simMember is a node's replica of a partition in all its lives.
type simMember struct {
	simPartition
	seat    *replicatest.Seat
	name    string // in records
	files   simFiles
	found   store.State   // of the file when the life began
	told    uint64        // newest entry that it has reported as durable while it reigned,
	checked uint64        // checked against this revision of the record
	shown   uint64        // newest entry that it has counted as committed while it reigned
	passed  time.Duration // until when clients may rely on the tenure that it has granted them, in time of the world
	slept   bool          // its clock has stood still since its last step
}

// simFiles are a replica's file, and the file of a copy that will replace it.
type simFiles struct{ kept, copy *simFile }

// simRing is the size of the log and of the rings, in bytes: room for a few dozen entries.
const simRing = 32 << 10

func newNodesSimulation(seed uint64) *simulation {
	m := &simulation{w: sim.New(seed, sim.Faults{LoseOne: 3000, StallOne: 400}), seed: seed, ahead: map[*sim.Node]int64{}, mode: partition.Sync}
	m.check.init(m)
	n := &simNodes{m: m, etcd: m.w.NewNode("etcd")}
	m.nodes, m.small, m.alike = n, m.rand(4) == 0, m.rand(4) == 0
	if m.rand(3) == 0 {
		m.alg = Algorithm(1 + m.rand(2))
	}
	m.locks = m.alg == Fast && !m.small && m.rand(6) == 0 // all that is locked at a partition has to fit into its memory
	n.mode = replica.Synced
	if m.rand(2) == 0 {
		m.mode, n.mode, n.forgets = partition.Async, replica.Mode(m.rand(2)), m.rand(3) == 0
	}
	m.parts = 1 + m.rand(3)
	var ids []uint32
	for i := range m.parts {
		ids = append(ids, uint32(i))
	}
	m.circle = circle.New(seed, ids)
	keys := 4 + m.rand(5)
	if m.small {
		keys = 10 + m.rand(20)
	}
	for i := range keys {
		m.keys = append(m.keys, fmt.Appendf(nil, "key-%d", i))
	}
	for i := range 3 {
		n.hosts = append(n.hosts, m.w.NewNode(fmt.Sprintf("node-%d", i)))
		m.setDate(n.hosts[i])
	}
	for p := range m.parts {
		first := m.rand(3)
		n.members, n.served = append(n.members, nil), append(n.served, time.Time{})
		for i, host := range n.hosts {
			x := &simMember{simPartition: simPartition{m: m, number: uint32(p), slot: i, host: host}}
			x.files.kept = m.newFile()
			n.members[p] = append(n.members[p], x)
			x.rename()
		}
		n.tables = append(n.tables, replicatest.NewAgreement(m.w, n.etcd, n.members[p][first].name, func(format string, args ...any) {
			m.say("partition %d: %s", p, fmt.Sprintf(format, args...))
		}))
		for i, x := range n.members[p] {
			x.begin(0)
			if i == first {
				x.seat.Learn(n.tables[p].Record)
			}
		}
	}
	for range 2 + m.rand(2) {
		m.addClient()
	}
	return m
}

func (m *simulation) newFile() *simFile {
	return &simFile{m: m, rows: map[string][]byte{}, base: map[string][]byte{}, loose: true}
}

// rename begins a new life. The life has a name of its own if the file may lack what the last life has acknowledged.
func (x *simMember) rename() {
	x.life++
	x.name = x.host.Name()
	if x.m.mode != partition.Sync {
		x.name += fmt.Sprint(".", x.life)
	}
}

// begin begins a life under the member's present name. ended is the term of the record.
func (x *simMember) begin(ended uint64) {
	m := x.m
	x.threads, x.links, x.member, x.shown, x.told, x.slept = nil, nil, nil, 0, 0, false
	x.files.copy, x.files.kept.full = nil, false
	x.file = x.files.kept
	d := x.host.Domain()
	var err error
	pause := time.Duration(0)
	if m.mode == partition.Async {
		pause = 50 * time.Millisecond
	}
	if x.store, err = store.Open(store.NewVersionFile(x.file, x.file), x.wake, pause); err != nil {
		m.violation("open: %v", err)
		return
	}
	x.store.Gather(1 + m.rand(4))
	st := x.store.State()
	x.found = st
	var terms []replica.Term
	for _, t := range slices.Backward(st.Terms[:]) {
		if t.Term != 0 {
			terms = append(terms, replica.Term{Term: t.Term, First: t.First})
		}
	}
	o := partition.MemberOptions{
		Options: x.options(), Mode: m.nodes.mode, Self: x.name, MinInSync: 1 + m.rand(2), Ended: ended, Memory: d,
		Inherit: func() (store.Inherited, error) {
			return store.NewVersionFile(x.file, x.file).Inherit(func(h uint64) bool { n, _ := m.circle.Owner(h); return n == x.number })
		},
		Fresh: func() (*store.Store, error) {
			m.nodes.copies++
			f := m.newFile()
			st, err := store.Open(store.NewVersionFile(f, f), x.wake, pause)
			if err == nil {
				st.Gather(1 + m.rand(4))
				x.files.copy, x.file, x.store = f, f, st
				x.drive(st)
			}
			return st, err
		},
		Raw:  func() (int64, uint64) { return x.host.Now().UnixNano(), uint64(x.host.Wall().UnixMilli()) },
		Keep: func() error { x.files.kept, x.files.copy = x.files.copy, nil; return nil },
	}
	o.Store = x.store
	if o.Log, err = replica.NewLog(d, simRing, st.Seq, terms); err != nil {
		m.violation("log: %v", err)
		return
	}
	if x.member, err = partition.NewMember(o); err != nil {
		m.violation("new: %v", err)
		return
	}
	life := x.addr()
	if x.seat, err = m.nodes.tables[x.number].Sit(x.name, "member-"+life, x.host, x.member, x.wake); err != nil {
		m.violation("listen: %v", err)
		return
	}
	l, err := d.Listen(life) // for Reads of clients
	if err != nil {
		m.violation("listen: %v", err)
		return
	}
	q, _ := d.NewQueue(1024)
	l.(*sim.Listener).Handle(func(in *sim.Incoming) { in.Accept(fabric.EndpointOptions{Send: q, Recv: q}, nil) })
	x.threads = append(x.threads, x.host.Go("member", x.step, x.seat.Queue))
	x.drive(x.store)
}

func (x *simMember) step(now time.Time) (bool, time.Time) {
	m := x.m
	if m.bad != "" {
		return false, time.Time{}
	}
	x.seat.Before()
	worked := x.member.Step()
	x.slept = false
	x.seat.After(300 + 3000*int(m.seed%2))
	x.look()
	if worked {
		return true, time.Time{}
	}
	if m.over { // no fault happens any more, and there is time
		return false, now.Add(10*time.Millisecond + m.upTo(40*time.Millisecond))
	}
	return false, now.Add(1 + m.upTo(min(x.member.IdleFor(), time.Millisecond<<m.rand(6))))
}

// look checks the invariants that hold between any two steps:
//
//  1. In sync mode, an entry that a reign counts as committed is synced in the files of all members of the record.
//  2. In every mode, the same holds for an entry that a reign of the record's term reports as durable.
//  3. While a member serves and has tenure, no other member of the partition has tenure, and no client may still rely
//     on the tenure of another member.
func (x *simMember) look() {
	m := x.m
	r := x.member.Reign()
	if r == nil {
		x.shown, x.told = 0, 0
		return
	}
	table := m.nodes.tables[x.number]
	if c := r.Committed(); c > x.shown {
		x.shown = c
		if m.mode == partition.Sync {
			x.synced(&table.Record, c, "committed")
		}
	}
	if d := r.Durable(); table.Record.Term == r.Term() && (d > x.told || table.Record.Revision != x.checked) {
		x.told, x.checked = d, table.Record.Revision
		x.synced(&table.Record, d, "durable")
	}
	if r.Serving() {
		m.nodes.served[x.number] = time.Time{}.Add(m.w.Now())
	}
	mono := x.host.Now().UnixNano()
	if !r.Yields() && !x.slept && r.TenureEnd() > mono { // a client counts its tenure from its request, which was earlier than this step
		x.passed = max(x.passed, m.w.Now()+time.Duration(r.TenureEnd()-mono))
	}
	if !r.Serving() || x.slept || r.TenureEnd() <= mono {
		return
	}
	for _, y := range m.nodes.members[x.number] {
		switch {
		case y == x:
		case y.passed > m.w.Now():
			m.violation("%s serves partition %d, and clients of %s have tenure for %v", x.host.Name(), x.number, y.host.Name(), y.passed-m.w.Now())
		case y.member != nil && y.host.Alive() && !y.slept && y.member.Reign() != nil && y.member.Reign().TenureEnd() > y.host.Now().UnixNano():
			m.violation("%s and %s have tenure of partition %d", x.host.Name(), y.host.Name(), x.number)
		}
	}
}

// synced checks that all members of the record have synced an entry: any one of them may become the only one left.
func (x *simMember) synced(rec *replica.Record, seq uint64, what string) {
	for _, y := range x.m.nodes.members[x.number] {
		if y.member != nil && rec.Has(y.name) && y.files.kept.synced.Seq < seq {
			x.m.violation("entry %d of partition %d is %s for %s, and %s has synced %d", seq, x.number, what, x.name, y.name, y.files.kept.synced.Seq)
		}
	}
}

// server returns a member of the partition, mostly the primary.
func (n *simNodes) server(number uint32) *simPartition {
	for _, x := range n.members[number] {
		if x.name == n.tables[number].Record.Primary && n.m.rand(4) > 0 {
			return &x.simPartition
		}
	}
	return &n.members[number][n.m.rand(3)].simPartition
}

// tell carries a note to a member of a partition, mostly the primary, or loses the note.
func (n *simNodes) tell(from *simPartition, to uint32, note partition.Note) {
	m := n.m
	if m.rand(20) == 0 {
		return
	}
	y := n.server(to)
	life := y.life
	m.w.After(m.w.Delay(), func() {
		if y.life != life || !y.host.Running() || m.bad != "" || y.member == nil || from.host != y.host && !m.w.Reaches(from.host, y.host) {
			return
		}
		var got partition.Note
		if err := got.Parse(note.Append(nil)); err != nil {
			m.violation("%v", err)
			return
		}
		m.say("%s hears of %v: %+v", y.addr(), got.TS, got)
		y.member.Hear(got)
		y.wake()
	})
}

// kill ends a node's process, which starts again within 1.5 s.
func (n *simNodes) kill(i int) {
	m, host := n.m, n.hosts[i]
	if !host.Alive() {
		return
	}
	n.kills++
	m.say("%s is killed", host.Name())
	host.Kill()
	delete(m.ahead, host)
	for p := range n.members {
		x := n.members[p][i]
		if x.member == nil {
			continue
		}
		m.addStats(x.member)
		x.seat.Over = true
		x.rename()
		for _, l := range x.links {
			l.dead = true
			m.w.After(m.upTo(time.Second), func() { l.err = fabric.ErrPeer })
		}
		x.links, x.member, x.store = nil, nil, nil
		x.files.kept.full = false
		if x.files.kept.crash(); n.forgets {
			x.files.kept = m.newFile()
		}
	}
	m.w.After(m.upTo(1500*time.Millisecond), func() {
		host.Restart()
		for p := range n.members {
			n.restart(n.members[p][i])
		}
	})
}

// restart begins a member's next life once the member could read the record.
func (n *simNodes) restart(x *simMember) {
	life := x.life
	var again func()
	again = func() {
		if x.life != life || x.member != nil || n.m.bad != "" || !x.host.Alive() {
			return
		}
		n.tables[x.number].Read(x.host, func(rec replica.Record) {
			if x.life == life && x.member == nil && x.host.Alive() {
				x.begin(rec.Term)
				if x.seat != nil {
					x.seat.Learn(rec)
				}
				n.m.say("%s begins with %d entries", x.addr(), x.files.kept.state.Seq)
			}
		})
		n.m.w.After(200*time.Millisecond, again)
	}
	again()
}

// trouble causes one fault, and calls itself again after a while.
func (n *simNodes) trouble() {
	m := n.m
	if m.over || m.bad != "" {
		return
	}
	m.w.After(100*time.Millisecond+m.upTo(1500*time.Millisecond), n.trouble)
	i := m.rand(3)
	for k := range n.hosts {
		if p := m.rand(m.parts); n.members[p][k].name == n.tables[p].Record.Primary && m.rand(2) == 0 {
			i = k
		}
	}
	host := n.hosts[i]
	switch m.rand(14) {
	case 0, 1:
		if n.kill(i); m.mode == partition.Async && m.rand(4) == 0 {
			n.power()
		}
	case 2:
		if host.Running() {
			m.say("%s stops", host.Name())
			host.Stop()
			m.w.After(m.upTo(3*time.Second), host.Resume)
		}
	case 3:
		if host.Running() && m.rand(3) == 0 {
			m.say("%s is suspended", host.Name())
			host.Suspend()
			for p := range n.members {
				n.members[p][i].slept = true
			}
			m.w.After(m.upTo(3*time.Second), host.Resume)
		}
	case 4, 5:
		m.say("%s is isolated", host.Name())
		n.cuts++
		others := []*sim.Node{n.etcd}
		for _, o := range n.hosts {
			if o != host {
				others = append(others, o)
			}
		}
		replicatest.Isolate(m.w, host, others)
	case 6, 7:
		m.clients[m.rand(len(m.clients))].die()
	case 8:
		if c := m.clients[m.rand(len(m.clients))]; c.n.Running() {
			c.n.Stop()
			m.w.After(m.upTo(3*time.Second), c.n.Resume)
		}
	case 9:
		if d := m.upTo(10*time.Second) - 5*time.Second; !n.members[0][i].slept { // nobody sets the date of a suspended machine
			m.say("%s's date is set by %v", host.Name(), d)
			host.JumpWall(d)
		}
	case 10, 11:
		m.clients[m.rand(len(m.clients))].lose()
	default:
		n.cut()
	}
}

// cut loses messages and Reads from one node or client to another for a while, often in both directions.
func (n *simNodes) cut() {
	m := n.m
	ends := append([]*sim.Node{n.etcd}, n.hosts...)
	for _, c := range m.clients {
		ends = append(ends, c.n)
	}
	a, b := ends[m.rand(len(ends))], ends[m.rand(len(ends))]
	both := m.rand(2) == 0
	n.cuts++
	m.w.Cut(a, b)
	if both {
		m.w.Cut(b, a)
	}
	m.say("cut %s to %s, both %v", a.Name(), b.Name(), both)
	m.w.After(m.upTo(3*time.Second), func() {
		m.w.Heal(a, b)
		if both {
			m.w.Heal(b, a)
		}
	})
}

// lookEvery is how often the end of a run checks its condition. Checking it at each event took a sixth of the time of
// a seed.
const lookEvery = time.Millisecond

// run lets the clients work while faults happen. Then it ends the faults, and checks that every client gets its
// answers, that nothing stays prepared, and that a last read of all keys succeeds.
func (n *simNodes) run() string {
	m := n.m
	m.w.After(time.Second+m.upTo(2*time.Second), n.trouble)
	n.revive()
	for p := range n.tables {
		for i := range 2 {
			m.w.After(m.upTo(time.Second), func() {
				n.tables[p].Lead(n.hosts[i], func() bool { return m.bad != "" })
			})
		}
	}
	m.w.RunUntil(m.upTo(15*time.Second)+3*time.Second, func() bool { return m.bad != "" })
	m.over = true
	for _, c := range m.clients {
		c.n.Resume()
	}
	for _, a := range n.tables {
		a.Calm = true
	}
	rest := func(limit time.Duration, what string, holds func() bool) {
		m.say("%s: is it so?", what)
		looked := m.w.Now()
		if !m.w.RunUntil(limit, func() bool {
			if m.bad != "" || m.w.Now() < looked+lookEvery {
				return m.bad != ""
			}
			looked = m.w.Now()
			return holds()
		}) {
			m.violation("%s", what)
			for _, list := range n.members {
				for _, x := range list {
					if x.member != nil {
						m.say("%s: alive %v running %v: %+v; now %d, reign %+v", x.addr(), x.host.Alive(), x.host.Running(), x.member.Stats(), x.host.Now().UnixNano(), x.member.Reign())
					}
				}
			}
		}
	}
	rest(40*time.Second, "the clients wait for ever", func() bool {
		return !slices.ContainsFunc(m.clients, func(c *simClient) bool { return c.n.Alive() && c.busy > 0 })
	})
	rest(90*time.Second, "something stays prepared, or is kept, for ever", n.clean)
	last := m.addClient()
	last.lastRead()
	rest(40*time.Second, "the last read waits for ever", func() bool { return last.left == 0 && last.busy == 0 })
	for _, list := range n.members {
		for _, x := range list {
			if x.member != nil {
				m.addStats(x.member)
			}
		}
	}
	m.w.Close()
	return m.bad
}

// clean reports whether each partition has a primary that serves, and the partitions hold only the newest versions.
func (n *simNodes) clean() bool {
	for p, list := range n.members {
		clean := false
		for _, x := range list {
			if x.member == nil || x.name != n.tables[p].Record.Primary || !x.serves() {
				continue
			}
			s := x.member.Stats()
			clean = s.Prepared == 0 && s.Transactions == 0 && s.Held == 0
		}
		if !clean {
			return false
		}
	}
	return true
}

// TestNodesSimulation runs 30 seeds, or those that the flags name. A failure prints the line that runs its seed
// again.
func TestNodesSimulation(t *testing.T) {
	runs, limit := *simRuns, *simTime
	if runs == 0 && limit == 0 {
		runs = 30
	}
	began := time.Now()
	var all simCounts
	n, reigns, handed, kills, copies, cuts, revived, cycled := 0, 0, 0, 0, 0, 0, 0, 0
	for seed := *simSeed; n < runs || runs == 0 && time.Since(began) < limit; seed++ {
		m := newNodesSimulation(seed)
		if bad := m.nodes.run(); bad != "" {
			t.Fatalf("%s\n  go test ./ramp -run TestNodesSimulation -sim.runs 1 -sim.log -sim.seed %d", bad, seed)
		}
		if n++; n%1000 == 0 {
			t.Logf("%d seeds, up to %d, in %v", n, seed, time.Since(began).Round(time.Second))
		}
		all.add(&m.counts)
		for _, a := range m.nodes.tables {
			reigns, handed = reigns+a.Reigns, handed+a.Handed
		}
		kills, copies, cuts = kills+m.nodes.kills, copies+m.nodes.copies, cuts+m.nodes.cuts
		revived, cycled = revived+m.nodes.revived, cycled+m.nodes.cycled
	}
	t.Logf("%d seeds: %+v, %d reigns of which %d were handed over, %d nodes killed, %d copies, %d cuts, %d partitions that lost all, %d ends of all nodes by the user", n, all, reigns, handed, kills, copies, cuts, revived, cycled)
	if n < 20 {
		return
	}
	require.Positive(t, all.oneSided)
	require.Positive(t, all.repaired)
	require.Positive(t, all.terminated)
	require.Positive(t, handed)
	require.Positive(t, copies)
	require.Positive(t, kills)
	require.Positive(t, revived)
}
