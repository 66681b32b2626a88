//go:build verbs

package verbs

// #include <stdlib.h>
// #include "link.h"
import "C"

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
	"unsafe"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/greeting"
	"flashdbm/servers/fabric/ledger"
	"flashdbm/servers/fabric/regions"
)

var protocol = greeting.Protocol{Name: "verbs", Magic: "flashrdm", Version: 1}

// followSize is the length of what follows the accepting end's greeting: port 2, token 8.
const followSize = 2 + 8

type listener struct {
	d *Domain
	*greeting.Listener
	pep  *C.struct_fid_pep
	port uint16 // of pep
}

// Listen implements fabric.Domain. An address is host:port; the host is an IP address of this machine on the device's
// network. Port 0 chooses a free port, which Addr returns.
func (d *Domain) Listen(addr string) (fabric.Listener, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	l, err := protocol.Listen(addr, nil)
	if err != nil {
		return nil, err
	}
	own := &listener{d: d, Listener: l}
	host, _, _ := net.SplitHostPort(l.Addr())
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		l.Close()
		return nil, fmt.Errorf("fabric: listen %q: verbs takes the IP address of this machine on the device's network", addr)
	}
	node := C.CString(host)
	defer C.free(unsafe.Pointer(node))
	var port C.uint16_t
	if r := C.vf_listen(d.c, node, &own.pep, &port); r != 0 {
		l.Close()
		return nil, fmt.Errorf("fabric: listen %q: %w", addr, failure("listen", r))
	}
	own.port = uint16(port)
	d.links.Lock()
	d.peps[own.pep] = true
	d.links.Unlock()
	if err := d.open.Keep(own); err != nil {
		return nil, err
	}
	return own, nil
}

func (l *listener) Close() error {
	l.d.open.Forget(l)
	l.Listener.Close()
	l.d.links.Lock()
	defer l.d.links.Unlock()
	if l.d.peps[l.pep] {
		delete(l.d.peps, l.pep)
		C.vf_listen_close(l.pep)
	}
	return nil
}

func (l *listener) Accept(ctx context.Context) (fabric.Incoming, error) {
	peer, err := l.Listener.Accept(ctx)
	if err != nil {
		return nil, err
	}
	return &incoming{l, peer}, nil
}

type incoming struct {
	l *listener
	*greeting.Peer
}

func (in *incoming) Hello() []byte { return in.Greeting.Text }

// Accept returns before the peer has connected over the device; operations posted earlier wait for the connection. So
// a peer that does not connect blocks no other peer: its endpoint ends after greeting.Timeout.
func (in *incoming) Accept(o fabric.EndpointOptions, answer []byte) (fabric.Endpoint, error) {
	d := in.l.d
	if err := d.check(o, answer); err != nil {
		return nil, err
	}
	e, err := d.newEndpoint(in.Conn.(*net.TCPConn), in.Greeting, in.Addr, o)
	if err != nil {
		return nil, err
	}
	token := regions.Random()
	d.mu.Lock()
	d.tokens[token] = e
	d.mu.Unlock()
	follows := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint16(nil, in.l.port), token)
	if err := in.Answer(greeting.Greeting{Nonce: d.nonce, Depth: greeting.Depth(o), Text: answer}, follows...); err != nil {
		d.claim(token)
		e.Close()
		return nil, err
	}
	go e.listen()
	time.AfterFunc(greeting.Timeout, func() {
		if d.claim(token) != nil {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.end(fabric.ErrTimeout, fabric.ErrFlushed)
		}
	})
	return e, nil
}

func (in *incoming) Reject(reason string) error { return in.Peer.Reject(in.l.d.nonce, reason) }

// claim returns the endpoint that waits for a token, and removes the token; nil if there is none.
func (d *Domain) claim(token uint64) *endpoint {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.tokens[token]
	delete(d.tokens, token)
	return e
}

func (d *Domain) check(o fabric.EndpointOptions, hello []byte) error {
	if err := ledger.CheckOptions(o, hello); err != nil {
		return err
	}
	for _, q := range []fabric.Queue{o.Send, o.Recv} {
		if own, ok := q.(*queue); !ok || own.d != d {
			return errors.New("fabric: Send and Recv of EndpointOptions must be queues of the domain")
		}
	}
	return nil
}

// newEndpoint returns an endpoint that is not connected yet.
func (d *Domain) newEndpoint(conn *net.TCPConn, g greeting.Greeting, addr string, o fabric.EndpointOptions) (*endpoint, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	e := &endpoint{
		d: d, conn: conn, raw: raw, peer: fabric.Peer{Addr: addr, Incarnation: g.Nonce}, sendQ: o.Send.(*queue), recvQ: o.Recv.(*queue),
		connected: make(chan struct{}), done: make(chan struct{}),
	}
	room := func(asked int, most C.uint64_t) int {
		if asked == 0 {
			asked = ledger.DefaultDepth
		}
		return int(min(uint64(asked), uint64(most)))
	}
	e.sends = half{queue: e.sendQ, Side: ledger.NewSide(e.sendQ.Queue, o.Depth), room: room(o.Depth, d.c.max_sends)}
	e.recvs = half{queue: e.recvQ, Side: ledger.NewSide(e.recvQ.Queue, o.Recvs), room: room(o.Recvs, d.c.max_recvs), recv: true}
	if !e.sendQ.retain() {
		conn.Close()
		return nil, fabric.ErrClosed
	}
	if !e.recvQ.retain() {
		e.sendQ.release()
		conn.Close()
		return nil, fabric.ErrClosed
	}
	e.wr = (*[batch]C.vf_wr)(C.calloc(batch, C.sizeof_vf_wr))
	d.mu.Lock()
	d.last++
	e.id = d.last % (1 << 32)
	d.byID[e.id] = e
	d.mu.Unlock()
	if err := d.open.Keep(e); err != nil {
		return nil, err
	}
	return e, nil
}

func (d *Domain) forget(e *endpoint) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.byID, e.id)
}

// Dial implements fabric.Domain.
func (d *Domain) Dial(ctx context.Context, addr string, hello []byte, o fabric.EndpointOptions) (fabric.Endpoint, []byte, error) {
	if err := d.check(o, hello); err != nil {
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
	ctx, cancel := context.WithTimeout(ctx, greeting.Timeout)
	defer cancel()
	conn, theirs, finish, err := protocol.Dial(ctx, addr, greeting.Greeting{Nonce: d.nonce, Depth: greeting.Depth(o), Text: hello}, nil)
	if err != nil {
		return nil, nil, err
	}
	defer finish()
	var follows [followSize]byte
	if _, err := io.ReadFull(conn, follows[:]); err != nil {
		conn.Close()
		return nil, nil, fmt.Errorf("%w: %w", fabric.ErrPeer, err)
	}
	e, err := d.newEndpoint(conn.(*net.TCPConn), theirs, addr, o)
	if err != nil {
		return nil, nil, err
	}
	host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
	if err := e.connect(host, binary.LittleEndian.Uint16(follows[:]), binary.LittleEndian.Uint64(follows[2:])); err != nil {
		e.Close()
		return nil, nil, fmt.Errorf("%w: %w", fabric.ErrPeer, err)
	}
	go e.listen()
	select {
	case <-e.connected:
	case <-e.done:
		return nil, nil, e.Err()
	case <-ctx.Done():
	}
	if !finish() {
		e.Close()
		return nil, nil, fmt.Errorf("%w: no connection over the device", fabric.ErrTimeout)
	}
	return e, theirs.Text, nil
}

// connect makes libfabric connect to the peer's listener.
func (e *endpoint) connect(host string, port uint16, token uint64) error {
	if err := e.d.enter(); err != nil {
		return err
	}
	defer e.d.leave()
	node, service := C.CString(host), C.CString(strconv.Itoa(int(port)))
	defer C.free(unsafe.Pointer(node))
	defer C.free(unsafe.Pointer(service))
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return e.err
	}
	r := C.vf_connect(e.d.c, node, service, C.uint64_t(token), C.uint64_t(e.id), e.sendQ.cq, e.recvQ.cq, C.size_t(e.sends.room), C.size_t(e.recvs.room), &e.ep)
	if r != 0 {
		e.ep = nil
		return failure("connect", r)
	}
	return nil
}

// accept makes libfabric accept the connection request info of the peer.
func (e *endpoint) accept(info *C.struct_fi_info) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return false
	}
	r := C.vf_accept(e.d.c, info, C.uint64_t(e.id), e.sendQ.cq, e.recvQ.cq, C.size_t(e.sends.room), C.size_t(e.recvs.room), &e.ep)
	if r != 0 {
		e.ep = nil
		e.end(fabric.ErrPeer, fabric.ErrPeer)
	}
	return true
}

// hear is the goroutine that reads connection events.
func (d *Domain) hear() {
	for d.events.wait() == nil {
		for d.event() {
		}
	}
}

// event handles the next event, if there is one, and reports whether there was.
func (d *Domain) event() bool {
	var ev C.vf_event
	d.links.Lock()
	n := C.vf_event_read(d.c, &ev)
	d.links.Unlock()
	if n <= 0 {
		return false
	}
	if ev._type == C.VF_REQUESTED {
		if e := d.claim(uint64(ev.token)); e == nil || !e.accept(ev.info) {
			d.links.Lock()
			C.vf_reject(ev.pep, ev.info, C.int(boolean(d.peps[ev.pep])))
			d.links.Unlock()
		}
		return true
	}
	d.mu.RLock()
	e := d.byID[uint64(ev.id)]
	d.mu.RUnlock()
	if e == nil {
		return true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.err != nil:
	case ev._type == C.VF_CONNECTED && !e.up:
		e.up = true
		e.heard = time.Now()
		close(e.connected)
		e.pass()
	case ev._type == C.VF_FAILED:
		e.end(fabric.ErrPeer, fabric.ErrPeer)
	case ev._type == C.VF_ENDED:
		e.doom()
	}
	return true
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}
