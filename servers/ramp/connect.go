package ramp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"flashdbm/servers/circle"
	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/shm"
	"flashdbm/servers/fabric/tcp"
	"flashdbm/servers/ramp/protocol"
	"flashdbm/servers/wire"
)

// fabrics opens a domain by the scheme of an address. Options.Fabrics has precedence.
var fabrics = map[string]func() (fabric.Domain, error){
	"shm": func() (fabric.Domain, error) { return shm.Open() },
	"tcp": func() (fabric.Domain, error) { return tcp.Open(tcp.Options{}), nil },
}

// A network is the client's use of one fabric.
type network struct {
	scheme string
	domain fabric.Domain
	group  *wire.Group
	land   *landing
	opened bool // by this client, which closes it
}

func (n *network) close() error {
	err := errors.Join(n.group.Close(), n.land.region.Close())
	if n.opened {
		err = errors.Join(err, n.domain.Close())
	}
	return err
}

// networkOf returns the network of an address, and opens it if it is new.
func (c *Client) networkOf(addr string) (*network, string, error) {
	scheme, rest, ok := strings.Cut(addr, ":")
	if !ok || rest == "" {
		return nil, "", fmt.Errorf("ramp: address %q: want scheme:address, as in tcp:10.0.0.1:7400", addr)
	}
	for _, n := range c.nets {
		if n.scheme == scheme {
			return n, rest, nil
		}
	}
	n := &network{scheme: scheme, domain: c.o.Fabrics[scheme]}
	if n.domain == nil {
		open := fabrics[scheme]
		if open == nil {
			return nil, "", fmt.Errorf("ramp: address %q: no fabric is called %q here", addr, scheme)
		}
		var err error
		if n.domain, err = open(); err != nil {
			return nil, "", fmt.Errorf("ramp: fabric %s: %w", scheme, err)
		}
		n.opened = true
	}
	var err error
	if n.group, err = wire.NewGroup(n.domain, 4096); err != nil {
		return nil, "", err
	}
	if n.land, err = newLanding(n.domain, landingPlaces); err != nil {
		n.group.Close()
		return nil, "", fmt.Errorf("ramp: memory for Reads: %w", err)
	}
	c.nets = append(c.nets, n)
	return n, rest, nil
}

// A greeted connection has been made, and its peer has the secret.
type greeted struct {
	net     *network
	conn    wire.Conn
	hello   protocol.Hello
	welcome protocol.Welcome
}

func (c *Client) greet(ctx context.Context, n *network, at string, partition uint32) (*greeted, error) {
	g := &greeted{net: n, hello: protocol.Hello{Partition: partition, Client: c.e.client}}
	rand.Read(g.hello.Nonce[:])
	var answer []byte
	var err error
	if g.conn, answer, err = n.group.Dial(ctx, at, g.hello.Append(nil), c.o.Carrier); err != nil {
		return nil, fmt.Errorf("%w (%s: %w)", ErrUnavailable, at, err)
	}
	err = g.welcome.Parse(answer)
	if err == nil && partition != protocol.AnyPartition && g.welcome.Partition != partition {
		err = fmt.Errorf("%w: partition %d answers in place of partition %d", errProtocol, g.welcome.Partition, partition)
	}
	if err == nil && len(c.o.Secret) > 0 {
		if want := protocol.Prove(c.o.Secret, protocol.ServerSide, &g.hello, &g.welcome); !protocol.ProofEqual(want[:], g.welcome.Proof[:]) {
			err = ErrDenied
		}
	}
	if err == nil && g.welcome.NeedsAuth && len(c.o.Secret) == 0 {
		err = fmt.Errorf("%w: the server wants one, and Options.Secret is empty", ErrDenied)
	}
	if err != nil {
		g.conn.Close()
		return nil, fmt.Errorf("ramp: %s: %w", at, err)
	}
	return g, nil
}

// join gives a partition its connection. Only the driver calls it.
func (c *Client) join(l *link, g *greeted) {
	if l.conn != nil || c.e.closed != nil {
		g.conn.Close()
		return
	}
	g.net.group.Add(g.conn)
	var r reader
	if o, ok := g.conn.(wire.BatchReader); ok && g.net.domain.Caps().OneSided && len(c.e.slots) > 0 && c.o.Carrier == wire.CarrierRing {
		r = o
	}
	if g.welcome.NeedsAuth {
		proof := protocol.Prove(c.o.Secret, protocol.ClientSide, &g.hello, &g.welcome)
		l.waiting = append([]*call{{op: protocol.OpAuth, once: true, size: len(proof), append: func(b []byte) []byte { return append(b, proof[:]...) },
			done: func(*call, protocol.Status, []byte, error) {}}}, l.waiting...)
		c.e.nextID++
		l.waiting[0].id = c.e.nextID
	}
	c.e.attach(l, g.conn, r, g.net.land, &g.welcome)
}

// connectAll connects to all partitions, at the first address that answers, or where that node says.
func (c *Client) connectAll(ctx context.Context, addrs []string) error {
	c.lock.Lock()
	defer c.lock.Unlock()
	var errs []error
	for _, a := range addrs {
		n, at, err := c.networkOf(a)
		if err == nil {
			var g *greeted
			if g, err = c.greet(ctx, n, at, protocol.AnyPartition); err == nil {
				if g.welcome.Replicas {
					g.conn.Close()
					if c.places, err = c.askMap(ctx, n, at); err == nil {
						c.addrs = addrs
						return c.connectReplicas(ctx, g)
					}
					errs = append(errs, err)
					continue
				}
				c.keepOnly(n)
				c.addrs = []string{a}
				c.e.setTable(g.welcome.Seed, g.welcome.Partitions)
				c.join(c.e.links[g.welcome.Partition], g)
				return c.connectRest(ctx, n, at)
			}
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// keepOnly closes the networks of the addresses that did not answer.
func (c *Client) keepOnly(n *network) {
	for _, o := range c.nets {
		if o != n {
			o.close()
		}
	}
	c.nets = []*network{n}
}

func (c *Client) connectRest(ctx context.Context, n *network, at string) error {
	for _, l := range c.e.links {
		if l.conn != nil {
			continue
		}
		g, err := c.greet(ctx, n, at, l.number)
		if err != nil {
			return err
		}
		c.join(l, g)
	}
	return c.awaitAll(ctx, true)
}

// connectReplicas connects to the partitions of a table of several nodes. Some may have no primary for a moment.
func (c *Client) connectReplicas(ctx context.Context, g *greeted) error {
	c.e.replicas = true
	c.e.setTable(g.welcome.Seed, g.welcome.Partitions)
	return c.awaitAll(ctx, false)
}

// awaitAll waits until all partitions answer an EXTENT. They do so once they serve, which takes a second after a
// crash. once: a lost connection is an error.
func (c *Client) awaitAll(ctx context.Context, once bool) error {
	left := len(c.e.links)
	var failure error
	for _, l := range c.e.links {
		body := protocol.AppendExtentRequest(nil, 0)
		c.e.send(l, &call{op: protocol.OpExtent, size: len(body), append: func(b []byte) []byte { return append(b, body...) },
			done: func(_ *call, s protocol.Status, _ []byte, err error) {
				if left--; s == protocol.StatusDenied {
					failure = ErrDenied
				}
			}})
	}
	for polls := 1; left > 0; polls++ {
		c.take()
		if !c.step() {
			runtime.Gosched()
			if polls%tickPolls == 0 {
				time.Sleep(50 * time.Microsecond)
			}
		}
		for _, l := range c.e.links {
			if l.conn == nil && (once || errors.Is(l.lastErr, ErrDenied)) {
				return fmt.Errorf("%w (partition %d: %w)", ErrUnavailable, l.number, l.lastErr)
			}
		}
		if !once {
			c.tick()
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w (%w)", ErrUnavailable, errors.Join(context.Cause(ctx), c.e.why(c.e.links)))
		}
	}
	return failure
}

// Times of connecting.
const (
	dialTimeout = 2 * time.Second
	dialEach    = 500 * time.Millisecond // with several addresses: one of them may be a stopped process
)

// An address is a place where a partition may be served.
type address struct {
	net *network
	at  string
}

// addresses returns where a partition may be served: at the map's addresses for it first, and then at those of all
// known nodes, because the partition may have moved. Only the driver calls it.
func (c *Client) addresses(l *link) (list []address) {
	var names []string
	for _, p := range c.places.Shards {
		if p.Shard == l.number {
			names = slices.Concat(p.Addrs, names)
		} else {
			names = append(names, p.Addrs...)
		}
	}
	seen := map[string]bool{}
	for _, a := range append(names, c.addrs...) {
		if seen[a] {
			continue
		}
		seen[a] = true
		if n, at, err := c.networkOf(a); err == nil {
			list = append(list, address{n, at})
		} else {
			l.lastErr = err
		}
	}
	return list
}

// redial connects to a partition again. It runs in a goroutine of its own.
func (c *Client) redial(l *link, list []address) {
	var g *greeted
	err := l.lastErr
	for _, a := range list {
		limit := dialTimeout
		if len(list) > 1 {
			limit = dialEach
		}
		ctx, cancel := context.WithTimeout(c.ctx, limit)
		g, err = c.greet(ctx, a.net, a.at, l.number)
		cancel()
		if err == nil && (g.welcome.Seed != c.e.seed || int(g.welcome.Partitions) != len(c.e.links)) {
			g.conn.Close()
			err = fmt.Errorf("%w: another table answers", errProtocol)
		}
		if err == nil {
			break
		}
		g = nil
	}
	var places *circle.Map
	if g == nil && c.e.replicas { // the partition may have moved to an unknown node
		for _, a := range list {
			ctx, cancel := context.WithTimeout(c.ctx, dialEach)
			m, merr := c.askMap(ctx, a.net, a.at)
			if cancel(); merr == nil && (places == nil || m.Version > places.Version) {
				places = &m
			}
		}
	}
	c.do(func() {
		l.dialing = false
		if places != nil && places.Version > c.places.Version {
			c.places = *places
		}
		if g == nil {
			l.lastErr, l.dialAfter = err, c.e.look()+redialAfter
			return
		}
		c.join(l, g)
	})
}

// askMap asks a node for the map of nodes and partitions, over a separate connection.
func (c *Client) askMap(ctx context.Context, n *network, at string) (m circle.Map, err error) {
	group, err := wire.NewGroup(n.domain, 64)
	if err != nil {
		return m, err
	}
	defer group.Close()
	x := *n
	x.group = group
	g, err := c.greet(ctx, &x, at, protocol.AnyPartition)
	if err != nil {
		return m, err
	}
	defer g.conn.Close()
	group.Add(g.conn)
	send := func(op protocol.Op, body []byte) error {
		b, err := g.conn.Begin(len(body))
		if err == nil {
			g.conn.End(&wire.Header{Op: uint8(op)}, append(b, body...))
		}
		return err
	}
	if g.welcome.NeedsAuth {
		proof := protocol.Prove(c.o.Secret, protocol.ClientSide, &g.hello, &g.welcome)
		err = send(protocol.OpAuth, proof[:])
	}
	if err == nil {
		err = send(protocol.OpMap, nil)
	}
	for err == nil {
		group.Step()
		if msg, ok := g.conn.Receive(); ok && protocol.Op(msg.Op) == protocol.OpMap {
			if err = m.Parse(msg.Body); err == nil {
				return m, nil
			}
		} else if !ok {
			group.Flush()
			time.Sleep(100 * time.Microsecond)
		}
		if err = errors.Join(err, g.conn.Err(), ctx.Err()); err != nil {
			err = fmt.Errorf("%w (%s: %w)", ErrUnavailable, at, err)
		}
	}
	return m, err
}
