package tcp

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/ledger"
	"flashdbm/servers/fabric/regions"
)

var limits = fabric.Caps{OneSided: false, MaxInline: 64, MaxSend: 64 << 10}

// Options are how a domain connects.
type Options struct {
	// TLS, if it is there, is used by both Dial and Listen: certificates of one's own, and whom to believe. Older versions than 1.3 are
	// refused whatever it says.
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

type listener struct {
	d     *Domain
	l     net.Listener
	asked chan *incoming // connections that nobody has accepted; who finds it full is kept waiting
	ended chan struct{}
	once  sync.Once
}

// Listen implements fabric.Domain. An address is host:port, as for net.Listen; port 0 is a free one, which Addr tells.
func (d *Domain) Listen(addr string) (fabric.Listener, error) {
	if addr == "" {
		return nil, errors.New("fabric: listen: the address is empty; tcp takes host:port")
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("fabric: %w", err)
	}
	own := &listener{d: d, l: l, asked: make(chan *incoming), ended: make(chan struct{})}
	if err := d.open.Keep(own); err != nil {
		return nil, err
	}
	go own.run()
	return own, nil
}

// maxGreetings is how many peers a listener hears out at a time. The others wait in the socket's queue.
const maxGreetings = 256

func (l *listener) run() {
	slots := make(chan bool, maxGreetings)
	for {
		conn, err := l.l.Accept()
		if err != nil {
			select {
			case <-l.ended:
				return
			case <-time.After(10 * time.Millisecond): // out of descriptors, for example
				continue
			}
		}
		slots <- true
		go func() {
			defer func() { <-slots }()
			l.hear(conn)
		}()
	}
}

func (l *listener) hear(conn net.Conn) {
	addr := conn.RemoteAddr().String()
	prepare(conn)
	if l.d.tls != nil {
		conn = tls.Server(conn, l.d.tls)
	}
	conn.SetDeadline(time.Now().Add(greetingTimeout)) // of the TLS handshake too
	g, err := readGreeting(conn)
	if err != nil {
		conn.Close()
		return
	}
	conn.SetDeadline(time.Time{})
	select {
	case l.asked <- &incoming{l: l, conn: conn, addr: addr, g: g}:
	case <-l.ended:
		conn.Close()
	}
}

func (l *listener) Addr() string { return l.l.Addr().String() }

func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.ended)
		l.l.Close()
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

type incoming struct {
	l    *listener
	conn net.Conn
	addr string
	g    greeting

	mu   sync.Mutex // guards over
	over bool       // answered
}

func (in *incoming) Hello() []byte { return in.g.text }

func (in *incoming) answered() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	was := in.over
	in.over = true
	return was
}

func (in *incoming) Accept(o fabric.EndpointOptions, answer []byte) (fabric.Endpoint, error) {
	if err := ledger.CheckOptions(o, answer); err != nil {
		return nil, err
	}
	if in.answered() {
		return nil, fmt.Errorf("fabric: accept: %w: it was answered", fabric.ErrPeer)
	}
	in.conn.SetDeadline(time.Now().Add(greetingTimeout))
	if err := writeGreeting(in.conn, 0, in.l.d.nonce, depth(o), answer); err != nil {
		in.conn.Close()
		return nil, fmt.Errorf("fabric: accept: %w: it has given up", fabric.ErrPeer)
	}
	in.conn.SetDeadline(time.Time{})
	e, err := newEndpoint(in.l.d, in.conn, in.g, in.addr, o)
	if err != nil {
		return nil, err
	}
	return e, nil
}

func (in *incoming) Reject(reason string) error {
	if in.answered() {
		return nil
	}
	in.conn.SetDeadline(time.Now().Add(greetingTimeout))
	writeGreeting(in.conn, 1, in.l.d.nonce, 0, []byte(reason)[:min(len(reason), fabric.MaxHello)])
	return in.conn.Close()
}

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

func (d *Domain) dial(ctx context.Context, addr string, hello []byte, o fabric.EndpointOptions) (e *endpoint, answer []byte, err error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", fabric.ErrPeer, err)
	}
	raw := conn
	defer func() {
		if err != nil {
			raw.Close()
		}
	}()
	prepare(conn)
	stop := context.AfterFunc(ctx, func() { raw.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if d.tls != nil {
		c := d.tls.Clone()
		if c.ServerName == "" {
			if c.ServerName, _, err = net.SplitHostPort(addr); err != nil {
				return nil, nil, err
			}
		}
		conn = tls.Client(conn, c)
	}
	if err := writeGreeting(conn, 0, d.nonce, depth(o), hello); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", fabric.ErrPeer, err)
	}
	g, err := readGreeting(conn)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("%w: %w", fabric.ErrPeer, err)
	case g.rejected:
		return nil, nil, fmt.Errorf("%w: %s", fabric.ErrRefused, g.text)
	case !stop():
		return nil, nil, ctx.Err()
	}
	e, err = newEndpoint(d, conn, g, addr, o)
	return e, g.text, err
}

// greetingTimeout is how long a peer may take for its greeting, and for the handshake of TLS before it.
const greetingTimeout = 5 * time.Second

const (
	magic   = "flashdbm"
	version = 1
	// maxDepth bounds what a peer may have under way, and so what this end keeps of it: 24 bytes for an operation.
	maxDepth = 1 << 16
)

func depth(o fabric.EndpointOptions) int {
	if o.Depth == 0 {
		return ledger.DefaultDepth
	}
	return min(o.Depth, maxDepth)
}

// A greeting is the first that an end hears of its peer.
type greeting struct {
	rejected bool
	nonce    uint64
	depth    int
	text     []byte
}

func writeGreeting(conn io.Writer, rejected byte, nonce uint64, depth int, text []byte) error {
	b := append([]byte(magic), version, rejected)
	b = binary.LittleEndian.AppendUint64(b, nonce)
	b = binary.LittleEndian.AppendUint32(b, uint32(depth))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(text)))
	_, err := conn.Write(append(b, text...))
	return err
}

func readGreeting(conn io.Reader) (g greeting, err error) {
	var head [len(magic) + 1 + 1 + 8 + 4 + 2]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return g, err
	}
	b := head[len(magic):]
	if string(head[:len(magic)]) != magic {
		return g, errors.New("fabric: the peer is no flashdbm")
	}
	if b[0] != version {
		return g, fmt.Errorf("fabric: the peer speaks version %d of tcp, this process %d", b[0], version)
	}
	g.rejected = b[1] != 0
	g.nonce = binary.LittleEndian.Uint64(b[2:])
	g.depth = int(binary.LittleEndian.Uint32(b[10:]))
	n := binary.LittleEndian.Uint16(b[14:])
	if g.depth > maxDepth || n > fabric.MaxHello {
		return g, errors.New("fabric: a greeting that makes no sense")
	}
	g.text = make([]byte, n)
	_, err = io.ReadFull(conn, g.text)
	return g, err
}
