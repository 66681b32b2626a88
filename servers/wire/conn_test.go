package wire

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"flashdbm/servers/fabric"

	"github.com/stretchr/testify/require"
)

// pair is two groups with a connection between them, over a fabric that reorders words.
type pair struct {
	t     testing.TB
	f     *shuffle
	g     [2]*Group
	c     [2]*link
	asks  [2]bool // asleep
	early bool    // a side was asleep while its number was under way
	sent  [2][]Message
	got   [2]int
	sizes []int
}

func newPair(t testing.TB, seed uint64, carrier Carrier) *pair {
	p := &pair{t: t, f: newShuffle(seed), sizes: []int{0, 1, 7, 8, 9, 100, 1000, 5000, MaxInline - 1, MaxInline, MaxInline + 1, 40_000}}
	for i := range p.g {
		var err error
		p.g[i], err = NewGroup(p.f, 256)
		require.NoError(t, err)
	}
	p.c = p.connect(carrier)
	return p
}

// connect makes a connection between the two groups.
func (p *pair) connect(carrier Carrier) [2]*link {
	t := p.t
	accepted := make(chan Conn)
	go func() {
		in := <-p.f.listen
		hello, err := Hello(in)
		if err != nil || string(hello) != "hello" {
			panic(fmt.Sprint(hello, err))
		}
		c, err := p.g[1].Accept(in, []byte("answer"))
		if err != nil {
			panic(err)
		}
		accepted <- c
	}()
	c, answer, err := p.g[0].Dial(context.Background(), "", []byte("hello"), carrier)
	require.NoError(t, err)
	require.Equal(t, "answer", string(answer))
	links := [2]*link{c.(*link), (<-accepted).(*link)}
	for i := range p.g {
		p.g[i].Add(links[i])
	}
	return links
}

// body makes a body whose content depends on its number.
func body(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := 0; i < n; i += 8 {
		le.PutUint64(append(b[i:min(n, i+8)], make([]byte, 8)...)[:8], r.Uint64())
	}
	for i := range b[:min(n, 64)] {
		b[i] = byte(r.Uint64())
	}
	return b
}

// send sends a random message if there is room.
func (p *pair) send(side, n int) bool {
	b, err := p.c[side].Begin(n)
	if err != nil {
		require.ErrorIs(p.t, err, ErrAgain)
		return false
	}
	m := Message{Header: Header{
		Op: uint8(1 + p.f.rnd.IntN(20)), Flags: uint8(p.f.rnd.IntN(FlagReserved)), Status: uint16(p.f.rnd.Uint32()),
		Request: p.f.rnd.Uint64(), MapVersion: p.f.rnd.Uint32(),
	}, Body: body(p.f.rnd, n)}
	p.c[side].End(&m.Header, append(b, m.Body...))
	p.sent[side] = append(p.sent[side], m)
	return true
}

// receive takes a message if there is one, and compares it with what was sent.
func (p *pair) receive(side int) bool {
	m, ok := p.c[side].Receive()
	if !ok {
		return false
	}
	n := p.got[side]
	require.Less(p.t, n, len(p.sent[1-side]), "a message that was not sent")
	want := p.sent[1-side][n]
	require.Equal(p.t, want.Header, m.Header, "message %d", n)
	require.True(p.t, bytes.Equal(want.Body, m.Body), "body of message %d", n)
	p.sent[1-side][n].Body = nil
	p.got[side]++
	return true
}

func (p *pair) all() bool { return p.got[0] == len(p.sent[1]) && p.got[1] == len(p.sent[0]) }

// run makes random steps until the given number of messages has been sent in each direction, and until all have
// arrived. A side that finds nothing to do goes to sleep as the package requires, and only its queue wakes it.
func (p *pair) run(messages int) {
	for idle := 0; ; idle++ {
		moving := p.f.step()
		require.Less(p.t, idle, 2_000_000, "nothing arrives any more: got %v of %d and %d", p.got, len(p.sent[1]), len(p.sent[0]))
		side := p.f.rnd.IntN(2)
		g := p.g[side]
		left := messages - len(p.sent[side])
		if p.asks[side] {
			if !g.q.(*shuffleQueue).wakes() {
				if !moving && p.asks[1-side] && !p.g[1-side].q.(*shuffleQueue).pending() {
					require.False(p.t, p.c[0].arrived() || p.c[1].arrived(), "asleep beside a message (invariant 4): got %v", p.got)
					p.asks[side] = false // its own caller has more to send
				}
				continue
			}
			p.asks[side] = false
		}
		worked := g.Step()
		if left > 0 && p.f.rnd.IntN(3) == 0 {
			for range 1 + p.f.rnd.IntN(5) {
				worked = left > 0 && p.send(side, p.sizes[p.f.rnd.IntN(len(p.sizes))]) || worked
				left = messages - len(p.sent[side])
			}
			if p.f.rnd.IntN(2) == 0 {
				g.Flush()
			}
		}
		for range p.f.rnd.IntN(4) {
			if p.receive(side) {
				worked, idle = true, 0
			}
		}
		require.NoError(p.t, p.c[0].Err())
		require.NoError(p.t, p.c[1].Err())
		if left <= 0 && p.all() && messages <= len(p.sent[1-side]) {
			return
		}
		if !worked && p.f.rnd.IntN(4) == 0 {
			if p.asks[side] = g.Arm(); p.asks[side] {
				armed := fabric.WR{Remote: p.c[side].peer, ROff: RingSize + wordArmed, LLen: 8}
				under := p.c[side].ep.(*shuffleEndpoint).busy(&armed)
				require.True(p.t, under || p.c[side].isArmed(), "asleep, and the peer has no armed number, nor will it (invariant 4)")
				p.early = p.early || under
			}
		}
	}
}

// TestMessages sends random messages both ways, while the fabric moves words in the worst order that is allowed.
func TestMessages(t *testing.T) {
	for _, carrier := range []Carrier{CarrierRing, CarrierSend} {
		t.Run(carrier.String(), func(t *testing.T) {
			seeds := uint64(10)
			if testing.Short() {
				seeds = 3
			}
			early := false
			for seed := range seeds {
				p := newPair(t, seed, carrier)
				p.run(200)
				early = early || p.early
			}
			require.Equal(t, carrier == CarrierRing, early, "a thread sleeps while its number is under way to the peer; Sends need none")
		})
	}
}

// TestCreditIsNotEnough withholds completions while the peer consumes everything and sends credit. The same places are
// not written again, because the provider may still repeat the words of the old Writes.
func TestCreditIsNotEnough(t *testing.T) {
	for _, carrier := range []Carrier{CarrierRing, CarrierSend} {
		p := newPair(t, 1, carrier)
		e := p.c[0].ep.(*shuffleEndpoint)
		e.hold = carrier == CarrierRing
		for range 10 {
			for p.send(0, 1000) { // all with one doorbell
			}
			p.g[0].Flush()
			for range 2000 {
				p.f.step()
			}
			for p.receive(1) {
			}
			p.send(1, 0) // carries credit
			p.g[0].Step()
			p.g[1].Step()
			for p.receive(0) {
			}
			if len(p.sent[0]) > 100 {
				break
			}
		}
		if carrier == CarrierRing {
			require.Greater(t, p.c[0].out.credited, uint64(50_000), "the peer has consumed the ring")
			require.LessOrEqual(t, len(p.sent[0]), RingSize/frameSize(1000), "places written again before their Writes have completed")
		} else {
			require.Greater(t, len(p.sent[0]), 100)
		}
	}
}

var _ fabric.Domain = (*shuffle)(nil)
