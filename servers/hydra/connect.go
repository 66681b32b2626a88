package hydra

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"flashdbm/servers/fabric"
	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/wire"
)

// networkOf returns the network of an address, and the address within it. It opens a new network at once; the engine
// uses it from the next task on.
func (c *Client) networkOf(addr string) (*network, string, error) {
	scheme, rest, ok := strings.Cut(addr, ":")
	if !ok || rest == "" {
		return nil, "", fmt.Errorf("hydra: address %q: want scheme:address, as in tcp:10.0.0.1:7400", addr)
	}
	c.netMu.Lock()
	defer c.netMu.Unlock()
	if n := c.nets[scheme]; n != nil {
		return n, rest, nil
	}
	d := c.o.Fabrics[scheme]
	if d == nil {
		open := fabrics[scheme]
		if open == nil {
			return nil, "", fmt.Errorf("hydra: address %q: no fabric is called %q here", addr, scheme)
		}
		var err error
		if d, err = open(); err != nil {
			return nil, "", fmt.Errorf("hydra: fabric %s: %w", scheme, err)
		}
		c.opened = append(c.opened, d)
	}
	n, err := newNetwork(scheme, d)
	if err != nil {
		return nil, "", err
	}
	c.nets[scheme] = n
	return n, rest, nil
}

func newNetwork(scheme string, d fabric.Domain) (*network, error) {
	g, err := wire.NewGroup(d, 4096)
	if err != nil {
		return nil, err
	}
	land, err := d.Alloc(readPlaces*readSize, 0)
	if err != nil {
		g.Close()
		return nil, fmt.Errorf("hydra: memory for Reads: %w", err)
	}
	n := &network{scheme: scheme, domain: d, group: g, land: land, under: make([]*call, readPlaces)}
	for i := range uint64(readPlaces) {
		n.places = append(n.places, i)
	}
	return n, nil
}

// A greeted connection has been made, and its peer has the cluster's secret.
type greeted struct {
	net     *network
	conn    wire.Conn
	hello   protocol.Hello
	welcome protocol.Welcome
}

// greet connects to a shard at an address. next is the client's next number, read before.
func (c *Client) greet(ctx context.Context, addr string, shard uint32, next uint64) (*greeted, error) {
	n, at, err := c.networkOf(addr)
	if err != nil {
		return nil, err
	}
	g := &greeted{net: n, hello: protocol.Hello{Shard: shard, Client: c.id, Next: next}}
	rand.Read(g.hello.Nonce[:])
	var answer []byte
	g.conn, answer, err = n.group.Dial(ctx, at, g.hello.Append(nil), c.o.Carrier)
	if err != nil {
		return nil, fmt.Errorf("%w (%s: %w)", ErrUnavailable, addr, err)
	}
	err = g.welcome.Parse(answer)
	if err == nil && shard != protocol.AnyShard && g.welcome.Shard != shard {
		err = fmt.Errorf("%w: shard %d answers in place of shard %d", protocol.ErrMalformed, g.welcome.Shard, shard)
	}
	if err == nil && len(c.o.Secret) > 0 {
		if want := protocol.Prove(c.o.Secret, protocol.ServerSide, &g.hello, &g.welcome); !protocol.ProofEqual(want[:], g.welcome.Proof[:]) {
			err = ErrDenied
		}
	}
	if err == nil && g.welcome.NeedsAuth && len(c.o.Secret) == 0 {
		err = fmt.Errorf("%w: the cluster wants one, and Options.Secret is empty", ErrDenied)
	}
	if err != nil {
		g.conn.Close()
		return nil, fmt.Errorf("hydra: %s: %w", addr, err)
	}
	return g, nil
}

// attach gives a shard its connection.
func (e *engine) attach(s *shard, g *greeted, secret []byte) {
	if e.closed != nil || s.conn != nil {
		g.conn.Close()
		return
	}
	if !containsNetwork(e.fabric, g.net) {
		e.fabric = append(e.fabric, g.net)
	}
	g.net.group.Add(g.conn)
	s.net, s.conn, s.lastErr = g.net, g.conn, nil
	s.sided = nil
	if o, ok := g.conn.(wire.OneSided); ok && g.net.domain.Caps().OneSided {
		s.sided = o
	}
	if g.welcome.Term > s.term {
		s.term, s.tenure = g.welcome.Term, 0
	}
	s.show()
	clear(s.extents)
	if g.welcome.NeedsAuth {
		proof := protocol.Prove(secret, protocol.ClientSide, &g.hello, &g.welcome)
		e.send(&call{op: protocol.OpAuth, shard: s, slot: -1, body: proof[:], internal: func(e *engine, _ *call, m wire.Message) {
			if st := protocol.Status(m.Status); st == protocol.StatusDenied && s.conn != nil {
				e.lost(s, ErrDenied)
			}
		}})
	}
}

func containsNetwork(list []*network, n *network) bool {
	for _, x := range list {
		if x == n {
			return true
		}
	}
	return false
}

// silentAfter is how long a shard may owe an answer before its connection is given up, if an address of another node
// is known: a stopped process does not end its connections. The calls under way are then sent again, to the node that
// serves the shard by then.
const silentAfter = int64(2 * time.Second)

var errSilent = fmt.Errorf("hydra: no answer for %v", time.Duration(silentAfter))

func (e *engine) silent(s *shard) bool {
	if s.conn == nil || e.now-s.heard <= silentAfter || !e.elsewhere(s) {
		return false
	}
	for _, c := range e.slots {
		if c != nil && c.conn == s.conn && c.op != protocol.OpBatch && e.now-c.posted > silentAfter {
			return true
		}
	}
	return false
}

// elsewhere reports whether the client knows another address at which the shard may be served, or at which it can
// ask who serves it, than the only one that the map has for the shard: a map made during a failover names the new
// primary alone.
func (e *engine) elsewhere(s *shard) bool {
	other := func(a string) bool { return a != s.addrs[0] }
	return len(s.addrs) != 1 || slices.ContainsFunc(e.first, other) ||
		slices.ContainsFunc(e.shards, func(x *shard) bool { return slices.ContainsFunc(x.addrs, other) })
}

// Times of connecting.
const (
	dialTimeout = 2 * time.Second
	dialEach    = 500 * time.Millisecond
	redialAfter = int64(50 * time.Millisecond)
)

// toDial returns the shards to which a connection has to be made, and marks them as being dialled.
func (e *engine) toDial() (list []*shard) {
	for _, s := range e.shards {
		if s.conn == nil && !s.dialing && e.now >= s.dialAfter && len(s.addrs) > 0 {
			s.dialing = true
			list = append(list, s)
		}
	}
	return list
}

// addrsFor returns the addresses at which the shard may be served: the shard's own addresses, where each attempt
// begins with another one, and then those of all known nodes, because the shard may have moved.
func (e *engine) addrsFor(s *shard) (list []string) {
	for i := range s.addrs {
		list = append(list, s.addrs[(i+s.dials)%len(s.addrs)])
	}
	s.dials++
	for _, x := range e.shards {
		list = append(list, x.addrs...)
	}
	list = append(list, e.first...)
	seen := map[string]bool{}
	return slices.DeleteFunc(list, func(a string) bool {
		was := seen[a]
		seen[a] = true
		return was
	})
}

// connect dials a shard at one of its addresses.
func (c *Client) connect(s *shard, addrs []string, next uint64) {
	var g *greeted
	var errs []error
	limit := dialTimeout
	if len(addrs) > 1 {
		limit = dialEach // one of them may be a stopped process
	}
	for _, a := range addrs {
		ctx, cancel := context.WithTimeout(c.ctx, limit)
		var err error
		g, err = c.greet(ctx, a, s.id, next)
		cancel()
		if err == nil {
			break
		}
		errs = append(errs, err)
	}
	c.do(func(e *engine) {
		s.dialing = false
		if g == nil {
			s.lastErr, s.dialAfter = errors.Join(errs...), e.look()+redialAfter
			e.stale = true // the shard may have moved
			if !e.guided && !e.connected() {
				e.guided = true
				go c.askTheWay(addrs)
			}
			return
		}
		e.attach(s, g, c.o.Secret)
	})
}

func (e *engine) connected() bool {
	return slices.ContainsFunc(e.shards, func(s *shard) bool { return s.conn != nil })
}

// askTheWay asks any node for the map when no shard is connected: known nodes that no longer serve a shard still
// know which nodes do.
func (c *Client) askTheWay(addrs []string) {
	var g *greeted
	for _, a := range addrs {
		ctx, cancel := context.WithTimeout(c.ctx, dialEach)
		var err error
		g, err = c.greet(ctx, a, protocol.AnyShard, 1)
		cancel()
		if err == nil {
			break
		}
	}
	c.do(func(e *engine) {
		if g == nil || e.closed != nil {
			e.guided = false
			if g != nil {
				g.conn.Close()
			}
			return
		}
		guide := &shard{id: protocol.AnyShard, extents: map[uint32]*extent{}}
		e.shards = append(e.shards, guide)
		e.attach(guide, g, c.o.Secret)
		e.follow(guide)
	})
}

// follow asks a connected node for the map. After the answer its connection is treated as lost, like any other: the
// engine may have sent its own request for the map over it, because it was the first shard with a connection, and
// sends no other one while that request is under way.
func (e *engine) follow(guide *shard) {
	e.start(&call{op: protocol.OpMap, shard: guide, body: []byte{}, internal: func(e *engine, _ *call, m wire.Message) {
		e.guided = false
		var rest []*shard // a new list: a caller may be iterating over the old one
		for _, s := range e.shards {
			if s != guide {
				rest = append(rest, s)
			}
		}
		e.shards = rest
		if guide.conn != nil {
			e.lost(guide, ErrUnavailable)
		}
		e.gotMap(m)
	}})
}

// bootstrap asks the first shard that answers at one of the addresses for the map.
func (c *Client) bootstrap(ctx context.Context, addrs []string) error {
	var errs []error
	c.e.first = addrs
	for _, a := range addrs {
		g, err := c.greet(ctx, a, protocol.AnyShard, 1)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		s := &shard{id: g.welcome.Shard, addrs: []string{a}, extents: map[uint32]*extent{}}
		c.e.shards = []*shard{s}
		c.e.attach(s, g, c.o.Secret)
		c.e.askMap()
		if err := c.drivePlain(ctx, func() bool { return c.e.circle != nil || s.conn == nil || !c.e.asking }); err != nil {
			return err
		}
		if c.e.circle != nil {
			if s.lastErr != nil {
				return s.lastErr
			}
			if g.welcome.Term == 0 && s.conn != nil {
				c.e.lost(s, ErrUnavailable) // the node knows the map but does not serve the shard
			}
			return nil
		}
		errs = append(errs, fmt.Errorf("hydra: %s: no map: %w", a, errors.Join(s.lastErr, ErrUnavailable)))
		c.e.shards = nil
		if s.conn != nil {
			s.conn.Close()
		}
	}
	return errors.Join(errs...)
}

func randomID() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return binary.NativeEndian.Uint64(b[:]) | 1
}
