package shard

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
	"flashdbm/servers/arena"
	"flashdbm/servers/circle"
	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/sim"
	"flashdbm/servers/guard"
	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/store"
)

var (
	simSeed = flag.Uint64("sim.seed", 1, "first seed of the simulator")
	simRuns = flag.Int("sim.runs", 0, "how many seeds are simulated; 0: as many as -sim.time allows")
	simTime = flag.Duration("sim.time", 0, "how long seeds are simulated, if -sim.runs is 0; 0: as many seeds as make test has")
	simLog  = flag.Bool("sim.log", false, "tell what happens")
)

// A simulation is one node and its clients, all determined by a seed. The invariants are checked after each step of
// the shard, and the history of all operations at the end.
type simulation struct {
	w       *sim.World
	seed    uint64
	bad     string
	mode    Durability
	small   bool // memory holds a few items only
	evict   bool // if small, in memory mode: items that are not used are evicted
	lazy    bool // only requests find items that have expired
	life    int
	server  *sim.Node
	shard   *Shard
	store   *store.Store
	file    *simFile
	threads []*sim.Thread
	clients []*simClient
	links   []*simLink
	history []porcupine.Operation
	values  map[uint64]string // by version: the value that was seen or decided with it
	wrote   map[string]int    // by value: how often it was applied to the file or shown
	reads   map[*simRead]bool // under way
	shown   map[string]uint64 // by key: the version that was last shown, in the file or by this life
	jumped  bool              // the server's date has been set
	crashed []int             // indexes in history of crashes after which the shard has not served yet
	counts  simCounts

	// Memory for the frequent checks between two steps, used again each time.
	current map[string]int
	all     map[arena.Place]bool
	table   map[string]uint64
}

type simCounts struct{ ops, reads, accepted, crashes, retries, unknown, chunks, undecided int }

const simKeys = 5

// simKeyNames are made once because a simulation asks for them all the time.
var simKeyNames = func() (names [100]string) {
	for i := range names {
		names[i] = fmt.Sprintf("key-%d", i)
	}
	return names
}()

func simKey(i int) string { return simKeyNames[i] }

func (m *simulation) rand(n int) int { return m.w.Rand().IntN(n) }

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
	m := &simulation{
		w: sim.New(seed, sim.Faults{LoseOne: 400, StallOne: 300}), seed: seed, values: map[uint64]string{}, wrote: map[string]int{}, reads: map[*simRead]bool{},
		current: map[string]int{}, all: map[arena.Place]bool{}, table: map[string]uint64{},
	}
	m.mode = Durability(m.rand(3))
	m.small = m.rand(3) == 0
	m.evict = m.small && m.mode == Memory && m.rand(2) == 0
	m.lazy = m.rand(3) == 0
	m.server = m.w.NewNode("server")
	m.file = &simFile{w: m}
	if m.mode != Memory && m.rand(12) == 0 {
		m.file.mem = vfs.NewMem(memBytes)
		m.file.open()
	}
	m.start()
	for i := range 2 + m.rand(2) {
		m.clients = append(m.clients, newSimClient(m, i))
	}
	if seed%3 == 0 {
		c := newSimClient(m, len(m.clients))
		c.once = true
		m.clients = append(m.clients, c)
	}
	return m
}

// start begins a life of the node.
func (m *simulation) start() {
	m.life++
	m.threads = nil
	o := Options{
		Term: uint64(m.life), Seed: m.seed, Durability: m.mode, Alloc: m.server.Domain().Alloc, Arena: arena.Options{Extent: 64 << 10, Limit: 1 << 20},
		Clock: func() (int64, uint64) { return m.server.Now().UnixNano(), uint64(m.server.Wall().UnixMilli()) },
	}
	if m.small {
		o.Arena.Limit = 64 << 10
		o.Evict = m.evict
	}
	m.store = nil
	if m.mode != Memory {
		var err error
		if m.store, err = store.Open(m.file, m.wakeShard, []time.Duration{0, 100 * time.Millisecond}[m.rand(2)]); err != nil {
			m.violation("open: %v", err)
			return
		}
		m.store.Gather(1 + int(m.seed/3%4))
		o.Store = m.store
	}
	var err error
	if m.shard, err = New(o); err != nil {
		m.violation("new: %v", err)
		return
	}
	s := m.shard
	s.lazy = m.lazy
	s.pieceBytes = 1 + m.rand(60)
	if s.toLoad && m.rand(2) == 0 { // the load begins later, when there are writes as well
		s.toLoad = false
		m.w.After(time.Duration(m.rand(int(4*time.Second))), func() {
			if m.shard == s && m.server.Alive() {
				s.load()
			}
		})
	}
	m.shown = map[string]uint64{}
	for i := range simKeys {
		if r, found := m.file.find([]byte(simKey(i))); found && m.mode != Memory {
			m.shown[simKey(i)] = r.Version
		}
	}
	s.between = func(e entry) {
		if e.remove {
			if c, ok := circle.ParseChunk(e.key); ok {
				m.counts.chunks++
				if at, ok := s.table.Find(s.hash(c.Key), c.Key); ok {
					it := s.item(arena.Place(at))
					m.checkManifest(&c, it.Flags, it.Value)
				}
			}
			delete(m.shown, string(e.key))
			m.checkShown()
		} else {
			m.shown[string(s.keyOf(&e))] = s.item(e.place).Version
			m.checkShown(e.place)
		}
	}
	l, err := m.server.Domain().Listen(fmt.Sprintf("server-%d", m.life))
	if err != nil {
		m.violation("listen: %v", err)
		return
	}
	q, _ := m.server.Domain().NewQueue(1024)
	l.(*sim.Listener).Handle(func(in *sim.Incoming) { in.Accept(fabric.EndpointOptions{Send: q, Recv: q}, nil) })
	quiet := 0
	m.threads = append(m.threads, m.server.Go("shard", func(now time.Time) (bool, time.Time) {
		if m.bad != "" {
			return false, time.Time{}
		}
		if s.o.Store != nil && m.rand(40) == 0 {
			s.evict(1 << m.rand(20))
		}
		worked, _ := s.Step(now)
		if worked && s.polled && len(s.inbox) == 0 {
			worked = quiet == 0
		}
		m.check()
		if quiet++; worked {
			quiet = 0
			return true, time.Time{}
		}
		return false, now.Add(time.Duration(1 + m.rand(int(50*time.Millisecond)<<m.rand(6))))
	}))
	if m.store != nil {
		st := m.store
		for i, step := range []func(time.Time) (bool, time.Time){st.StepCommitter, st.StepSyncer, st.StepFetcher, st.StepLoader} {
			slow := []int{6, 6 + 3*m.rand(2), 9, 11}[i] // a read of the file may be under way for long
			m.threads = append(m.threads, m.server.Go("store", func(now time.Time) (bool, time.Time) {
				if m.bad != "" {
					return false, time.Time{}
				}
				worked, next := step(now)
				if worked && m.rand(2) == 0 { // the file is slow
					return false, now.Add(time.Duration(m.rand(int(time.Millisecond) << m.rand(slow))))
				}
				if !worked && next.IsZero() {
					next = now.Add(time.Duration(m.rand(int(time.Millisecond) << m.rand(6))))
				}
				return worked, next
			}))
		}
	}
}

func (m *simulation) wakeShard() {
	if len(m.threads) > 0 {
		m.threads[0].Wake()
	}
}

// checkManifest checks that a chunk that is removed does not belong to the manifest that its value's key has.
func (m *simulation) checkManifest(c *circle.Chunk, flags uint16, value []byte) {
	var large protocol.Manifest
	if flags&guard.Manifest != 0 && large.Parse(value) == nil && large.ID == c.ID {
		m.violation("a chunk of %s is removed, and %s has the manifest that lists it", c.Key, c.Key)
	}
}

// crash ends the life of the node.
func (m *simulation) crash() {
	if !m.server.Alive() {
		return
	}
	m.counts.crashes++
	m.server.Kill()
	for _, l := range m.links {
		l.dead = true
	}
	m.links = nil
	at := m.w.Now().Nanoseconds()
	m.file.full, m.file.failing = false, false
	m.file.crash()
	m.say("crash; the file has %d entries", m.file.state.Seq)
	for i := range m.file.applied {
		if c, ok := circle.ParseChunk(m.file.applied[i].Key); ok {
			if r, found := m.file.find(c.Key); found {
				m.checkManifest(&c, r.Flags, r.Value)
			}
		}
	}
	for i := range simKeys {
		k := simKey(i)
		c := call{kind: "crash", key: k}
		if r, found := m.file.find([]byte(k)); found && m.mode != Memory {
			c.value, c.expiry = name(r.Value), r.Expiry != 0
		}
		m.crashed = append(m.crashed, len(m.history)) // the lost value may be Read until the next life serves
		m.history = append(m.history, porcupine.Operation{ClientId: 1000*m.life + i, Input: c, Output: result{}, Call: at, Return: math.MaxInt64})
	}
	m.w.After(time.Duration(m.rand(int(20*time.Millisecond))), func() {
		m.server.Restart()
		m.start()
		m.say("life %d, term %d, seq %d", m.life, m.shard.term, m.shard.seq)
		for _, c := range m.clients {
			if c.once {
				c.thread.Wake()
			}
		}
	})
}

// noteApplied checks and counts the entries that are applied to the file.
func (m *simulation) noteApplied(e *store.Entry) {
	if e.Remove {
		return
	}
	m.noteVersion(e.Version, name(e.Value))
	if v := name(e.Value); strings.HasPrefix(v, "v") {
		if m.wrote[v]++; m.wrote[v] > 1 {
			m.violation("the write of %s happened twice", v)
		}
	}
}

func (m *simulation) noteVersion(version uint64, value string) {
	if was, ok := m.values[version]; ok && was != value {
		m.violation("version %d has value %s and value %s", version, was, value)
	}
	m.values[version] = value
}

// checkShown checks three things about the items that peers may find: each key has at most one current item, and in
// sync mode its entry is synced. more are places that the table does not have yet.
func (m *simulation) checkShown(more ...arena.Place) {
	s := m.shard
	clear(m.current)
	m.places()
	for _, p := range more {
		m.all[p] = true
	}
	for p := range m.all {
		b := guard.Bytes(s.arena.Bytes(p))
		it := guard.Parse(b)
		if c, err := guard.Verify(b, it.Key); err == nil {
			if m.current[string(it.Key)]++; m.current[string(it.Key)] > 1 {
				m.violation("key %s has two current items", it.Key)
			}
			if seq := s.seqOf(c.Version); m.mode == Sync && seq > m.store.Durable() {
				m.violation("entry %d of %s is shown before it is synced", seq, it.Key)
			}
		}
	}
}

// places sets all to the places in the table and in the pending entries.
func (m *simulation) places() {
	s := m.shard
	clear(m.all)
	var chain [16]uint64
	for i := range s.table.Buckets() {
		for _, p := range s.table.Chain(i, chain[:0]) {
			m.all[arena.Place(p)] = true
		}
	}
	for i := range s.pending {
		if e := &s.pending[i]; !e.remove {
			m.all[e.place] = true
		}
	}
}

// check checks the invariants that hold between any two steps:
//
//  1. Of each key peers can find at most one current item, which in sync mode is synced (checkShown).
//  2. An entry is shown only after it is committed, and the pending entries follow the entries shown, without gaps.
//  3. The table agrees with the versions that were shown last (checkTable).
//  4. The store reports an entry as durable only if a crash keeps it.
//  5. No outcome is kept of a write whose client has the answers to that write and to all earlier ones.
func (m *simulation) check() {
	s := m.shard
	if s.now >= s.quiet {
		for _, i := range m.crashed {
			m.history[i].Return = m.w.Now().Nanoseconds()
		}
		m.crashed = nil
	}
	m.checkShown()
	if s.shown > s.committed() {
		m.violation("shown %d, committed %d", s.shown, s.committed())
	}
	for i := range s.pending {
		if s.pending[i].seq != s.shown+1+uint64(i) {
			m.violation("pending entry %d has number %d, shown is %d", i, s.pending[i].seq, s.shown)
		}
	}
	m.checkTable()
	if m.mode != Memory && m.store.Durable() > m.file.durable() {
		m.violation("%d entries are said to be durable, %d are", m.store.Durable(), m.file.durable())
	}
	for r := range m.reads {
		r.watch()
	}
	for _, cl := range s.clients {
		for n := range cl.outcomes {
			if n < cl.low {
				m.violation("the outcome of number %d is kept, and all below %d have been answered", n, cl.low)
			}
		}
	}
}

// checkTable checks that each item of the table is the version that was last shown of its key, once; that a removed
// key is remembered as such only if it was removed; and that a complete table has every key.
func (m *simulation) checkTable() {
	s := m.shard
	table := m.table
	clear(table)
	var chain [16]uint64
	for i := range s.table.Buckets() {
		for _, p := range s.table.Chain(i, chain[:0]) {
			it := s.item(arena.Place(p))
			k := string(it.Key)
			if _, twice := table[k]; twice {
				m.violation("the table has two items of %s", k)
			}
			table[k] = it.Version
			if it.Version != m.shown[k] {
				m.violation("the table has version %d of %s, %d was shown", it.Version, k, m.shown[k])
			}
		}
	}
	for i := range simKeys {
		k := simKey(i)
		_, gone := s.tombs[k]
		if gone && m.shown[k] != 0 {
			m.violation("%s is remembered as removed, and version %d was shown", k, m.shown[k])
		}
		if s.complete && m.shown[k] != table[k] {
			m.violation("the table is said to be complete, and lacks version %d of %s", m.shown[k], k)
		}
	}
}

// run lets the clients work while crashes and stops happen, and checks the history of what they have seen.
func (m *simulation) run() string {
	for _, c := range m.clients {
		c.begin()
	}
	var trouble func()
	trouble = func() {
		switch m.rand(12) {
		case 0, 1:
			m.crash()
		case 2:
			n := m.server
			if m.rand(2) == 0 {
				n = m.clients[m.rand(len(m.clients))].n
			}
			if n.Running() {
				n.Stop()
				m.w.After(time.Duration(m.rand(int(3*time.Second))), n.Resume)
			}
		case 4, 5, 6:
			m.jumped = true
			d := time.Duration(m.rand(int(4*time.Second))) - 2*time.Second
			m.server.JumpWall(d)
			if m.rand(2) == 0 {
				m.w.After(time.Duration(m.rand(int(500*time.Millisecond))), func() { m.server.JumpWall(-d) })
			}
		case 7:
			if m.mode != Memory && m.server.Alive() { // the file fails; the node's user starts the node again
				m.file.failing = true
				m.w.After(time.Duration(m.rand(int(time.Second))), m.crash)
			}
		case 3:
			m.file.full = m.mode != Memory && m.server.Alive()
			m.w.After(time.Duration(m.rand(int(300*time.Millisecond))), func() { m.file.full = false })
		}
		m.w.After(time.Duration(m.rand(int(1500*time.Millisecond))), trouble)
	}
	m.w.After(time.Duration(m.rand(int(time.Second))), trouble)
	done := func() bool {
		if m.bad != "" {
			return true
		}
		for _, c := range m.clients {
			if c.left > 0 || c.busy() {
				return false
			}
		}
		return true
	}
	if !m.w.RunUntil(10*time.Minute, done) {
		m.violation("the clients wait for ever")
	}
	for _, c := range m.clients {
		c.leave()
	}
	if m.bad == "" {
		m.checkHistory()
	}
	m.file.close()
	m.w.Close()
	return m.bad
}

// checkHistory searches, for each key, an order of the operations that explains every answer.
func (m *simulation) checkHistory() {
	for _, part := range model.Partition(m.history) {
		key := part[0].Input.(call).key
		switch porcupine.CheckOperationsTimeout(model, part, checkTime) {
		case porcupine.Ok:
			continue
		case porcupine.Unknown:
			m.counts.undecided++
			continue
		}
		m.violation("the history of %s is not linearizable", key)
		slices.SortFunc(part, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
		for _, o := range part {
			m.say("%d-%d by %d: %+v: %+v", o.Call, o.Return, o.ClientId, o.Input, o.Output)
		}
	}
}

func (m *simulation) record(client int, c call, r result, from, to int64) {
	if r.open {
		to = math.MaxInt64
	}
	m.history = append(m.history, porcupine.Operation{ClientId: client, Input: c, Output: r, Call: from, Return: to})
}

// runSeed fails the test, or panics, with the line that runs the seed again.
func runSeed(t *testing.T, seed uint64, run func() string) {
	again := fmt.Sprintf("\n  go test ./shard -run '^%s$' -sim.runs 1 -sim.log -sim.seed %d", t.Name(), seed)
	defer func() {
		if p := recover(); p != nil {
			t.Log(again)
			panic(p)
		}
	}()
	if bad := run(); bad != "" {
		t.Fatal(bad + again)
	}
}

// TestSimulation runs 400 seeds, or those that the flags name. A failure prints the line that runs its seed again.
func TestSimulation(t *testing.T) {
	runs, limit := *simRuns, *simTime
	if runs == 0 && limit == 0 {
		runs = 400
	}
	began := time.Now()
	var all simCounts
	n := 0
	for seed := *simSeed; n < runs || runs == 0 && time.Since(began) < limit; seed++ {
		m := newSimulation(seed)
		runSeed(t, seed, m.run)
		if n++; n%1000 == 0 {
			t.Logf("%d seeds, up to %d, in %v", n, seed, time.Since(began).Round(time.Second))
		}
		all.ops += m.counts.ops
		all.reads += m.counts.reads
		all.accepted += m.counts.accepted
		all.crashes += m.counts.crashes
		all.retries += m.counts.retries
		all.unknown += m.counts.unknown
		all.chunks += m.counts.chunks
		all.undecided += m.counts.undecided
	}
	t.Logf("%d seeds: %+v", n, all)
	require.Positive(t, all.accepted)
	require.Positive(t, all.crashes)
	require.Positive(t, all.retries)
	require.Positive(t, all.chunks)
}
