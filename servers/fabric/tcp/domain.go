package tcp

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/greeting"
	"flashdbm/servers/fabric/ledger"
	"flashdbm/servers/fabric/regions"
)

var limits = fabric.Caps{OneSided: false, MaxInline: 64, MaxSend: 64 << 10}

// Options say how a domain connects.
type Options struct {
	// TLS, unless nil, is used by Dial and Listen: it has this process's certificates and the trusted roots. Versions
	// below 1.3 are refused in any case.
	TLS *tls.Config
}

// A Domain is a fabric.Domain.
type Domain struct {
	tls     *tls.Config
	nonce   uint64
	regions *regions.Table
	open    ledger.Children
}

// Open returns a domain of this process.
func Open(o Options) *Domain {
	nonce := regions.Random()
	d := &Domain{nonce: nonce, regions: regions.NewTable(nonce, regions.Random)}
	if o.TLS != nil {
		d.tls = o.TLS.Clone()
		d.tls.MinVersion = tls.VersionTLS13
	}
	return d
}

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

// Close implements fabric.Domain.
func (d *Domain) Close() error {
	d.open.Close()
	return d.regions.Close()
}

var protocol = greeting.Protocol{Name: "tcp", Magic: "flashdbm", Version: 1}

type listener struct {
	d *Domain
	*greeting.Listener
}

// Listen implements fabric.Domain. An address is host:port, as for net.Listen; port 0 chooses a free port, which Addr
// returns.
func (d *Domain) Listen(addr string) (fabric.Listener, error) {
	var secure func(net.Conn) net.Conn
	if d.tls != nil {
		secure = func(conn net.Conn) net.Conn { return tls.Server(conn, d.tls) }
	}
	l, err := protocol.Listen(addr, secure)
	if err != nil {
		return nil, err
	}
	own := &listener{d, l}
	if err := d.open.Keep(own); err != nil {
		return nil, err
	}
	return own, nil
}

func (l *listener) Close() error {
	l.d.open.Forget(l)
	return l.Listener.Close()
}

func (l *listener) Accept(ctx context.Context) (fabric.Incoming, error) {
	peer, err := l.Listener.Accept(ctx)
	if err != nil {
		return nil, err
	}
	return &incoming{l.d, peer}, nil
}

type incoming struct {
	d *Domain
	*greeting.Peer
}

func (in *incoming) Hello() []byte { return in.Greeting.Text }

func (in *incoming) Accept(o fabric.EndpointOptions, answer []byte) (fabric.Endpoint, error) {
	if err := ledger.CheckOptions(o, answer); err != nil {
		return nil, err
	}
	if err := in.Answer(greeting.Greeting{Nonce: in.d.nonce, Depth: greeting.Depth(o), Text: answer}); err != nil {
		return nil, err
	}
	e, err := newEndpoint(in.d, in.Conn, in.Greeting, in.Addr, o)
	if err != nil {
		return nil, err
	}
	return e, nil
}

func (in *incoming) Reject(reason string) error { return in.Peer.Reject(in.d.nonce, reason) }

// Dial implements fabric.Domain.
func (d *Domain) Dial(ctx context.Context, addr string, hello []byte, o fabric.EndpointOptions) (fabric.Endpoint, []byte, error) {
	if err := ledger.CheckOptions(o, hello); err != nil {
		return nil, nil, err
	}
	e, answer, err := d.dial(ctx, addr, hello, o)
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, nil, fmt.Errorf("fabric: dial %q: %w", addr, err)
	}
	return e, answer, nil
}

func (d *Domain) dial(ctx context.Context, addr string, hello []byte, o fabric.EndpointOptions) (*endpoint, []byte, error) {
	var secure func(net.Conn) (net.Conn, error)
	if d.tls != nil {
		secure = func(conn net.Conn) (net.Conn, error) {
			c := d.tls.Clone()
			if c.ServerName == "" {
				host, _, err := net.SplitHostPort(addr)
				if err != nil {
					return nil, err
				}
				c.ServerName = host
			}
			return tls.Client(conn, c), nil
		}
	}
	conn, theirs, finish, err := protocol.Dial(ctx, addr, greeting.Greeting{Nonce: d.nonce, Depth: greeting.Depth(o), Text: hello}, secure)
	if err != nil {
		return nil, nil, err
	}
	if !finish() {
		conn.Close()
		return nil, nil, ctx.Err()
	}
	e, err := newEndpoint(d, conn, theirs, addr, o)
	return e, theirs.Text, err
}
