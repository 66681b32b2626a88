package shm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/ledger"
)

type listener struct {
	d     *Domain
	addr  string
	l     *net.UnixListener
	asked chan *incoming // connections that wait for Accept; unbuffered, so a greeting goroutine waits until its connection is accepted
	ended chan struct{}
	once  sync.Once
}

// maxGreetings is the number of peers whose greetings a listener reads, or that wait for Accept, at a time. Further
// peers wait in the socket's queue.
const maxGreetings = 64

// Listen implements fabric.Domain. An address is the path of a socket, at most 107 bytes long. Listen removes a
// socket that a dead process has left at the path.
func (d *Domain) Listen(addr string) (fabric.Listener, error) {
	if addr == "" {
		return nil, errors.New("fabric: listen: the address is empty; shm takes the path of a socket")
	}
	at := &net.UnixAddr{Name: addr, Net: "unixpacket"}
	l, err := net.ListenUnix("unixpacket", at)
	if errors.Is(err, unix.EADDRINUSE) {
		conn, dead := net.DialUnix("unixpacket", nil, at)
		switch {
		case dead == nil:
			conn.Close()
		case errors.Is(dead, unix.ECONNREFUSED) && isSocket(addr):
			os.Remove(addr)
			l, err = net.ListenUnix("unixpacket", at)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("fabric: %w", err)
	}
	if err := os.Chmod(addr, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("fabric: listen: %w", err)
	}
	own := &listener{d: d, addr: addr, l: l, asked: make(chan *incoming), ended: make(chan struct{})}
	if err := d.open.Keep(own); err != nil {
		return nil, err
	}
	go own.run()
	return own, nil
}

func isSocket(path string) bool {
	st, err := os.Lstat(path)
	return err == nil && st.Mode()&os.ModeSocket != 0
}

// run accepts connections and reads their greetings.
func (l *listener) run() {
	slots := make(chan bool, maxGreetings)
	for {
		conn, err := l.l.AcceptUnix()
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

func (l *listener) hear(conn *net.UnixConn) {
	conn.SetReadDeadline(time.Now().Add(fabric.Timeout))
	packet, fds, err := receive(conn, make([]byte, maxPacket))
	var g *greeting
	switch {
	case err != nil:
	case packet[0] != packetHello:
		closeAll(fds)
		err = errPacket
	default:
		g, err = parseGreeting(packet, fds)
	}
	if err != nil {
		send(conn, append([]byte{packetReject}, err.Error()...))
		conn.Close()
		return
	}
	conn.SetReadDeadline(time.Time{})
	select {
	case l.asked <- &incoming{l: l, conn: conn, g: g}:
	case <-l.ended:
		g.drop()
		conn.Close()
	}
}

func (l *listener) Addr() string { return l.addr }

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

// incoming is a connection that a peer has asked for.
type incoming struct {
	l    *listener
	conn *net.UnixConn
	g    *greeting

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
	if err := checkOptions(o, answer); err != nil {
		return nil, err
	}
	if in.answered() {
		return nil, fmt.Errorf("fabric: accept: %w: it was answered", fabric.ErrPeer)
	}
	e := newEndpoint(in.l.d, in.conn, in.g, who(in.conn), o)
	if err := greet(in.conn, packetAnswer, in.l.d, o.Recv.(*queue), answer); err != nil {
		e.Close()
		return nil, fmt.Errorf("fabric: accept: %w: it has given up", fabric.ErrPeer)
	}
	if err := e.begin(); err != nil {
		return nil, err
	}
	return e, nil
}

func (in *incoming) Reject(reason string) error {
	if in.answered() {
		return nil
	}
	if len(reason) > fabric.MaxHello {
		reason = reason[:fabric.MaxHello]
	}
	send(in.conn, append([]byte{packetReject}, reason...))
	in.g.drop()
	return in.conn.Close()
}

func checkOptions(o fabric.EndpointOptions, hello []byte) error {
	if err := ledger.CheckOptions(o, hello); err != nil {
		return err
	}
	if _, ok := o.Recv.(*queue); !ok {
		return fmt.Errorf("fabric: Recv of EndpointOptions must be a queue of shm, it is %T", o.Recv)
	}
	return nil
}

// Dial implements fabric.Domain.
func (d *Domain) Dial(ctx context.Context, addr string, hello []byte, o fabric.EndpointOptions) (fabric.Endpoint, []byte, error) {
	if err := checkOptions(o, hello); err != nil {
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
	c, err := dialer.DialContext(ctx, "unixpacket", addr)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", fabric.ErrPeer, err)
	}
	conn := c.(*net.UnixConn)
	defer func() {
		if err != nil {
			conn.Close()
		}
	}()
	stop := context.AfterFunc(ctx, func() { conn.SetReadDeadline(time.Unix(1, 0)) })
	if err := greet(conn, packetHello, d, o.Recv.(*queue), hello); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", fabric.ErrPeer, err)
	}
	packet, fds, err := receive(conn, make([]byte, maxPacket))
	if !stop() && err == nil {
		closeAll(fds)
		return nil, nil, ctx.Err()
	}
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("%w: %w", fabric.ErrPeer, err)
	case packet[0] == packetReject:
		return nil, nil, fmt.Errorf("%w: %s", fabric.ErrRefused, packet[1:])
	case packet[0] != packetAnswer:
		closeAll(fds)
		return nil, nil, errPacket
	}
	g, err := parseGreeting(packet, fds)
	if err != nil {
		return nil, nil, err
	}
	e = newEndpoint(d, conn, g, addr, o)
	if err := e.begin(); err != nil {
		return nil, nil, err
	}
	return e, g.text, nil
}
