package membership

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"flashdbm/servers/fabric"
	"flashdbm/servers/replica"
	"flashdbm/servers/wire"
)

// Nodes talk over connections of package wire, one for each pair of members of a shard, and one from the leader to
// each member. A peer's hello is
//
//	offset  size  field
//	0       4     "FDBP"
//	4       2     1, the version
//	6       2     purpose: 1 a primary's link, 2 orders, 3 a part of the circle that moves, 4 notes
//	8       4     shard
//	12      16    nonce of the caller
//	28            name of the member that the caller wants
//
// and its answer is a nonce of 16 bytes and the proof that the peer has the cluster's secret. The caller's first
// message is its own proof: nothing that it sends is handled before that. All integers are little-endian.
const (
	peerMagic   = "FDBP"
	peerVersion = 1
	peerHead    = 28
	nonceSize   = 16

	peerFollows = 1 // the caller wants to be the primary
	peerOrders  = 2 // the caller leads the cluster
	peerMoves   = 3 // the caller is the primary of a shard from which a part of the circle moves
	peerNotes   = 4 // the caller has notes for the shard, which need no answer
)

// The op codes of messages between nodes.
const (
	opProof  = 1
	opMember = 2 // a message of package replica
	opStatus = 3 // asks for the member's status. The answer is a memberStatus
	opStop   = 4 // order to stop; the body is the record's revision and the record. The answer is a reportBody
	opNote   = 5 // a note of another shard
)

var errPeer = errors.New("membership: a node that has another secret, or speaks another version")

type peerHello struct {
	kind   uint16
	shard  uint32
	nonce  [nonceSize]byte
	member string
}

func (h *peerHello) append(b []byte) []byte {
	b = append(b, peerMagic...)
	b = binary.LittleEndian.AppendUint16(b, peerVersion)
	b = binary.LittleEndian.AppendUint16(b, h.kind)
	b = binary.LittleEndian.AppendUint32(b, h.shard)
	b = append(b, h.nonce[:]...)
	return append(b, h.member...)
}

// IsPeer reports whether a hello is a node's.
func IsPeer(b []byte) bool { return len(b) >= 4 && string(b[:4]) == peerMagic }

func (h *peerHello) parse(b []byte) error {
	if len(b) < peerHead || !IsPeer(b) || binary.LittleEndian.Uint16(b[4:]) != peerVersion {
		return errPeer
	}
	h.kind, h.shard = binary.LittleEndian.Uint16(b[6:]), binary.LittleEndian.Uint32(b[8:])
	copy(h.nonce[:], b[12:])
	h.member = string(b[peerHead:])
	return nil
}

// peerProof returns a side's proof that it has the secret.
func peerProof(secret []byte, side byte, hello []byte, nonce []byte) []byte {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte{side})
	m.Write(hello)
	m.Write(nonce)
	return m.Sum(nil)
}

// dialPeer connects to a member's node.
func (m *Node) dialPeer(ctx context.Context, group *wire.Group, addr string, h peerHello) (wire.Conn, error) {
	rand.Read(h.nonce[:])
	hello := h.append(nil)
	c, answer, err := group.Dial(ctx, addr, hello, wire.CarrierRing)
	if err != nil {
		return nil, err
	}
	if len(answer) != nonceSize+sha256.Size || !hmac.Equal(answer[nonceSize:], peerProof(m.site.Secret, 's', hello, answer[:nonceSize])) {
		c.Close()
		return nil, fmt.Errorf("%w: %s", errPeer, addr)
	}
	return &provingConn{Conn: c, proof: peerProof(m.site.Secret, 'c', hello, answer[:nonceSize])}, nil
}

// dials are connections that goroutines make for another goroutine. Only that goroutine may use or close them,
// because only it uses the group that they belong to: it takes the result of each dial, also when it ends.
type dials[T any] struct {
	made chan T
	left int // dials whose result was not taken yet
}

func newDials[T any]() dials[T] { return dials[T]{made: make(chan T)} }

func (d *dials[T]) start(dial func() T) {
	d.left++
	go func() { d.made <- dial() }()
}

// end passes the results of the dials under way to drop. The context of the dials has
// ended.
func (d *dials[T]) end(drop func(T)) {
	for ; d.left > 0; d.left-- {
		drop(<-d.made)
	}
}

// A provingConn is a connection whose caller still has to send its proof, which is possible once the connection is in
// the group.
type provingConn struct {
	wire.Conn
	proof []byte
}

// prove sends the proof, and returns the connection itself.
func prove(c wire.Conn) wire.Conn {
	p, ok := c.(*provingConn)
	if !ok {
		return c
	}
	if b, err := p.Begin(len(p.proof)); err == nil {
		p.End(&wire.Header{Op: opProof}, append(b, p.proof...))
	}
	return p.Conn
}

// ErrNoShard reports that a peer asked for a shard that does not exist, for errors.Is.
var ErrNoShard = errors.New("membership: no such shard")

// Accept answers a node's hello. of returns a shard, nil if there is none, and the group that should have the
// connection. If Accept returns an error, the connection was neither accepted nor refused.
func (m *Node) Accept(in fabric.Incoming, hello []byte, of func(shard uint32) (*Copy, *wire.Group)) error {
	var h peerHello
	if err := h.parse(hello); err != nil {
		return err
	}
	if h.member != m.self {
		return fmt.Errorf("membership: this is %s and not %s", m.self, h.member)
	}
	c, group := of(h.shard)
	if c == nil {
		return fmt.Errorf("%w: %d", ErrNoShard, h.shard)
	}
	var nonce [nonceSize]byte
	rand.Read(nonce[:])
	conn, err := group.Accept(in, append(nonce[:], peerProof(m.site.Secret, 's', hello, nonce[:])...))
	if err != nil {
		return nil // group.Accept has refused it, or the peer has gone
	}
	l := &peerLink{kind: h.kind, want: peerProof(m.site.Secret, 'c', hello, nonce[:])}
	if !c.hand(func() { c.take(group, conn, l) }) {
		conn.Close()
	}
	return nil
}

// take adds a connection of another node.
func (c *Copy) take(group *wire.Group, conn wire.Conn, l *peerLink) {
	group.Add(conn)
	l.conn = conn.(wire.Writer)
	switch l.kind {
	case peerOrders:
		c.orders = append(c.orders, l)
		return
	case peerNotes:
		c.notes = append(c.notes, l)
		return
	}
	c.links = append(c.links, l)
	if l.kind == peerMoves {
		if c.arrives != nil {
			c.arrives(l)
		}
		return
	}
	c.shard.Follower().Offered(l)
}

// A peerLink is a replica.Link over a connection, and also carries orders and notes. The shard's thread uses it.
type peerLink struct {
	conn wire.Writer
	kind uint16
	want []byte   // the proof that the caller has to send first; nil once it has
	held [][]byte // messages for which there was no room
	stop uint64   // revision of the order that has not been answered; 0: none
	buf  []byte
}

var _ replica.Link = (*peerLink)(nil)

// Send implements replica.Link. A message for which there is no room is held back, and sent before the next message,
// or by flush.
func (l *peerLink) Send(m *replica.Message) {
	if len(l.held) > 0 || !l.put(opMember, 0, m.Append(l.buf[:0])) {
		l.held = append(l.held, m.Append(nil))
	}
}

func (l *peerLink) put(op uint8, request uint64, body []byte) bool {
	l.buf = body[:0]
	b, err := l.conn.Begin(len(body))
	if err != nil {
		if errors.Is(err, wire.ErrTooLong) {
			l.conn.Close() // otherwise the peer would wait for ever for the message that was not sent
		}
		return !errors.Is(err, wire.ErrAgain)
	}
	l.conn.End(&wire.Header{Op: op, Request: request}, append(b, body...))
	return true
}

// flush sends messages that were held back.
func (l *peerLink) flush() {
	for len(l.held) > 0 && l.put(opMember, 0, l.held[0]) {
		l.held = l.held[1:]
		l.buf = nil
	}
}

// next returns the next message of a peer that has proved itself.
func (l *peerLink) next() (wire.Message, bool) {
	l.flush()
	m, ok := l.conn.Receive()
	if ok && l.want != nil {
		if m.Op != opProof || !hmac.Equal(m.Body, l.want) {
			l.conn.Close()
			return m, false
		}
		l.want = nil
		m, ok = l.conn.Receive()
	}
	return m, ok
}

// Receive implements replica.Link.
func (l *peerLink) Receive() (m replica.Message, ok bool) {
	w, ok := l.next()
	if !ok {
		return m, false
	}
	if w.Op != opMember || m.Parse(w.Body) != nil {
		l.conn.Close()
		return m, false
	}
	return m, true
}

// Write implements replica.Link.
func (l *peerLink) Write(local fabric.Region, off, n uint64, key fabric.Key, at uint64) error {
	err := l.conn.Write(local, off, n, key, at)
	if errors.Is(err, wire.ErrAgain) {
		return fabric.ErrAgain
	}
	return err
}

// Written implements replica.Link.
func (l *peerLink) Written() int { return l.conn.Written() }

// Err implements replica.Link.
func (l *peerLink) Err() error { return l.conn.Err() }

// Close implements replica.Link.
func (l *peerLink) Close() { l.conn.Close() }
