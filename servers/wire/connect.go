package wire

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"flashdbm/servers/fabric"
)

// Version is the version of the framing.
const Version = 2

const (
	greetingMagic = "FDBW"
	greetingSize  = 56
)

// A greeting precedes the caller's part in the fabric's hello and in its answer. It has what the peer needs to send
// to this end.
type greeting struct {
	carrier Carrier
	salt    uint64     // random, for this end's ring
	key     fabric.Key // of this end's ring and control area
}

func (g *greeting) append(b []byte) []byte {
	b = append(b, greetingMagic...)
	b = le.AppendUint16(b, Version)
	b = append(b, byte(g.carrier), 0)
	b = le.AppendUint64(b, g.salt)
	return appendKey(b, g.key)
}

// parse decodes a greeting and returns the bytes after it.
func (g *greeting) parse(b []byte) ([]byte, error) {
	if len(b) < greetingSize || string(b[:4]) != greetingMagic {
		return nil, fmt.Errorf("%w: the peer is no flashdbm server or client", ErrProtocol)
	}
	if v := le.Uint16(b[4:]); v != Version {
		return nil, fmt.Errorf("%w: the peer's framing is version %d, this end's %d", ErrProtocol, v, Version)
	}
	*g = greeting{Carrier(b[6]), le.Uint64(b[8:]), parseKey(b[16:])}
	if g.carrier != CarrierRing && g.carrier != CarrierSend {
		return nil, fmt.Errorf("%w: %v over a fabric", ErrProtocol, g.carrier)
	}
	if g.carrier == CarrierRing && g.key.Len < landSize {
		return nil, fmt.Errorf("%w: a ring of %d bytes", ErrProtocol, g.key.Len)
	}
	return b[greetingSize:], nil
}

// AcceptAll answers the incoming connections of a listener until it is closed or the context ends. greet accepts a
// connection, or refuses it, or returns an error to refuse it with.
func AcceptAll(ctx context.Context, l fabric.Listener, greet func(fabric.Incoming) error) {
	for {
		in, err := l.Accept(ctx)
		if ctx.Err() != nil || errors.Is(err, fabric.ErrClosed) {
			return
		}
		if err != nil {
			continue // concerns only that connection
		}
		if err := greet(in); err != nil {
			in.Reject(err.Error())
		}
	}
}

// Hello returns the caller's part of the hello of an incoming connection.
func Hello(in fabric.Incoming) ([]byte, error) {
	var g greeting
	return g.parse(in.Hello())
}

// Dial connects to a peer that answers with Accept, and returns the caller's part of the answer. The connection
// belongs to the caller until the group's thread calls Add; a caller that gives it up before that calls Close.
func (g *Group) Dial(ctx context.Context, addr string, hello []byte, carrier Carrier) (Conn, []byte, error) {
	c, mine, err := g.prepare(carrier)
	if err != nil {
		return nil, nil, err
	}
	ep, answer, err := g.d.Dial(ctx, addr, append(mine.append(nil), hello...), g.options(carrier))
	if err != nil {
		c.free()
		return nil, nil, fmt.Errorf("wire: dial %s: %w", addr, err)
	}
	c.ep = ep
	var theirs greeting
	rest, err := theirs.parse(answer)
	if err == nil && theirs.carrier != carrier {
		err = fmt.Errorf("%w: asked for %v, got %v", ErrProtocol, carrier, theirs.carrier)
	}
	if err != nil {
		ep.Close()
		c.free()
		return nil, nil, fmt.Errorf("wire: dial %s: %w", addr, err)
	}
	c.meet(&theirs)
	return c, rest, nil
}

// Accept accepts an incoming connection, with the carrier that the peer has chosen. As with Dial, the connection
// belongs to the caller until Add.
func (g *Group) Accept(in fabric.Incoming, answer []byte) (Conn, error) {
	var theirs greeting
	if _, err := theirs.parse(in.Hello()); err != nil {
		in.Reject(err.Error())
		return nil, err
	}
	c, mine, err := g.prepare(theirs.carrier)
	if err != nil {
		in.Reject("no memory for the connection")
		return nil, err
	}
	c.ep, err = in.Accept(g.options(theirs.carrier), append(mine.append(nil), answer...))
	if err != nil {
		c.free()
		return nil, fmt.Errorf("wire: accept: %w", err)
	}
	c.meet(&theirs)
	return c, nil
}

func (g *Group) options(carrier Carrier) fabric.EndpointOptions {
	o := fabric.EndpointOptions{Send: g.q, Recv: g.q, Depth: depth}
	if carrier == CarrierSend {
		o.Recvs = sendSlots
	}
	return o
}

// prepare allocates this end's memory for one connection. The memory is never reused for another, because words of an
// old connection may arrive late.
func (g *Group) prepare(carrier Carrier) (*link, *greeting, error) {
	if carrier != CarrierRing && carrier != CarrierSend {
		return nil, nil, fmt.Errorf("wire: %v is no carrier of a fabric", carrier)
	}
	c := &link{g: g, posts: make([]uint64, 0, 32)}
	var err error
	if c.land, err = g.d.Alloc(landSize, fabric.RemoteWrite); err != nil {
		return nil, nil, fmt.Errorf("wire: memory of a connection: %w", err)
	}
	if c.stage, err = g.d.Alloc(landSize, 0); err != nil {
		c.land.Close()
		return nil, nil, fmt.Errorf("wire: memory of a connection: %w", err)
	}
	if carrier == CarrierSend {
		if c.sends, err = newSends(c); err != nil {
			c.land.Close()
			c.stage.Close()
			return nil, nil, fmt.Errorf("wire: memory of a connection: %w", err)
		}
	}
	var b [8]byte
	rand.Read(b[:])
	salt := binary.NativeEndian.Uint64(b[:])
	c.in = receiver{ring: c.land.Bytes(), salt: salt, number: 1}
	c.out = sender{mirror: c.stage.Bytes()[:RingSize], number: 1}
	if c.sends != nil {
		c.sends.inSalt = salt
	}
	return c, &greeting{carrier, salt, c.land.Key()}, nil
}

// meet records the peer's greeting.
func (c *link) meet(theirs *greeting) {
	c.peer, c.out.salt = theirs.key, theirs.salt
	if c.sends != nil {
		c.sends.salt = theirs.salt
	}
}

// Read Reads n bytes at an offset of a peer's region to local memory. Group.Done reports its completion with the
// token. The error is ErrAgain if too many operations are under way.
func (c *link) Read(local fabric.Region, off, n uint64, key fabric.Key, at, token uint64) error {
	if err := c.Err(); err != nil {
		return err
	}
	c.wrs[0] = fabric.WR{
		ID: c.id | kindRead | token&tokenMask, Op: fabric.Read, Flags: fabric.Signal, Local: local, LOff: off, LLen: n, Remote: key, ROff: at,
	}
	taken, err := c.ep.Post(c.wrs[:1])
	if taken == 1 {
		c.under++
		c.stats.Reads++
		return nil
	}
	if err == fabric.ErrAgain {
		return ErrAgain
	}
	c.fail(err)
	return c.Err()
}

// Reader implements OneSided.
func (c *link) Reader() fabric.Reader {
	r, _ := c.ep.(fabric.Reader)
	return r
}

// A ReadOp is one Read of a call of Reads.
type ReadOp struct {
	Offset uint64 // in local memory
	Length uint64
	Key    fabric.Key
	At     uint64 // in the peer's region
	Token  uint64
}

// Reads is Read for several operations, with one doorbell. It returns how many were taken; fewer than all without an
// error means that too many operations are under way.
func (c *link) Reads(local fabric.Region, ops []ReadOp) (taken int, err error) {
	if err := c.Err(); err != nil {
		return 0, err
	}
	c.reads = c.reads[:0]
	for i := range ops {
		o := &ops[i]
		c.reads = append(c.reads, fabric.WR{
			ID: c.id | kindRead | o.Token&tokenMask, Op: fabric.Read, Flags: fabric.Signal, Local: local, LOff: o.Offset, LLen: o.Length, Remote: o.Key, ROff: o.At,
		})
	}
	taken, err = c.ep.Post(c.reads)
	c.under += taken
	c.stats.Reads += uint64(taken)
	if err != nil && err != fabric.ErrAgain {
		c.fail(err)
		return taken, c.Err()
	}
	return taken, nil
}

// Write Writes n bytes of local memory at an offset to a peer's region. Written counts it once it has completed. The
// error is ErrAgain if too many operations are under way.
func (c *link) Write(local fabric.Region, off, n uint64, key fabric.Key, at uint64) error {
	if err := c.Err(); err != nil {
		return err
	}
	c.wrs[0] = fabric.WR{
		ID: c.id | kindWrite, Op: fabric.Write, Flags: fabric.Signal, Local: local, LOff: off, LLen: n, Remote: key, ROff: at,
	}
	taken, err := c.ep.Post(c.wrs[:1])
	if taken == 1 {
		c.under++
		return nil
	}
	if err == fabric.ErrAgain {
		return ErrAgain
	}
	c.fail(err)
	return c.Err()
}

// Written returns how many Writes have completed since the last call. Writes complete in the order in which they were
// posted.
func (c *link) Written() (n int) {
	n, c.written = c.written, 0
	return n
}

// A OneSided is a Conn through which the caller can Read the peer's memory.
type OneSided interface {
	Conn
	Read(local fabric.Region, off, n uint64, key fabric.Key, at, token uint64) error
	// Reader returns the endpoint if any goroutine can read through it, else nil.
	Reader() fabric.Reader
}

// A BatchReader is a OneSided that posts several Reads at once.
type BatchReader interface {
	OneSided
	Reads(local fabric.Region, ops []ReadOp) (taken int, err error)
}

// A Writer is a Conn through which the caller can Write the peer's memory. The caller must not change local memory
// before the Writes have completed.
type Writer interface {
	Conn
	Write(local fabric.Region, off, n uint64, key fabric.Key, at uint64) error
	Written() int
}
