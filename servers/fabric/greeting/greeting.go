// Package greeting begins connections over TCP: each end tells the other its identity before it is served. The
// providers tcp and verbs use it.
package greeting

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/ledger"
)

// A Protocol is the protocol that both ends speak after the greeting.
type Protocol struct {
	Name    string // the provider's
	Magic   string // the first 8 bytes of a connection
	Version byte
}

// A Greeting is the first message of an end.
type Greeting struct {
	Rejected bool
	Nonce    uint64 // of the incarnation
	Depth    int    // most operations that the end has under way
	Text     []byte // the hello, its answer, or the reason of a rejection
}

// Timeout is how long a peer may take for its greeting, and for the TLS handshake before it.
const Timeout = 5 * time.Second

// maxDepth bounds the operations that a peer may have under way, and so the memory that this end needs for them: 24
// bytes for each.
const maxDepth = 1 << 16

const magicSize = 8

// Size is the length of a greeting without text, in bytes.
const Size = magicSize + 1 + 1 + 8 + 4 + 2

// Depth returns the depth that an end with these options announces.
func Depth(o fabric.EndpointOptions) int {
	if o.Depth == 0 {
		return ledger.DefaultDepth
	}
	return min(o.Depth, maxDepth)
}

// Write writes a greeting.
func (p Protocol) Write(conn io.Writer, g Greeting) error {
	rejected := byte(0)
	if g.Rejected {
		rejected = 1
	}
	b := append([]byte(p.Magic), p.Version, rejected)
	b = binary.LittleEndian.AppendUint64(b, g.Nonce)
	b = binary.LittleEndian.AppendUint32(b, uint32(g.Depth))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(g.Text)))
	_, err := conn.Write(append(b, g.Text...))
	return err
}

// Read reads a greeting.
func (p Protocol) Read(conn io.Reader) (g Greeting, err error) {
	var head [Size]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return g, err
	}
	b := head[magicSize:]
	if string(head[:magicSize]) != p.Magic {
		return g, fmt.Errorf("fabric: the peer is no flashdbm that speaks %s", p.Name)
	}
	if b[0] != p.Version {
		return g, fmt.Errorf("fabric: the peer speaks version %d of %s, this process %d", b[0], p.Name, p.Version)
	}
	g.Rejected = b[1] != 0
	g.Nonce = binary.LittleEndian.Uint64(b[2:])
	g.Depth = int(binary.LittleEndian.Uint32(b[10:]))
	n := binary.LittleEndian.Uint16(b[14:])
	if g.Depth > maxDepth || n > fabric.MaxHello {
		return g, errors.New("fabric: a greeting that makes no sense")
	}
	g.Text = make([]byte, n)
	_, err = io.ReadFull(conn, g.Text)
	return g, err
}

// Prepare sets the options of a TCP connection: data is sent at once, and keepalives detect a peer whose host is
// gone.
func Prepare(conn net.Conn) {
	c, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	c.SetNoDelay(true)
	c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: fabric.Timeout, Interval: fabric.Timeout, Count: 2})
	if raw, err := c.SyscallConn(); err == nil {
		userTimeout(raw)
	}
}

// Dial connects to an address, greets the peer and returns the peer's greeting. secure, unless nil, puts TLS over the
// connection. Until the caller calls finish, the end of the context ends the connection; finish returns false if the
// context has ended it.
func (p Protocol) Dial(ctx context.Context, addr string, g Greeting, secure func(net.Conn) (net.Conn, error)) (conn net.Conn, theirs Greeting, finish func() bool, err error) {
	var dialer net.Dialer
	conn, err = dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, theirs, nil, fmt.Errorf("%w: %w", fabric.ErrPeer, err)
	}
	raw := conn
	stop := context.AfterFunc(ctx, func() { raw.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		if err != nil {
			stop()
			raw.Close()
		}
	}()
	Prepare(conn)
	if secure != nil {
		if conn, err = secure(conn); err != nil {
			return nil, theirs, nil, err
		}
	}
	if err := p.Write(conn, g); err != nil {
		return nil, theirs, nil, fmt.Errorf("%w: %w", fabric.ErrPeer, err)
	}
	theirs, err = p.Read(conn)
	switch {
	case err != nil:
		return nil, theirs, nil, fmt.Errorf("%w: %w", fabric.ErrPeer, err)
	case theirs.Rejected:
		return nil, theirs, nil, fmt.Errorf("%w: %s", fabric.ErrRefused, theirs.Text)
	}
	return conn, theirs, stop, nil
}
