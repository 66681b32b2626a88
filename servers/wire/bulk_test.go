package wire

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// bodies returns two connections of a group, on each of which the peer has sent a large body. The body of the first
// one is being Read. The body of the second one waits for the buffer.
func bodies(t *testing.T, carrier Carrier) (p *pair, second [2]*link) {
	p = newPair(t, 3, carrier)
	second = p.connect(carrier)
	for _, c := range []*link{p.c[1], second[1]} {
		b, err := c.Begin(40_000)
		require.NoError(t, err)
		c.End(&Header{Op: 1}, append(b, body(p.f.rnd, 40_000)...))
	}
	p.g[1].Flush()
	runFabric(p)
	p.c[0].ep.(*shuffleEndpoint).hold = true
	for _, c := range []*link{p.c[0], second[0]} {
		_, ok := c.Receive()
		require.False(t, ok)
		require.True(t, c.bulk.landing)
	}
	runFabric(p)
	return p, second
}

// runFabric lets the fabric complete the operations that are under way.
func runFabric(p *pair) {
	for range 20_000 {
		p.f.step()
		p.g[0].Step()
		p.g[1].Step()
	}
}

// TestSleepsBesideABody: a body cannot be Read before the body of another connection has been Read. Meanwhile the
// thread sleeps. The end of the first Read wakes it, and then the other body is Read.
func TestSleepsBesideABody(t *testing.T) {
	for _, carrier := range []Carrier{CarrierRing, CarrierSend} {
		p, second := bodies(t, carrier)
		e := p.c[0].ep.(*shuffleEndpoint)
		if carrier == CarrierSend { // rings are armed by Writes of the same endpoint
			require.True(t, p.g[0].Arm(), "nothing is to be done before the first body has come")
		}
		e.hold = false
		for range 20_000 {
			p.f.step()
		}
		require.True(t, p.g[0].q.(*shuffleQueue).pending(), "it is woken")
		require.False(t, p.g[0].Arm(), "the first body has come")
		_, ok := p.c[0].Receive()
		require.True(t, ok)
		require.False(t, p.g[0].Arm(), "the second one can be Read")
		_, ok = second[0].Receive()
		require.False(t, ok)
		runFabric(p)
		_, ok = second[0].Receive()
		require.True(t, ok)
	}
}

// TestBodyOfALostConnection: if a connection ends while its body is being Read, or after that and before it was
// received, other connections get the buffer at once, whether or not the connection has been closed.
func TestBodyOfALostConnection(t *testing.T) {
	for _, read := range []bool{false, true} {
		p, second := bodies(t, CarrierSend)
		if read {
			p.c[0].ep.(*shuffleEndpoint).hold = false
			runFabric(p)
			require.True(t, p.c[0].bulk.fetched)
			p.c[0].Close()
		} else {
			p.c[1].Close()
			runFabric(p)
			require.Error(t, p.c[0].Err())
		}
		require.False(t, p.g[0].Arm(), "the second body can be Read")
		_, ok := second[0].Receive()
		require.False(t, ok)
		runFabric(p)
		_, ok = second[0].Receive()
		require.True(t, ok, "read %v", read)
	}
}
