package ramp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/shm"
	"flashdbm/servers/fabric/tcp"
	"flashdbm/servers/ramp/protocol"
	"flashdbm/servers/wire"
)

// fabrics open a domain by the scheme of an address. Options.Fabrics comes first.
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
	opened bool // the domain is the client's
}

func (n *network) close() error {
	err := errors.Join(n.group.Close(), n.land.region.Close())
	if n.opened {
		err = errors.Join(err, n.domain.Close())
	}
	return err
}

// networkOf opens the network of an address.
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

// A greeted connection was made, and its peer has the secret.
type greeted struct {
	net     *network
	conn    wire.Conn
	hello   protocol.Hello
	welcome protocol.Welcome
}

func (c *Client) greet(ctx context.Context, n *network, at string, partition uint32, number uint16) (*greeted, error) {
	g := &greeted{net: n, hello: protocol.Hello{Partition: partition, Number: number, Client: c.e.client}}
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
	if err == nil && c.o.Secret != nil {
		if want := protocol.Prove(c.o.Secret, protocol.ServerSide, &g.hello, &g.welcome); !protocol.ProofEqual(want[:], g.welcome.Proof[:]) {
			err = ErrDenied
		}
	}
	if err == nil && g.welcome.NeedsAuth && c.o.Secret == nil {
		err = fmt.Errorf("%w: the server wants one, and Options.Secret is nil", ErrDenied)
	}
	if err != nil {
		g.conn.Close()
		return nil, fmt.Errorf("ramp: %s: %w", at, err)
	}
	return g, nil
}

// join gives a partition its connection. The driver calls it.
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
	c.e.clock.Renumber(g.welcome.Number)
	c.e.attach(l, g.conn, r, g.net.land, &g.welcome)
}

// connectAll connects to all partitions at the first address that answers.
func (c *Client) connectAll(ctx context.Context, addrs []string) error {
	c.lock.Lock()
	defer c.lock.Unlock()
	var errs []error
	for _, a := range addrs {
		n, at, err := c.networkOf(a)
		if err == nil {
			var g *greeted
			if g, err = c.greet(ctx, n, at, protocol.AnyPartition, protocol.NoNumber); err == nil {
				c.keepOnly(n)
				c.at = at
				c.e.setTable(g.welcome.Seed, g.welcome.Partitions)
				c.join(c.e.links[g.welcome.Partition], g)
				return c.connectRest(ctx, n, at, g.welcome.Number)
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

func (c *Client) connectRest(ctx context.Context, n *network, at string, number uint16) error {
	for _, l := range c.e.links {
		if l.conn != nil {
			continue
		}
		g, err := c.greet(ctx, n, at, l.number, number)
		if err != nil {
			return err
		}
		c.join(l, g)
	}
	// An EXTENT is answered once the partition serves: behind a crash that takes a second.
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
		if !c.step() {
			runtime.Gosched()
			if polls%tickPolls == 0 {
				time.Sleep(50 * time.Microsecond)
			}
		}
		for _, l := range c.e.links {
			if l.conn == nil {
				return fmt.Errorf("%w (partition %d: %w)", ErrUnavailable, l.number, l.lastErr)
			}
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w (%w)", ErrUnavailable, context.Cause(ctx))
		}
	}
	return failure
}

const dialTimeout = 2 * time.Second

// redial connects to a partition again, from a goroutine of its own.
func (c *Client) redial(l *link) {
	ctx, cancel := context.WithTimeout(c.ctx, dialTimeout)
	defer cancel()
	number := make(chan uint16, 1)
	c.do(func() { number <- c.e.clock.Number() })
	n := c.nets[0]
	g, err := c.greet(ctx, n, c.at, l.number, <-number)
	if err == nil && (g.welcome.Seed != c.e.seed || int(g.welcome.Partitions) != len(c.e.links)) {
		g.conn.Close()
		err = fmt.Errorf("%w: another table answers", errProtocol)
	}
	c.do(func() {
		l.dialing = false
		if err != nil {
			l.lastErr, l.dialAfter = err, c.e.look()+redialAfter
			return
		}
		c.join(l, g)
	})
}
