package ramp

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"flashdbm/servers/arena"
	"flashdbm/servers/circle"
	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/sim"
	"flashdbm/servers/ramp/partition"
	"flashdbm/servers/store"

	"github.com/stretchr/testify/require"
)

var (
	simSeed = flag.Uint64("sim.seed", 1, "first seed of the simulator")
	simRuns = flag.Int("sim.runs", 0, "how many seeds are simulated; 0: as many as -sim.time allows")
	simTime = flag.Duration("sim.time", 0, "how long seeds are simulated, if -sim.runs is 0; 0: as many seeds as make test has")
	simLog  = flag.Bool("sim.log", false, "tell what happens")
)

// A simulation is a table of two or three partitions and its clients, all determined by a seed. The partitions, the
// client's engine and the store are the real ones; only messages and files are simulated. sim_check_test.go has the
// checks of transactions.
type simulation struct {
	w          *sim.World
	seed       uint64
	bad        string
	mode       partition.Durability
	alg        Algorithm
	locks      bool // two-phase locking
	apart      bool // each partition has a node of its own
	small      bool // memory holds a few keys only
	alike      bool // clients have the same number, and clocks that tick four times a second, so that they draw the same timestamps
	circle     *circle.Circle
	keys       [][]byte
	partitions []*simPartition
	parts      int       // number of partitions
	nodes      *simNodes // nil: partitions have no replicas
	clients    []*simClient
	ahead      map[*sim.Node]int64 // by node: how far its date is ahead because partitions have asked for it, as in package machine
	check      checker
	counts     simCounts
	over       bool
}

type simCounts struct {
	puts, gets, failed, crashes, deaths                                  int
	oneSided, refused, repaired, retries, terminated, evictions, fetches int
}

func (m *simulation) rand(n int) int { return m.w.Rand().IntN(n) }

func (m *simulation) upTo(d time.Duration) time.Duration {
	return time.Duration(m.w.Rand().Int64N(int64(d) + 1))
}

func (m *simulation) violation(format string, args ...any) {
	if m.bad == "" {
		m.bad = fmt.Sprintf(format, args...)
		m.say("VIOLATION: %s", m.bad)
	}
}

func (m *simulation) say(format string, args ...any) {
	if *simLog {
		fmt.Printf("%12v  %s\n", m.w.Now(), fmt.Sprintf(format, args...))
	}
}

func newSimulation(seed uint64) *simulation {
	m := &simulation{w: sim.New(seed, sim.Faults{LoseOne: 300, StallOne: 400}), seed: seed, ahead: map[*sim.Node]int64{}}
	m.check.init(m)
	m.mode = partition.Durability(m.rand(3))
	if m.rand(3) == 0 {
		m.alg = Algorithm(1 + m.rand(2))
	}
	m.apart = m.mode != partition.Async && m.rand(2) == 0
	m.small, m.alike = m.rand(3) == 0, m.rand(4) == 0
	m.locks = m.alg == Fast && !m.small && m.rand(6) == 0 // all that is locked at a partition has to fit into its memory
	n := 2 + m.rand(2)
	var ids []uint32
	for i := range n {
		ids = append(ids, uint32(i))
	}
	m.parts, m.circle = n, circle.New(seed, ids)
	keys := 4 + m.rand(5)
	if m.small { // enough keys that some are not written for seconds, and can be evicted
		keys = 10 + m.rand(30)
	}
	for i := range keys {
		m.keys = append(m.keys, fmt.Appendf(nil, "key-%d", i))
	}
	var host *sim.Node
	for i := range n {
		if host == nil || m.apart {
			host = m.w.NewNode(fmt.Sprintf("server-%d", i))
			m.setDate(host)
		}
		m.partitions = append(m.partitions, &simPartition{m: m, number: uint32(i), host: host, file: &simFile{m: m, rows: map[string][]byte{}, base: map[string][]byte{}}})
	}
	m.say("%v, %v, apart %v, small %v", m.mode, m.alg, m.apart, m.small)
	for _, p := range m.partitions {
		p.start()
	}
	for range 2 + m.rand(2) {
		m.addClient()
	}
	return m
}

// A simPartition is a partition in all its lives.
type simPartition struct {
	m       *simulation
	member  *partition.Member // one of several replicas; set instead of p
	slot    int               // which replica
	number  uint32
	host    *sim.Node
	life    int
	p       *partition.Partition
	store   *store.Store
	file    *simFile
	threads []*sim.Thread
	links   []*simLink
}

func (x *simPartition) addr() string {
	return fmt.Sprintf("partition-%d-%d-%d", x.number, x.slot, x.life)
}

// serves reports whether clients may connect.
func (x *simPartition) serves() bool {
	if x.member != nil {
		r := x.member.Reign()
		return r != nil && r.Serving()
	}
	return x.p != nil
}

func (x *simPartition) term() uint64 {
	if x.member != nil {
		return x.member.Term()
	}
	return x.p.Term()
}

func (x *simPartition) attach(c partition.Conn, g partition.Greeting) {
	if x.member != nil {
		x.member.Attach(c, g)
		return
	}
	x.p.Attach(c, g)
}

func (x *simPartition) start() {
	m := x.m
	x.life++
	x.threads, x.file.full = nil, false
	o := x.options()
	if m.mode != partition.Memory {
		f := store.NewVersionFile(x.file, x.file)
		var err error
		if o.Inherited, err = f.Inherit(func(h uint64) bool { return o.Owner(h) == x.number }); err != nil {
			m.violation("inherit: %v", err)
			return
		}
		pause := time.Duration(0)
		if m.mode == partition.Async {
			pause = 50 * time.Millisecond
		}
		if x.store, err = store.Open(f, x.wake, pause); err != nil {
			m.violation("open: %v", err)
			return
		}
		x.store.Gather(1 + m.rand(4))
		o.Store = x.store
	}
	var err error
	if x.p, err = partition.New(o); err != nil {
		m.violation("new: %v", err)
		return
	}
	l, err := x.host.Domain().Listen(x.addr())
	if err != nil {
		m.violation("listen: %v", err)
		return
	}
	q, _ := x.host.Domain().NewQueue(1024)
	l.(*sim.Listener).Handle(func(in *sim.Incoming) { in.Accept(fabric.EndpointOptions{Send: q, Recv: q}, nil) })
	p := x.p
	x.threads = append(x.threads, x.host.Go("partition", func(now time.Time) (bool, time.Time) {
		if m.bad != "" {
			return false, time.Time{}
		}
		if p.Step() {
			return true, time.Time{}
		}
		return false, now.Add(m.upTo(p.IdleFor()))
	}))
	if x.store != nil {
		x.drive(x.store)
	}
}

// options returns the options of a life, without its file.
func (x *simPartition) options() partition.Options {
	m := x.m
	o := partition.Options{
		Partition: x.number, Term: uint64(x.life), Seed: m.seed, Durability: m.mode, Alloc: x.host.Domain().Alloc,
		Arena: arena.Options{Extent: 64 << 10, Limit: 8 << 20},
		Clock: func(least uint64) (int64, uint64) {
			mono := x.host.Now().UnixNano()
			m.ahead[x.host] = max(m.ahead[x.host], int64(least)-mono/1e6)
			return mono, max(uint64(x.host.Wall().UnixMilli()), uint64(max(0, m.ahead[x.host]+mono/1e6)))
		},
		Owner: func(h uint64) uint32 { n, _ := m.circle.Owner(h); return n },
		Tell:  x.tell,
		Shown: func(key []byte, ts Timestamp) { m.say("%s shows %v of %q", x.addr(), ts, key) },
	}
	if m.small {
		o.Arena.Limit = 64 << 10
	}
	return o
}

// drive steps a store while it is the partition's store.
func (x *simPartition) drive(st *store.Store) {
	m := x.m
	for i, step := range []func(time.Time) (bool, time.Time){st.StepCommitter, st.StepSyncer, st.StepFetcher, st.StepLoader} {
		if i == 3 && m.nodes == nil {
			continue // a partition without replicas loads nothing
		}
		slow := []int{4, 6, 9, 8}[i]
		x.threads = append(x.threads, x.host.Go("store", func(now time.Time) (bool, time.Time) {
			if m.bad != "" || x.store != st {
				return false, time.Time{}
			}
			worked, next := step(now)
			if worked && m.rand(2) == 0 { // the file is slow
				return false, now.Add(m.upTo(time.Millisecond << m.rand(slow)))
			}
			if !worked && next.IsZero() {
				next = now.Add(m.upTo(m.idle()))
			}
			return worked, next
		}))
	}
}

// idle is the longest sleep of a thread that has found nothing to do. At the end of a run no fault happens any more,
// and the rest takes seconds. With the short sleep, more than half of the steps of a run were those of threads that
// found nothing to do there.
func (m *simulation) idle() time.Duration {
	if m.over {
		return 200 * time.Millisecond
	}
	return 20 * time.Millisecond
}

func (x *simPartition) wake() {
	if len(x.threads) > 0 {
		x.threads[0].Wake()
	}
}

// tell carries a note to another partition, or loses the note.
func (x *simPartition) tell(to uint32, n partition.Note) {
	m := x.m
	if m.nodes != nil {
		m.nodes.tell(x, to, n)
		return
	}
	y := m.partitions[to]
	if m.rand(20) == 0 {
		return
	}
	life := y.life
	m.w.After(m.w.Delay(), func() {
		if y.life != life || !y.host.Running() || m.bad != "" {
			return
		}
		m.say("partition %d hears from %d of %v: %+v", to, n.From, n.TS, n)
		y.p.Look()
		y.p.Hear(n)
		y.wake()
	})
}

// crash ends the process of a partition, and with it the other partitions of that process.
func (m *simulation) crash(x *simPartition) {
	host := x.host
	if !host.Alive() || m.mode == partition.Memory {
		return
	}
	m.counts.crashes++
	m.say("crash of partition %d", x.number)
	host.Kill()
	delete(m.ahead, host)
	if m.mode == partition.Async {
		m.check.forget()
	}
	var ended []*simPartition
	for _, y := range m.partitions {
		if y.host != host {
			continue
		}
		ended = append(ended, y)
		m.addStats(y.p)
		y.life++ // notes under way do not arrive
		for _, l := range y.links {
			l.dead = true
			m.w.After(m.upTo(time.Second), func() { l.err = fabric.ErrPeer })
		}
		y.links = nil
		y.file.full = false
		y.file.crash()
	}
	m.w.After(m.upTo(20*time.Millisecond), func() {
		host.Restart()
		for _, y := range ended {
			y.start()
		}
	})
}

func (m *simulation) addStats(p interface{ Stats() partition.Stats }) {
	s := p.Stats()
	m.counts.terminated += int(s.Terminated)
	m.counts.evictions += int(s.Evictions)
	m.counts.fetches += int(s.Fetches)
}

// run lets the clients work while faults happen. Then it ends the faults, and checks that every client gets its
// answers, that nothing stays prepared, and that a last read of all keys succeeds.
func (m *simulation) run() string {
	var trouble func()
	trouble = func() {
		if m.over {
			return
		}
		x := m.partitions[m.rand(len(m.partitions))]
		switch m.rand(12) {
		case 0, 1:
			m.crash(x)
		case 2:
			n := x.host
			if c := m.clients[m.rand(len(m.clients))]; m.rand(2) == 0 {
				n = c.n
			}
			if n.Running() {
				n.Stop()
				m.w.After(m.upTo(3*time.Second), n.Resume)
			}
		case 3, 4, 5:
			m.clients[m.rand(len(m.clients))].die()
		case 6:
			n := x.host
			if m.rand(3) > 0 {
				n = m.clients[m.rand(len(m.clients))].n
			}
			n.JumpWall(m.upTo(30*time.Second) - 15*time.Second)
		case 7, 8:
			m.clients[m.rand(len(m.clients))].lose()
		case 9:
			if m.mode != partition.Memory {
				x.file.full = true
				m.w.After(m.upTo(300*time.Millisecond), func() { x.file.full = false })
			}
		}
		m.w.After(m.upTo(1200*time.Millisecond), trouble)
	}
	m.w.After(m.upTo(time.Second), trouble)
	m.w.RunUntil(m.upTo(20*time.Second)+2*time.Second, func() bool { return m.bad != "" })
	m.over = true
	for _, c := range m.clients {
		c.n.Resume()
	}
	for _, x := range m.partitions {
		x.host.Resume()
		x.file.full = false
	}
	rest := func(limit time.Duration, what string, holds func() bool) {
		if !m.w.RunUntil(limit, func() bool { return m.bad != "" || holds() }) {
			m.violation("%s", what)
			for _, x := range m.partitions {
				m.say("partition %d: %+v", x.number, x.p.Stats())
			}
		}
	}
	rest(20*time.Second, "the clients wait for ever", func() bool {
		return !slices.ContainsFunc(m.clients, func(c *simClient) bool { return c.n.Alive() && c.busy > 0 })
	})
	rest(60*time.Second, "something stays prepared, or is kept, for ever", m.clean)
	last := m.addClient()
	last.lastRead()
	rest(30*time.Second, "the last read waits for ever", func() bool { return last.left == 0 && last.busy == 0 })
	for _, x := range m.partitions {
		if x.p != nil {
			m.addStats(x.p)
		}
	}
	m.w.Close()
	return m.bad
}

// clean reports whether the partitions hold only the newest versions.
func (m *simulation) clean() bool {
	for _, x := range m.partitions {
		if !x.host.Alive() {
			return false
		}
		if s := x.p.Stats(); s.Prepared > 0 || s.Transactions > 0 || s.Held > 0 {
			return false
		}
		for k := range x.file.rows {
			if k[0] == 3 && k != "\x03\x00\x00\x00\x00\x00\x00\x00\x00" && x.store.Backlog() == 0 {
				return false
			}
		}
	}
	return true
}

// TestSimulation runs 90 seeds, or those that the flags name. A failure prints the line that runs its seed again.
func TestSimulation(t *testing.T) {
	runs, limit := *simRuns, *simTime
	if runs == 0 && limit == 0 {
		runs = 90
	}
	began := time.Now()
	var all simCounts
	n := 0
	for seed := *simSeed; n < runs || runs == 0 && time.Since(began) < limit; seed++ {
		m := newSimulation(seed)
		if bad := m.run(); bad != "" {
			t.Fatalf("%s\n  go test ./ramp -run TestSimulation -sim.runs 1 -sim.log -sim.seed %d", bad, seed)
		}
		if n++; n%1000 == 0 {
			t.Logf("%d seeds, up to %d, in %v", n, seed, time.Since(began).Round(time.Second))
		}
		all.add(&m.counts)
	}
	t.Logf("%d seeds: %+v", n, all)
	if n < 50 {
		return // with few seeds some of these may not happen
	}
	require.Positive(t, all.oneSided)
	require.Positive(t, all.repaired)
	require.Positive(t, all.crashes)
	require.Positive(t, all.terminated)
	if n >= 500 {
		require.Positive(t, all.evictions)
	}
}

func (a *simCounts) add(b *simCounts) {
	a.puts, a.gets, a.failed, a.crashes, a.deaths = a.puts+b.puts, a.gets+b.gets, a.failed+b.failed, a.crashes+b.crashes, a.deaths+b.deaths
	a.oneSided, a.refused, a.repaired, a.retries = a.oneSided+b.oneSided, a.refused+b.refused, a.repaired+b.repaired, a.retries+b.retries
	a.terminated, a.evictions, a.fetches = a.terminated+b.terminated, a.evictions+b.evictions, a.fetches+b.fetches
}
