package replicatest

import (
	"fmt"
	"slices"
	"time"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/sim"
	"flashdbm/servers/replica"
)

// A Shard is a member of a shard's replicas.
type Shard interface {
	Follower() *replica.Follower
	Reign() *replica.Reign
	Learn(rec replica.Record)
	Stop(rec *replica.Record) bool
}

// A Seat is a life of a member. It does between two steps what a node's thread does.
type Seat struct {
	Port
	A     *Agreement
	Name  string
	Shard Shard
	Over  bool // the life has ended

	addr   string
	orders []order
}

// An order is an order to stop.
type order struct {
	rec   replica.Record
	reply func(replica.Report)
}

// Sit gives a member a seat for a new life. addr is its address for links of others, different from that of earlier
// lives.
func (a *Agreement) Sit(name, addr string, n *sim.Node, s Shard, wake func()) (*Seat, error) {
	q, err := n.Domain().NewQueue(4096)
	if err != nil {
		return nil, err
	}
	x := &Seat{A: a, Name: name, Shard: s, Port: Port{World: a.World, Node: n, Queue: q.(*sim.Queue), Wake: wake}, addr: addr}
	x.Lives = x.Up
	l, err := n.Domain().Listen(addr)
	if err != nil {
		return nil, err
	}
	l.(*sim.Listener).Handle(func(in *sim.Incoming) {
		e, _ := in.Accept(fabric.EndpointOptions{Send: x.Queue, Recv: x.Queue}, nil)
		if l := a.dialled[string(in.Hello())]; l != nil && x.Up() {
			l.Accepted(e)
			x.Shard.Follower().Offered(l)
			x.Wake()
		}
	})
	a.Members[name] = x
	return x, nil
}

// Up reports whether the life goes on.
func (x *Seat) Up() bool { return !x.Over && x.Node.Alive() }

// Learn passes a record to the member, once its process runs.
func (x *Seat) Learn(rec replica.Record) {
	x.A.World.After(0, func() {
		switch {
		case !x.Up():
		case !x.Node.Running():
			x.A.World.After(x.A.upTo(50*time.Millisecond), func() { x.Learn(rec) })
		default:
			x.Shard.Learn(rec)
			x.Wake()
		}
	})
}

// order orders the member to stop.
func (x *Seat) order(from *sim.Node, f *replica.Failover) {
	a := x.A
	a.World.After(a.slow(), func() {
		if x.Up() && a.World.Reaches(from, x.Node) {
			x.orders = append(x.orders, order{f.Record(), func(r replica.Report) {
				a.World.After(a.slow(), func() {
					if a.World.Reaches(x.Node, from) {
						f.Reported(x.Name, r)
					}
				})
			}})
			x.Wake()
		}
	})
}

// Before is called before a step of the member: it handles completions and orders.
func (x *Seat) Before() {
	x.Complete()
	f := x.Shard.Follower()
	x.orders = slices.DeleteFunc(x.orders, func(o order) bool { return !x.Shard.Stop(&o.rec) })
	for _, revision := range f.Stopped() {
		for _, o := range x.orders {
			if o.rec.Revision == revision {
				o.reply(f.Report())
			}
		}
		x.orders = slices.DeleteFunc(x.orders, func(o order) bool { return o.rec.Revision == revision })
	}
}

// After is called after a step: it carries out what a primary wants. The primary hands its reign over once in
// handOver steps.
func (x *Seat) After(handOver int) {
	a, r := x.A, x.Shard.Reign()
	if r == nil {
		return
	}
	if a.rand(20) == 0 {
		var want []string
		for _, y := range a.sorted() {
			if y != x && y.Up() {
				want = append(want, y.Name)
			}
		}
		w := replica.Wishes{In: want}
		if set := r.Record().Set; len(set) > 1 && a.rand(4) == 0 && !a.Calm { // a node is drained, or its place goes to another node
			w.Out, w.Least = []string{set[a.rand(len(set))]}, 1+a.rand(2)
			w.In = slices.DeleteFunc(w.In, func(name string) bool { return name == w.Out[0] })
		}
		r.Want(w)
	}
	if set := r.Record().Set; a.rand(handOver) == 0 && !a.Calm {
		r.HandOver(set[a.rand(len(set))], a.rand(2) == 0)
	}
	if next, ok := r.Proposal(); ok {
		a.Say("%s proposes %+v", x.Name, next)
		a.Change(x.Node, next, x.Learn)
	}
	if a.rand(200) == 0 {
		a.Read(x.Node, x.Learn)
	}
	if name := r.Dial(); name != "" {
		x.dial(r, name)
	}
}

// dial connects the primary to a member.
func (x *Seat) dial(r *replica.Reign, name string) {
	a := x.A
	y := a.Members[name]
	if y == nil || !y.Up() {
		a.World.After(a.slow(), func() { r.NoLink(name) })
		return
	}
	l, far := Pair(&x.Port, &y.Port)
	hello := fmt.Sprint(name, len(a.dialled))
	a.dialled[hello] = far
	x.Node.Domain().DialFunc(y.addr, []byte(hello), fabric.EndpointOptions{Send: x.Queue, Recv: x.Queue, Depth: 64}, func(e fabric.Endpoint, _ []byte, err error) {
		if err != nil || !x.Up() || x.Shard.Reign() != r {
			if e != nil {
				e.Close()
			}
			r.NoLink(name)
			return
		}
		l.Dialled(e)
		r.Attach(name, l)
		x.Wake()
	})
}
