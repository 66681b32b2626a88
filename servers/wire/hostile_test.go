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
)

// newRing returns memory for a ring, aligned as a region is.
func newRing(t *testing.T) []byte {
	ring, err := words.Alloc(RingSize)
	require.NoError(t, err)
	t.Cleanup(func() { words.Free(ring) })
	return ring
}

// TestRewritten has a peer that rewrites messages while they are read: it stores two whole frames with the same number over each other, word by
// word. What Receive's reader accepts is one of the two, and stays that while the memory behind it goes on changing.
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
		for range 20 { // it is used for a while
			require.True(t, bytes.Equal(want, m.Body), "accepted %x as message %d", m.Body, m.Op)
		}
	}
	close(stop)
	hostile.Wait()
	require.Positive(t, accepted)
}

// TestOldBytesAreNoMessage puts a whole frame with a later number into the body of a message, as a user's value may: when the ring comes round and
// that number is next at that place, the bytes are still there. Only the salt, which no user knows, tells them from a message.
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

// hostileFrame puts a frame of the peer's making into side 1's ring, as its next message.
func (p *pair) hostileFrame(h Header, body []byte, credit uint32) {
	c := p.c[1]
	at := c.in.tail % RingSize
	b := make([]byte, frameSize(len(body)))
	copy(b[headSize:], body)
	copy(c.land.Bytes()[at:], seal(b, &h, len(body), c.in.number, credit, c.in.salt))
}

// TestHostilePeer sends what no honest peer sends. Only the connection ends, with an error that says why.
func TestHostilePeer(t *testing.T) {
	var good reference
	cases := map[string]func(p *pair){
		"credit for what was not sent": func(p *pair) { p.hostileFrame(Header{Op: 1}, nil, 4096) },
		"reserved op":                  func(p *pair) { p.hostileFrame(Header{Op: OpReserved}, nil, 0) },
		"release of nothing":           func(p *pair) { p.hostileFrame(Header{Op: opRelease, Request: 5}, nil, 0) },
		"short reference":              func(p *pair) { p.hostileFrame(Header{Op: 1, Flags: flagBulk}, make([]byte, 71), 0) },
		"huge body": func(p *pair) {
			r := good
			r.length = MaxBody + 1
			p.hostileFrame(Header{Op: 1, Flags: flagBulk}, r.append(nil), 0)
		},
		"body of a region that is not there": func(p *pair) {
			p.hostileFrame(Header{Op: 1, Flags: flagBulk}, (&reference{length: 100}).append(nil), 0)
		},
		"body of other bytes": func(p *pair) {
			r, err := p.f.Alloc(4096, fabric.RemoteRead)
			require.NoError(p.t, err)
			p.hostileFrame(Header{Op: 1, Flags: flagBulk}, (&reference{key: r.Key(), length: 4096, hash: 1}).append(nil), 0)
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

// TestNeverWhole leaves an indicator without a message. It is waited for, not for ever, and nothing is received.
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

// FuzzRing gives the reader a ring of any bytes, with the hash of the first frame put right or not.
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
		again[7] = b[7] // reserved
		require.True(t, bytes.Equal(b, again))
	})
}
