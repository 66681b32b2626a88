package wire

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/words"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"
)

// newRing returns memory for a ring, aligned as a region is.
func newRing(t *testing.T) []byte {
	ring, err := words.Alloc(RingSize)
	require.NoError(t, err)
	t.Cleanup(func() { words.Free(ring) })
	return ring
}

// TestRewritten: a peer rewrites messages while they are read. It writes two whole frames with the same number over
// each other, word by word. Receive accepts one of the two, and the accepted message does not change while the peer
// continues.
func TestRewritten(t *testing.T) {
	const salt = 77
	ring := newRing(t)
	scratch := make([]byte, maxFrame)
	bodies := [2][]byte{bytes.Repeat([]byte{0xAA}, 200), bytes.Repeat([]byte{0xBB}, 184)}
	number := uint64(1)
	var frames [2][]byte
	for i, b := range bodies {
		f := make([]byte, 1000)
		copy(f[headSize:], b)
		frames[i] = seal(f, &Header{Op: uint8(i + 1)}, len(b), number, 0, salt)
	}
	stop := make(chan struct{})
	var hostile sync.WaitGroup
	hostile.Go(func() {
		r := rand.New(rand.NewPCG(1, 1))
		for {
			select {
			case <-stop:
				return
			default:
			}
			f := frames[r.IntN(2)]
			for at := 0; at < len(f); at += 8 {
				words.Write(ring[at:at+8], f[at:at+8])
			}
		}
	})
	accepted := 0
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
		in := receiver{ring: ring, salt: salt, number: number}
		m, _, ok, _ := in.take(scratch)
		if !ok {
			continue
		}
		accepted++
		want := bodies[m.Op-1]
		for range 20 { // the message stays in use for a while
			require.True(t, bytes.Equal(want, m.Body), "accepted %x as message %d", m.Body, m.Op)
		}
	}
	close(stop)
	hostile.Wait()
	require.Positive(t, accepted)
}

// TestOldBytesAreNoMessage puts a whole frame with a later number into the body of a message, as a user's value may.
// When the ring has gone round and that number is the next one at that place, the bytes are still there. Only the
// salt, which no user knows, shows that they are not a message.
func TestOldBytesAreNoMessage(t *testing.T) {
	ring := newRing(t)
	forged := make([]byte, minFrame)
	in := receiver{ring: ring, salt: 0xC0FFEE, number: 9, tail: 4096}
	for _, guess := range []uint64{0, 1, 9} {
		seal(forged, &Header{Op: 1}, 0, 9, 0, guess)
		copy(ring[4096:], forged)
		_, _, ok, suspect := in.take(make([]byte, maxFrame))
		require.False(t, ok, "salt %d", guess)
		require.True(t, suspect)
	}
	seal(forged, &Header{Op: 1}, 0, 9, 0, in.salt)
	copy(ring[4096:], forged)
	_, _, ok, _ := in.take(make([]byte, maxFrame))
	require.True(t, ok)
}

// hostileFrame puts a frame made by the peer into the ring of side 1, as its next message.
func (p *pair) hostileFrame(h Header, body []byte, credit uint32) {
	c := p.c[1]
	at := c.in.tail % RingSize
	b := make([]byte, frameSize(len(body)))
	copy(b[headSize:], body)
	copy(c.land.Bytes()[at:], seal(b, &h, len(body), c.in.number, credit, c.in.salt))
}

// TestHostilePeer sends frames that no correct peer sends. Only the connection ends, with an error that says why.
func TestHostilePeer(t *testing.T) {
	cases := map[string]func(p *pair){
		"credit for what was not sent": func(p *pair) { p.hostileFrame(Header{Op: 1}, nil, 4096) },
		"reserved op":                  func(p *pair) { p.hostileFrame(Header{Op: OpReserved}, nil, 0) },
		"bodies Read that were not sent": func(p *pair) {
			le.PutUint64(p.c[1].land.Bytes()[RingSize+wordLanded:], 1000)
			for range bulkUnits + 1 {
				if b, err := p.c[1].Begin(MaxInline + 1); err == nil {
					p.c[1].End(&Header{Op: 1}, b[:MaxInline+1])
				}
			}
		},
		"body out of order": func(p *pair) {
			r, err := p.f.Alloc(4096, fabric.RemoteRead)
			require.NoError(p.t, err)
			ref := reference{key: r.Key(), length: 4096, hash: xxh3.Hash(r.Bytes()), number: 2}
			p.hostileFrame(Header{Op: 1, Flags: flagBulk}, ref.append(nil), 0)
		},
		"short reference": func(p *pair) { p.hostileFrame(Header{Op: 1, Flags: flagBulk}, make([]byte, 71), 0) },
		"huge body": func(p *pair) {
			r := reference{length: MaxBody + 1, number: 1}
			p.hostileFrame(Header{Op: 1, Flags: flagBulk}, r.append(nil), 0)
		},
		"body of a region that is not there": func(p *pair) {
			p.hostileFrame(Header{Op: 1, Flags: flagBulk}, (&reference{length: 100, number: 1}).append(nil), 0)
		},
		"body of other bytes": func(p *pair) {
			r, err := p.f.Alloc(4096, fabric.RemoteRead)
			require.NoError(p.t, err)
			p.hostileFrame(Header{Op: 1, Flags: flagBulk}, (&reference{key: r.Key(), length: 4096, hash: 1, number: 1}).append(nil), 0)
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, 3, CarrierRing)
			c(p)
			for range 2000 {
				_, ok := p.c[1].Receive()
				require.False(t, ok)
				p.g[1].Step()
				p.f.step()
			}
			require.Error(t, p.c[1].Err())
			_, err := p.c[1].Begin(1)
			require.Error(t, err)
			require.NoError(t, p.g[1].Close())
			require.NoError(t, p.g[0].Close())
		})
	}
}

// TestHostileSender is TestHostilePeer for frames that come by Sends, which are checked as soon as they arrive.
func TestHostileSender(t *testing.T) {
	frame := func(c *link, h Header, body int, credit uint32) []byte {
		return seal(make([]byte, frameSize(body)), &h, body, c.sends.inNumber, credit, c.sends.inSalt)
	}
	cases := map[string]func(c *link) []byte{
		"credit for what was not sent":   func(c *link) []byte { return frame(c, Header{Op: opCredit}, 0, 1) },
		"bodies Read that were not sent": func(c *link) []byte { return frame(c, Header{Op: opCredit, Request: 1}, 0, 0) },
		"op of rings":                    func(c *link) []byte { return frame(c, Header{Op: opSkip}, 0, 0) },
		"reserved op":                    func(c *link) []byte { return frame(c, Header{Op: OpReserved}, 0, 0) },
		"damaged":                        func(c *link) []byte { b := frame(c, Header{Op: 1}, 8, 0); b[headSize] ^= 1; return b },
		"cut off":                        func(c *link) []byte { return frame(c, Header{Op: 1}, 8, 0)[:minFrame] },
		"empty":                          func(*link) []byte { return nil },
		"of another number": func(c *link) []byte {
			c.sends.inNumber++
			b := frame(c, Header{Op: 1}, 8, 0)
			c.sends.inNumber--
			return b
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, 3, CarrierSend)
			s := p.c[1].sends
			s.received(0, uint32(copy(s.place.Bytes(), c(p.c[1]))))
			_, ok := p.c[1].Receive()
			require.False(t, ok)
			require.ErrorIs(t, p.c[1].Err(), ErrProtocol)
			require.NoError(t, p.g[1].Close())
			require.NoError(t, p.g[0].Close())
		})
	}
}

// TestNeverWhole writes an indicator without its message. The receiver waits for it for a limited time, and receives
// nothing.
func TestNeverWhole(t *testing.T) {
	for _, size := range []uint32{0, 8, MaxInline, MaxInline + 1, 1<<32 - 1} {
		p := newPair(t, 4, CarrierRing)
		ring := p.c[1].land.Bytes()
		le.PutUint32(ring, size)
		le.PutUint64(ring[8:], 1)
		now := time.Now()
		for range 5 {
			_, ok := p.c[1].Receive()
			require.False(t, ok)
			p.g[1].Check(now)
			require.NoError(t, p.c[1].Err())
		}
		_, ok := p.c[1].Receive()
		require.False(t, ok)
		p.g[1].Check(now.Add(suspectTime + 1))
		require.ErrorIs(t, p.c[1].Err(), ErrProtocol)
	}
}

// FuzzRing gives the reader a ring of any bytes. The hash of the first frame is corrected or not.
func FuzzRing(f *testing.F) {
	b := make([]byte, 400)
	f.Add(append([]byte(nil), seal(b, &Header{Op: 1}, 100, 1, 5, 7)...), uint16(0), false)
	f.Add(append([]byte(nil), seal(b, &Header{Op: opSkip}, 0, 1, 5, 7)...), uint16(65496), true)
	f.Add(make([]byte, 64), uint16(0), true)
	f.Fuzz(func(t *testing.T, b []byte, tail uint16, right bool) {
		ring := newRing(t)
		in := receiver{ring: ring, salt: 7, number: 1, tail: uint64(tail) &^ 7}
		at := in.tail
		if RingSize-at < minFrame {
			at = 0
		}
		n := copy(ring[at:], b)
		if right && n >= minFrame {
			size := le.Uint32(b)
			if size <= MaxInline && at+uint64(frameSize(int(size))) <= RingSize {
				le.PutUint64(ring[at+8:], 1)
				m := Header{Op: b[4], Flags: b[5]}
				seal(ring[at:], &m, int(size), 1, 5, 7)
			}
		}
		m, _, ok, _ := in.take(make([]byte, maxFrame))
		if ok && (m.Op == opSkip || len(m.Body) > MaxInline || in.tail%8 != 0) {
			t.Fatalf("%+v, tail %d", m, in.tail)
		}
	})
}

// FuzzSends sends any frame by a Send, with number and hash corrected or not. The result is a message, a control
// message, or the end of the connection.
func FuzzSends(f *testing.F) {
	b := make([]byte, 400)
	f.Add(append([]byte(nil), seal(b, &Header{Op: 1}, 100, 1, 0, 7)...), true)
	f.Add(append([]byte(nil), seal(b, &Header{Op: opCredit, Request: 1}, 0, 1, 1, 7)...), true)
	f.Add(append([]byte(nil), seal(b, &Header{Op: 1, Flags: flagBulk}, refSize, 1, 0, 7)...), true)
	f.Add(make([]byte, 64), false)
	f.Fuzz(func(t *testing.T, b []byte, right bool) {
		p := newPair(t, 3, CarrierSend)
		c := p.c[1]
		b = b[:min(len(b), maxFrame)]
		if right && len(b) >= minFrame {
			h := Header{Op: b[4], Flags: b[5], Request: uint64(b[16])}
			seal(b[:minFrame+(len(b)-minFrame)&^7], &h, (len(b)-minFrame)&^7, 1, uint32(b[24]), c.sends.inSalt)
			b = b[:minFrame+(len(b)-minFrame)&^7]
		}
		c.sends.received(0, uint32(copy(c.sends.place.Bytes(), b)))
		m, ok := c.Receive()
		if ok && (m.Op >= OpReserved || m.Flags >= FlagReserved || len(m.Body) > MaxInline) {
			t.Fatalf("%+v", m)
		}
		if !right && c.Err() == nil {
			t.Fatal("a frame without the salt of the connection is taken")
		}
	})
}

// FuzzGreeting decodes anything as the greeting of a peer.
func FuzzGreeting(f *testing.F) {
	g := greeting{CarrierRing, 1, fabric.Key{ID: 1, Rkey: 2, Nonce: 3, Base: 4, Len: landSize}}
	f.Add(g.append(nil))
	f.Add(append((&greeting{carrier: CarrierSend}).append(nil), "hello"...))
	f.Fuzz(func(t *testing.T, b []byte) {
		var g greeting
		rest, err := g.parse(b)
		if err != nil {
			require.ErrorIs(t, err, ErrProtocol)
			return
		}
		again := append(g.append(nil), rest...)
		again[7] = b[7] // a reserved byte
		require.True(t, bytes.Equal(b, again))
	})
}
