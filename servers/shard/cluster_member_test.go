package shard

import (
	"fmt"
	"slices"
	"time"

	"flashdbm/servers/arena"
	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/sim"
	"flashdbm/servers/replica"
	"flashdbm/servers/replica/replicatest"
	"flashdbm/servers/store"
)

// A simMember is a node and its replica in its present life.
type simMember struct {
	c     *clusterSim
	i     int
	n     *sim.Node
	life  int
	id    string // name of the member in records: it names the life, or only the node if the node's file has everything that it has acknowledged
	shard *Shard // nil until the record was read
	store *store.Store
	file  *memberFile
	port  *replicatest.Port

	thread *sim.Thread
	orders []order
	shown  map[string]uint64
	quiet  int
	hands  bool
	passed time.Duration // until when clients may rely on the tenure that it has granted them, in time of the world
	slept  bool          // its clock has stood still since the last phase that reads it
	lost   bool          // the life is over, and with it what it had in memory
}

// An order is a leader's order to stop.
type order struct {
	rec   replica.Record
	reply func(replica.Report)
}

// name returns the name of a life of the member in records.
func (m *simMember) name(life int) string {
	if m.c.mode == Sync {
		return fmt.Sprintf("%c%d", 'n'+rune(m.c.number), m.i)
	}
	return fmt.Sprintf("%c%d.%d", 'n'+rune(m.c.number), m.i, life)
}

func (m *simMember) addr(life int) string { return fmt.Sprintf("node-%d-%d-%d", m.c.number, m.i, life) }

func (m *simMember) alive() bool { return m.n.Alive() }

// has returns the newest entry that the member cannot lose while it is in the set: in sync mode that of its file,
// else that of its state or, with relaxed acknowledgements, of its ring.
func (m *simMember) has() uint64 {
	if m.c.mode == Sync {
		return m.file.durable()
	}
	n := m.shard.seq
	if m.c.acks == replica.Relaxed {
		n += m.shard.Follower().Placed()
	}
	return n
}

// begin begins a life. ended is the term of the record.
func (m *simMember) begin(ended uint64) {
	c := m.c
	m.file.meanwhile = func() {
		if m.store != nil && c.rand(3) == 0 {
			m.store.StepCommitter(m.n.Now())
		}
	}
	m.life++
	m.id = m.name(m.life)
	c.all[m.id] = m
	m.orders, m.shown, m.quiet = nil, map[string]uint64{}, 0
	d := m.n.Domain()
	q, _ := d.NewQueue(4096)
	life := m.life
	m.port = &replicatest.Port{World: c.w, Node: m.n, Queue: q.(*sim.Queue), Wake: m.wake, Lives: func() bool { return m.life == life && m.alive() }}
	o := Options{
		Shard: c.number, Seed: 1, Durability: c.mode, Alloc: d.Alloc, Arena: clusterArena, Membership: Membership{Self: m.id, Mode: c.acks, Ended: ended, RingSize: clusterRing, Memory: d},
		Clock: func() (int64, uint64) { return m.n.Now().UnixNano(), uint64(m.n.Wall().UnixMilli()) },
	}
	var err error
	m.store = nil
	var seq uint64
	var terms []replica.Term
	if c.mode != Memory {
		if m.store, err = store.Open(m.file.fresh(false), m.wake, []time.Duration{100 * time.Millisecond, 0}[c.mode-1]); err != nil {
			c.violation("open: %v", err)
			return
		}
		m.store.Gather(1 + int(c.seed/3%4))
		o.Store = m.store
		st := m.store.State()
		seq = st.Seq
		for _, t := range st.Terms {
			if t.Term != 0 {
				terms = slices.Insert(terms, 0, replica.Term{Term: t.Term, First: t.First})
			}
		}
		o.Fresh = func() (*store.Store, error) {
			c.counts.copies++
			st, err := store.Open(m.file.fresh(true), m.wake, []time.Duration{100 * time.Millisecond, 0}[c.mode-1])
			if err == nil {
				st.Gather(1 + int(c.seed/3%4))
				m.store = st
				m.drive(st)
			}
			return st, err
		}
		o.Keep = func() error { m.file.keep(); return nil }
	}
	if o.Log, err = replica.NewLog(d, clusterRing, seq, terms); err != nil {
		c.violation("log: %v", err)
		return
	}
	if m.shard, err = New(o); err != nil {
		c.violation("new: %v", err)
		return
	}
	s := m.shard
	s.lazy = c.seed%5 == 0
	s.pieceBytes = 1 + c.rand(60)
	if c.moves != nil {
		s.See(c.moves.view())
	}
	s.between = func(e entry) {
		if e.remove {
			delete(m.shown, string(e.key))
			c.showed(m, e.seq, e.hash|1<<63, "")
			return
		}
		it := s.item(e.place)
		if c.moves != nil {
			c.moves.showed(m, &e, &it)
		}
		m.shown[string(it.Key)] = it.Version
		own := e.seq == it.Version-s.base
		if own || s.Reign() != nil { // otherwise the item is of a copy
			value := name(it.Value)
			brought := !own && !c.bases[it.Version-e.seq] // by a move: its old owner has perhaps not committed it, and the move then begins again
			if brought || value == "" || value[0] != 'v' {
				value = ""
			}
			c.showed(m, e.seq, it.Version, value)
		}
	}
	m.listen()
	m.thread = m.n.Go("shard", m.step, m.port.Queue)
	if m.store != nil {
		m.drive(m.store)
	}
}

// drive steps a store while it is the member's store.
func (m *simMember) drive(st *store.Store) {
	for i, step := range []func(time.Time) (bool, time.Time){st.StepCommitter, st.StepSyncer, st.StepFetcher, st.StepLoader} {
		slow := []int{4, 4, 6, 8}[i]
		m.n.Go("store", func(now time.Time) (bool, time.Time) {
			if m.c.bad != "" || m.store != st {
				return false, time.Time{}
			}
			worked, next := step(now)
			if worked && m.c.rand(2) == 0 { // the file is slow
				return false, now.Add(m.c.upTo(time.Millisecond << m.c.rand(slow)))
			}
			if !worked && next.IsZero() {
				next = now.Add(m.c.upTo(20 * time.Millisecond))
			}
			return worked, next
		})
	}
}

func (m *simMember) wake() {
	if m.thread != nil {
		m.thread.Wake()
	}
}

// learn gives the shard a record, now or when a stopped process runs again.
func (m *simMember) learn(rec replica.Record) {
	if m.shard == nil || !m.alive() {
		return
	}
	s, life := m.shard, m.life
	m.c.w.After(0, func() {
		if m.life == life && m.alive() {
			if !m.n.Running() {
				m.c.w.After(m.c.upTo(50*time.Millisecond), func() { m.learn(rec) })
				return
			}
			s.Learn(rec)
			m.wake()
		}
	})
}

// see gives the shard a view, now or when a stopped process runs again.
func (m *simMember) see(v *View) {
	if m.shard == nil || !m.alive() {
		return
	}
	s, life := m.shard, m.life
	m.c.w.After(0, func() {
		switch {
		case m.life != life || !m.alive():
		case !m.n.Running():
			m.c.w.After(m.c.upTo(50*time.Millisecond), func() { m.see(v) })
		default:
			s.See(v)
			m.wake()
		}
	})
}

// order sends the member a leader's order to stop.
func (m *simMember) order(from *sim.Node, f *replica.Failover) {
	c, id, life := m.c, m.id, m.life
	c.w.After(c.slow(), func() {
		if m.life == life && m.alive() && c.w.Reaches(from, m.n) {
			m.orders = append(m.orders, order{f.Record(), func(r replica.Report) {
				c.w.After(c.slow(), func() {
					if c.w.Reaches(m.n, from) {
						f.Reported(id, r)
					}
				})
			}})
			m.wake()
		}
	})
}

// listen accepts connections of primaries and of clients that Read.
func (m *simMember) listen() {
	l, err := m.n.Domain().Listen(m.addr(m.life))
	if err != nil {
		m.c.violation("listen: %v", err)
		return
	}
	life := m.life
	l.(*sim.Listener).Handle(func(in *sim.Incoming) {
		x, _ := in.Accept(fabric.EndpointOptions{Send: m.port.Queue, Recv: m.port.Queue}, nil)
		if l := m.c.dialled[string(in.Hello())]; l != nil && m.life == life {
			l.Accepted(x)
			m.shard.Follower().Offered(l)
			m.wake()
		}
	})
}

func (m *simMember) kill() {
	c := m.c
	if !m.alive() || m.shard == nil {
		return
	}
	lives := 0
	for _, name := range c.rec.Set {
		if x := c.all[name]; x != nil && !x.lost && x.alive() {
			lives++
		}
	}
	if c.mode != Sync && c.rec.Has(m.id) && lives < 2 {
		return // no living member would have what was acknowledged
	}
	c.counts.kills++
	c.say("%s is killed, with %d entries", m.id, m.shard.seq)
	m.n.Kill()
	m.file.crash(c)
	if c.mode != Sync {
		c.all[m.id] = &simMember{c: c, id: m.id, n: m.n, lost: true}
		c.losses++
	}
	c.w.After(c.upTo(1500*time.Millisecond), m.restart)
}

// restart begins the next life once the member could read the record.
func (m *simMember) restart() {
	m.n.Restart()
	life := m.life
	m.shard = nil
	var again func()
	again = func() {
		if m.life != life || m.c.bad != "" {
			return
		}
		m.c.read(m.n, func(rec replica.Record) {
			if m.life == life {
				m.begin(rec.Term)
				m.learn(rec)
				m.c.say("%s begins with %d entries", m.id, m.shard.seq)
			}
		})
		m.c.w.After(200*time.Millisecond, again)
	}
	again()
}

// dial connects the primary to a member.
func (m *simMember) dial(r *replica.Reign, name string) {
	c := m.c
	x := c.all[name]
	if x == nil || x.lost || !x.alive() || x.shard == nil || x.id != name {
		c.w.After(c.slow(), func() { r.NoLink(name) })
		return
	}
	l, far := replicatest.Pair(m.port, x.port)
	hello := fmt.Sprint(len(c.dialled))
	c.dialled[hello] = far
	m.n.Domain().DialFunc(x.addr(x.life), []byte(hello), fabric.EndpointOptions{Send: m.port.Queue, Recv: m.port.Queue, Depth: 64}, func(e fabric.Endpoint, _ []byte, err error) {
		if err != nil || m.shard == nil || m.shard.Reign() != r {
			if e != nil {
				e.Close()
			}
			r.NoLink(name)
			return
		}
		l.Dialled(e)
		r.Attach(name, l)
		m.wake()
	})
}

// step is the replica's thread: it makes one step of the shard, and before and after it does what a node's thread
// does between two passes.
func (m *simMember) step(now time.Time) (bool, time.Time) {
	c, s := m.c, m.shard
	if c.bad != "" {
		return false, time.Time{}
	}
	m.port.Complete()
	if s.polled {
		m.obey()
	}
	if s.o.Store != nil && c.rand(60) == 0 {
		s.evict(1 << c.rand(20))
	}
	worked, _ := s.Step(now)
	if worked && s.polled && len(s.inbox) == 0 {
		worked = m.quiet == 0
	}
	m.reign()
	m.slept = m.slept && s.polled // the next phase reads the clock
	c.check(m)
	if m.quiet++; worked {
		m.quiet = 0
		return true, time.Time{}
	}
	return false, now.Add(1 + c.upTo(time.Millisecond<<c.rand(6)))
}

// obey carries out orders, and answers those that have been carried out.
func (m *simMember) obey() {
	f := m.shard.Follower()
	m.orders = slices.DeleteFunc(m.orders, func(o order) bool { return !m.shard.Stop(&o.rec) })
	for _, revision := range f.Stopped() {
		for _, o := range m.orders {
			if o.rec.Revision == revision {
				o.reply(f.Report())
			}
		}
		m.orders = slices.DeleteFunc(m.orders, func(o order) bool { return o.rec.Revision == revision })
	}
}

// reign does the work of a node whose replica is the primary: it connects to members, and changes the record.
func (m *simMember) reign() {
	c, s := m.c, m.shard
	r := s.Reign()
	if r == nil {
		return
	}
	if c.rand(20) == 0 {
		var want []string
		for _, x := range c.members {
			if x != m && x.alive() {
				want = append(want, x.id)
			}
		}
		w := replica.Wishes{In: want}
		if len(r.Record().Set) > 1 && c.rand(4) == 0 { // a node is drained, or makes room for another node
			w.Out, w.Least = []string{r.Record().Set[c.rand(len(r.Record().Set))]}, 1+c.rand(2)
			w.In = slices.DeleteFunc(w.In, func(name string) bool { return name == w.Out[0] })
		}
		r.Want(w)
	}
	if set := r.Record().Set; c.rand(10+300*int(c.seed%2)) == 0 && r.HandOver(set[c.rand(len(set))], c.rand(2) == 0) && !m.hands {
		m.hands = true
		c.say("%s begins to hand over", m.id)
	}
	m.hands = r.Yields()
	if left := s.tenureLeft(); !m.slept && left > 0 {
		ago := time.Duration(m.n.Now().UnixNano() - s.now) // a client counts its tenure from its request, which was earlier than this step
		m.passed = max(m.passed, c.w.Now()-ago+time.Duration(left)*time.Microsecond)
	}
	if next, ok := r.Proposal(); ok {
		c.say("%s proposes %+v", m.id, next)
		c.change(m.n, next, m.learn)
	}
	if c.rand(200) == 0 {
		c.read(m.n, m.learn)
	}
	if name := r.Dial(); name != "" {
		m.dial(r, name)
	}
	if c.moves != nil {
		c.moves.serve(m)
	}
}

// checkTable checks that the table of a primary has the versions that were last shown.
func (m *simMember) checkTable() {
	s := m.shard
	if s.Reign() == nil {
		return
	}
	var chain [16]uint64
	for i := range s.table.Buckets() {
		for _, p := range s.table.Chain(i, chain[:0]) {
			it := s.item(arena.Place(p))
			if shown := m.shown[string(it.Key)]; it.Version != shown && shown != 0 {
				m.c.violation("%s has version %d of %s, and %d was shown", m.id, it.Version, it.Key, shown)
			}
		}
	}
}
