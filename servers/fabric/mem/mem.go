// Package mem is a fabric inside one process, for tests and for servers and clients that share a process. Operations
// are complete when Post returns, except Sends that wait for a Recv. Copies store and load whole words while others
// access the memory, as processors do for shm and network cards for verbs.
package mem

import (
	"context"
	"fmt"
	"sync"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/ledger"
	"flashdbm/servers/fabric/regions"
)

// limits are those of a common network card, so that programs that work here work there.
var limits = fabric.Caps{OneSided: true, MaxInline: 64, MaxSend: 64 << 10}

// A Network connects the domains that were opened in it.
type Network struct {
	mu        sync.Mutex // guards listeners; no other lock is taken while it is held
	listeners map[string]*listener
}

// NewNetwork returns a network without domains.
func NewNetwork() *Network { return &Network{listeners: map[string]*listener{}} }

// A Domain is a fabric.Domain. It stands for a process.
type Domain struct {
	net     *Network
	nonce   uint64
	regions *regions.Table
	open    ledger.Children
}

// Open returns a new domain, which stands for a new process.
func (n *Network) Open() *Domain {
	nonce := regions.Random()
	return &Domain{net: n, nonce: nonce, regions: regions.NewTable(nonce, regions.Random)}
}

// Caps implements fabric.Domain.
func (d *Domain) Caps() fabric.Caps { return limits }

// Alloc implements fabric.Domain.
func (d *Domain) Alloc(n int, a fabric.Access) (fabric.Region, error) {
	r, err := d.regions.Alloc(n, a)
	if err != nil {
		return nil, err // not a nil *Region
	}
	return r, nil
}

// NewQueue implements fabric.Domain.
func (d *Domain) NewQueue(depth int) (fabric.Queue, error) {
	q, err := ledger.NewQueue(depth, nil)
	if err != nil {
		return nil, err
	}
	if err := d.open.Keep(q); err != nil {
		return nil, err
	}
	return q, nil
}

// Close implements fabric.Domain. It also stands for the end of a process.
func (d *Domain) Close() error {
	d.open.Close()
	return d.regions.Close()
}

type listener struct {
	d    *Domain
	addr string
	// asked holds the connections that wait for Accept. A Dial that finds it full waits until its context ends.
	asked chan *incoming
	ended chan struct{}
	once  sync.Once
}

// Listen implements fabric.Domain. An address is any text that is not empty.
func (d *Domain) Listen(addr string) (fabric.Listener, error) {
	if addr == "" {
		return nil, fmt.Errorf("fabric: listen: the address is empty; mem takes any name")
	}
	l := &listener{d: d, addr: addr, asked: make(chan *incoming, 16), ended: make(chan struct{})}
	d.net.mu.Lock()
	taken := d.net.listeners[addr] != nil
	if !taken {
		d.net.listeners[addr] = l
	}
	d.net.mu.Unlock()
	if taken {
		return nil, fmt.Errorf("fabric: listen at %q: somebody does already", addr)
	}
	if err := d.open.Keep(l); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *listener) Addr() string { return l.addr }

func (l *listener) Close() error {
	l.once.Do(func() {
		l.d.net.mu.Lock()
		delete(l.d.net.listeners, l.addr)
		l.d.net.mu.Unlock()
		close(l.ended)
		l.d.open.Forget(l)
	})
	return nil
}

func (l *listener) Accept(ctx context.Context) (fabric.Incoming, error) {
	select {
	case <-l.ended:
		return nil, fabric.ErrClosed
	default:
	}
	select {
	case in := <-l.asked:
		return in, nil
	case <-l.ended:
		return nil, fabric.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// incoming is a connection that a peer has asked for.
type incoming struct {
	l     *listener
	from  *Domain
	hello []byte
	o     fabric.EndpointOptions

	mu     sync.Mutex // guards the fields below
	over   bool       // answered, or abandoned by Dial
	result chan dialed
}

type dialed struct {
	e      *endpoint
	answer []byte
	err    error
}

// Dial implements fabric.Domain.
func (d *Domain) Dial(ctx context.Context, addr string, hello []byte, o fabric.EndpointOptions) (fabric.Endpoint, []byte, error) {
	if err := ledger.CheckOptions(o, hello); err != nil {
		return nil, nil, err
	}
	d.net.mu.Lock()
	l := d.net.listeners[addr]
	d.net.mu.Unlock()
	if l == nil {
		return nil, nil, fmt.Errorf("fabric: dial %q: %w: nobody listens there", addr, fabric.ErrPeer)
	}
	in := &incoming{l: l, from: d, hello: append([]byte(nil), hello...), o: o, result: make(chan dialed, 1)}
	select {
	case l.asked <- in:
	case <-l.ended:
		return nil, nil, fmt.Errorf("fabric: dial %q: %w", addr, fabric.ErrPeer)
	case <-ctx.Done():
		return nil, nil, fmt.Errorf("fabric: dial %q: %w", addr, ctx.Err())
	}
	var r dialed
	select {
	case r = <-in.result:
	case <-l.ended:
		r = in.giveUp(fabric.ErrPeer)
	case <-ctx.Done():
		r = in.giveUp(ctx.Err())
	}
	if r.err != nil {
		return nil, nil, fmt.Errorf("fabric: dial %q: %w", addr, r.err)
	}
	if err := d.open.Keep(r.e); err != nil {
		return nil, nil, err
	}
	return r.e, r.answer, nil
}

// giveUp ends the wait for an answer, unless the answer has come: then giveUp returns it.
func (in *incoming) giveUp(why error) dialed {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.over {
		return <-in.result
	}
	in.over = true
	return dialed{err: why}
}

func (in *incoming) Hello() []byte { return in.hello }

func (in *incoming) Accept(o fabric.EndpointOptions, answer []byte) (fabric.Endpoint, error) {
	if err := ledger.CheckOptions(o, answer); err != nil {
		return nil, err
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.over {
		return nil, fmt.Errorf("fabric: accept: %w: it has given up, or was answered", fabric.ErrPeer)
	}
	mine, theirs := connect(in.l.d, in.from, in.l.addr, o, in.o)
	if err := in.l.d.open.Keep(mine); err != nil {
		return nil, err
	}
	in.over = true
	in.result <- dialed{e: theirs, answer: append([]byte(nil), answer...)}
	return mine, nil
}

func (in *incoming) Reject(reason string) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.over {
		in.over = true
		in.result <- dialed{err: fmt.Errorf("%w: %s", fabric.ErrRefused, reason)}
	}
	return nil
}
