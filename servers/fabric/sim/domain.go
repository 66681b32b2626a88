package sim

import (
	"context"
	"fmt"
	"slices"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/ledger"
	"flashdbm/servers/fabric/regions"
)

// limits are the same as those of package mem.
var limits = fabric.Caps{OneSided: true, MaxInline: 64, MaxSend: 64 << 10}

// A Domain is the fabric.Domain of one incarnation of a node.
type Domain struct {
	n         *Node
	w         *World
	nonce     uint64
	regions   *regions.Table
	queues    []*Queue
	listeners []*Listener
	endpoints []*endpoint
	closed    bool // by Close, or by the end of the incarnation
}

// Domain returns the domain of the node's present incarnation. It panics for a dead node.
func (n *Node) Domain() *Domain {
	if n.state == dead {
		panic("sim: the domain of a dead node")
	}
	if n.domain == nil {
		nonce := n.w.rand.Uint64()
		n.domain = &Domain{n: n, w: n.w, nonce: nonce, regions: regions.NewTable(nonce, n.w.rand.Uint64)}
		n.w.domains = append(n.w.domains, n.domain)
	}
	return n.domain
}

// Node returns the node of the domain.
func (d *Domain) Node() *Node { return d.n }

// Caps implements fabric.Domain.
func (d *Domain) Caps() fabric.Caps { return limits }

// Alloc implements fabric.Domain.
func (d *Domain) Alloc(n int, a fabric.Access) (fabric.Region, error) {
	r, err := d.regions.Alloc(n, a)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// die ends the domain with its process. Nothing of the process notices; peers do within fabric.Timeout, and can reach
// the memory until then.
func (d *Domain) die() {
	d.close(func(e *endpoint) {
		e.gone = true
		d.w.After(d.w.upTo(fabric.Timeout), func() { e.other.end(fabric.ErrPeer, fabric.ErrPeer) })
	})
	d.w.After(fabric.Timeout+1, func() { d.regions.Close() })
}

// Close implements fabric.Domain.
func (d *Domain) Close() error {
	d.close(func(e *endpoint) { e.Close() })
	for _, q := range d.queues {
		q.Close()
	}
	if d.n.domain == d {
		d.n.domain = nil
	}
	return d.regions.Close()
}

func (d *Domain) close(end func(e *endpoint)) {
	if d.closed {
		return
	}
	d.closed = true
	for _, l := range d.listeners {
		l.Close()
	}
	for _, e := range slices.Clone(d.endpoints) {
		end(e)
	}
	d.endpoints = nil
}

// A Queue is a fabric.Queue of a node.
type Queue struct {
	*ledger.Queue
	w     *World
	wakes *Thread // the thread that the bell wakes
	bell  bell
}

// Account returns the ledger's queue, for ledger.Of.
func (q *Queue) Account() *ledger.Queue { return q.Queue }

// NewQueue implements fabric.Domain; the result is a *Queue.
func (d *Domain) NewQueue(depth int) (fabric.Queue, error) {
	if d.closed {
		return nil, fabric.ErrClosed
	}
	q := &Queue{w: d.w}
	q.bell.q = q
	var err error
	if q.Queue, err = ledger.NewQueue(depth, &q.bell); err != nil {
		return nil, err
	}
	d.queues = append(d.queues, q)
	return q, nil
}

// Wait implements fabric.Queue. It runs the World.
func (q *Queue) Wait(ctx context.Context, spin int) error {
	return q.w.block(ctx, func() bool { return q.Closed() || q.TakeNotified() || q.Ready() }, func() error {
		if q.Closed() {
			return fabric.ErrClosed
		}
		return nil
	})
}

// block runs the World until done returns true, and then returns the result of result.
func (w *World) block(ctx context.Context, done func() bool, result func() error) error {
	for !done() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !w.Step() {
			return fmt.Errorf("sim: nothing will ever happen: %w", fabric.ErrTimeout)
		}
	}
	return result()
}

// bell wakes the thread that uses a queue.
type bell struct {
	q        *Queue
	notified bool
}

func (b *bell) Wake() {
	if t := b.q.wakes; t != nil {
		t.Wake()
	}
}

func (b *bell) Notify() {
	b.notified = true
	b.Wake()
}

func (b *bell) TakeNotified() bool {
	was := b.notified
	b.notified = false
	return was
}

func (b *bell) Sleep(context.Context, func() bool) { panic("sim: Queue.Wait does not sleep") }

// A Listener is a fabric.Listener of a node.
type Listener struct {
	d      *Domain
	addr   string
	handle func(*Incoming)
	asked  []*Incoming
	closed bool
}

// Listen implements fabric.Domain; the result is a *Listener. An address is any text that is not empty.
func (d *Domain) Listen(addr string) (fabric.Listener, error) {
	switch {
	case d.closed:
		return nil, fabric.ErrClosed
	case addr == "":
		return nil, fmt.Errorf("fabric: listen: the address is empty; sim takes any name")
	case d.w.listeners[addr] != nil:
		return nil, fmt.Errorf("fabric: listen at %q: somebody does already", addr)
	}
	l := &Listener{d: d, addr: addr}
	d.w.listeners[addr] = l
	d.listeners = append(d.listeners, l)
	return l, nil
}

// Handle sets a function that is called, as an event, for each connection that a peer asks for, in place of Accept.
func (l *Listener) Handle(f func(*Incoming)) {
	l.handle = f
	for _, in := range l.asked {
		l.give(in)
	}
	l.asked = nil
}

func (l *Listener) give(in *Incoming) {
	l.d.w.After(0, func() {
		l.d.n.whenRunning(func() {
			if !l.closed {
				l.handle(in)
			}
		})
	})
}

// Addr implements fabric.Listener.
func (l *Listener) Addr() string { return l.addr }

// Accept implements fabric.Listener. It runs the World.
func (l *Listener) Accept(ctx context.Context) (in fabric.Incoming, err error) {
	err = l.d.w.block(ctx, func() bool { return l.closed || len(l.asked) > 0 }, func() error {
		if l.closed {
			return fabric.ErrClosed
		}
		in, l.asked = l.asked[0], l.asked[1:]
		return nil
	})
	return in, err
}

// Close implements fabric.Listener.
func (l *Listener) Close() error {
	if l.closed {
		return nil
	}
	l.closed = true
	delete(l.d.w.listeners, l.addr)
	for _, in := range l.asked {
		in.reply(dialed{err: fabric.ErrPeer})
	}
	return nil
}

// An Incoming is a fabric.Incoming.
type Incoming struct {
	l     *Listener
	from  *Domain
	hello []byte
	o     fabric.EndpointOptions
	over  bool // answered
	reply func(dialed)
}

type dialed struct {
	e      *endpoint
	answer []byte
	err    error
}

// Dial implements fabric.Domain. It runs the World.
func (d *Domain) Dial(ctx context.Context, addr string, hello []byte, o fabric.EndpointOptions) (e fabric.Endpoint, answer []byte, err error) {
	over := false
	d.DialFunc(addr, hello, o, func(e1 fabric.Endpoint, answer1 []byte, err1 error) { over, e, answer, err = true, e1, answer1, err1 })
	blocked := d.w.block(ctx, func() bool { return over }, func() error { return err })
	if blocked != nil && !over {
		return nil, nil, fmt.Errorf("fabric: dial %q: %w", addr, blocked)
	}
	return e, answer, err
}

// DialFunc is Dial without waiting: f is called, as an event, with the outcome. If there is no outcome after ten
// times fabric.Timeout, it is ErrTimeout.
func (d *Domain) DialFunc(addr string, hello []byte, o fabric.EndpointOptions, f func(fabric.Endpoint, []byte, error)) {
	w, over := d.w, false
	outcome := func(r dialed) {
		d.n.whenRunning(func() {
			if over || d.closed {
				if r.e != nil {
					r.e.Close()
				}
				return
			}
			over = true
			if r.err != nil {
				f(nil, nil, fmt.Errorf("fabric: dial %q: %w", addr, r.err))
				return
			}
			f(r.e, r.answer, nil)
		})
	}
	if err := ledger.CheckOptions(o, hello); err != nil {
		w.After(0, func() { outcome(dialed{err: err}) })
		return
	}
	w.After(10*fabric.Timeout, func() { outcome(dialed{err: fabric.ErrTimeout}) })
	hello = append([]byte(nil), hello...)
	w.After(w.Delay(), func() {
		l := w.listeners[addr]
		if l == nil {
			w.After(w.Delay(), func() { outcome(dialed{err: fmt.Errorf("%w: nobody listens there", fabric.ErrPeer)}) })
			return
		}
		if !w.Reaches(d.n, l.d.n) {
			return
		}
		in := &Incoming{l: l, from: d, hello: hello, o: o}
		in.reply = func(r dialed) {
			w.After(w.Delay(), func() {
				if w.Reaches(l.d.n, d.n) {
					outcome(r)
				} else if r.e != nil {
					r.e.Close()
				}
			})
		}
		if l.handle != nil {
			l.give(in)
		} else {
			l.asked = append(l.asked, in)
		}
	})
}

// Hello implements fabric.Incoming.
func (in *Incoming) Hello() []byte { return in.hello }

// Accept implements fabric.Incoming.
func (in *Incoming) Accept(o fabric.EndpointOptions, answer []byte) (fabric.Endpoint, error) {
	if err := ledger.CheckOptions(o, answer); err != nil {
		return nil, err
	}
	if in.over || in.from.closed || in.l.d.closed {
		return nil, fmt.Errorf("fabric: accept: %w: it has given up, or was answered", fabric.ErrPeer)
	}
	in.over = true
	mine, theirs := connect(in.l.d, in.from, in.l.addr, o, in.o)
	in.reply(dialed{e: theirs, answer: append([]byte(nil), answer...)})
	return mine, nil
}

// Reject implements fabric.Incoming.
func (in *Incoming) Reject(reason string) error {
	if !in.over {
		in.over = true
		in.reply(dialed{err: fmt.Errorf("%w: %s", fabric.ErrRefused, reason)})
	}
	return nil
}
