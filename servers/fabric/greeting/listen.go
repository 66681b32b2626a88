package greeting

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"flashdbm/servers/fabric"
)

// A Listener reads the greetings of peers, several at a time, and passes on the valid ones.
type Listener struct {
	p      Protocol
	secure func(net.Conn) net.Conn
	l      net.Listener
	asked  chan *Peer // connections that wait for Accept; unbuffered, so a greeting goroutine waits until its connection is accepted
	ended  chan struct{}
	once   sync.Once
}

// Listen listens at host:port, as net.Listen does. secure, if it is not nil, puts TLS over each connection.
func (p Protocol) Listen(addr string, secure func(net.Conn) net.Conn) (*Listener, error) {
	if addr == "" {
		return nil, fmt.Errorf("fabric: listen: the address is empty; %s takes host:port", p.Name)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("fabric: %w", err)
	}
	own := &Listener{p: p, secure: secure, l: l, asked: make(chan *Peer), ended: make(chan struct{})}
	go own.run()
	return own, nil
}

// maxGreetings is the number of peers whose greetings a listener reads, or that wait for Accept, at a time. Further
// peers wait in the socket's queue.
const maxGreetings = 256

func (l *Listener) run() {
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

func (l *Listener) hear(conn net.Conn) {
	addr := conn.RemoteAddr().String()
	Prepare(conn)
	if l.secure != nil {
		conn = l.secure(conn)
	}
	conn.SetDeadline(time.Now().Add(Timeout)) // of the TLS handshake too
	g, err := l.p.Read(conn)
	if err != nil {
		conn.Close()
		return
	}
	conn.SetDeadline(time.Time{})
	select {
	case l.asked <- &Peer{p: l.p, Conn: conn, Addr: addr, Greeting: g}:
	case <-l.ended:
		conn.Close()
	}
}

// Addr returns the address of the listener.
func (l *Listener) Addr() string { return l.l.Addr().String() }

// Close closes the listener. It may be called several times.
func (l *Listener) Close() error {
	l.once.Do(func() {
		close(l.ended)
		l.l.Close()
	})
	return nil
}

// Accept returns the next peer whose greeting has arrived.
func (l *Listener) Accept(ctx context.Context) (*Peer, error) {
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

// A Peer has sent its greeting and waits for an answer.
type Peer struct {
	p        Protocol
	Conn     net.Conn
	Addr     string
	Greeting Greeting

	mu   sync.Mutex // guards over
	over bool       // answered
}

// Answer sends the answer to the greeting, followed by the bytes of follows. Only the first call does; later calls
// return an error. If the write fails, Answer closes the connection.
func (in *Peer) Answer(g Greeting, follows ...byte) error {
	in.mu.Lock()
	was := in.over
	in.over = true
	in.mu.Unlock()
	if was {
		return fmt.Errorf("fabric: accept: %w: it was answered", fabric.ErrPeer)
	}
	in.Conn.SetDeadline(time.Now().Add(Timeout))
	err := in.p.Write(in.Conn, g)
	if err == nil && len(follows) > 0 {
		_, err = in.Conn.Write(follows)
	}
	if err != nil {
		in.Conn.Close()
		return fmt.Errorf("fabric: accept: %w: it has given up", fabric.ErrPeer)
	}
	in.Conn.SetDeadline(time.Time{})
	return nil
}

// Reject sends a reason to the peer and closes the connection, unless the peer has been answered.
func (in *Peer) Reject(nonce uint64, reason string) error {
	if in.Answer(Greeting{Rejected: true, Nonce: nonce, Text: []byte(reason)[:min(len(reason), fabric.MaxHello)]}) != nil {
		return nil // it was answered, or has gone
	}
	return in.Conn.Close()
}
