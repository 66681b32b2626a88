package wire

import (
	"fmt"
	"testing"

	"flashdbm/servers/fabric/words"

	"github.com/stretchr/testify/require"
)

// TestPeerThatReceivesNothing: one end receives nothing as long as it has something to send, as a shard whose answers
// wait. The other end receives everything, and sends as much as it can. What the first end waits for must not be
// queued behind messages that it does not receive.
func TestPeerThatReceivesNothing(t *testing.T) {
	for _, carrier := range []Carrier{CarrierRing, CarrierSend} {
		for i, size := range []int{8, 100, 1000, 8000, MaxInline, MaxInline + 1, 1 << 20} {
			t.Run(fmt.Sprint(carrier, "/", size), func(t *testing.T) {
				p := newPair(t, 5, carrier)
				messages := []int{2000, 2000, 500, 200, 200, 300, 20}[i]
				for idle := 0; p.got[0] < messages; idle++ {
					require.Less(t, idle, 200_000, "got %d of %d messages, and no more", p.got[0], len(p.sent[1]))
					p.f.step()
					p.g[0].Step()
					for p.receive(0) {
						idle = 0
						p.send(0, 20) // before credit is due, so that this message carries it
					}
					p.g[0].Flush()
					p.g[1].Step()
					for len(p.sent[1]) < messages && p.send(1, size) {
					}
					p.g[1].Flush()
				}
				for idle := 0; !p.all(); idle++ {
					require.Less(t, idle, 200_000, "got %d of %d messages, and no more", p.got[1], len(p.sent[0]))
					p.f.step()
					for side := range p.g {
						p.g[side].Step()
						for p.receive(side) {
							idle = 0
						}
						p.g[side].Flush()
					}
				}
				require.NoError(t, p.c[0].Err())
				require.NoError(t, p.c[1].Err())
			})
		}
	}
}

// TestCreditToldAgain: messages are consumed while the Write of the consumed position is under way. The new position
// is sent when that Write has completed, even if nothing else happens at the receiver.
func TestCreditToldAgain(t *testing.T) {
	p := newPair(t, 6, CarrierRing)
	told := func() uint64 { return words.LoadLE(p.c[0].land.Bytes(), RingSize+wordCredit) }
	runFabric := func() {
		for range 5000 {
			p.f.step()
			p.g[0].Step()
		}
	}
	e := p.c[1].ep.(*shuffleEndpoint)
	e.hold = true
	for range 2 {
		for range 2 {
			require.True(t, p.send(0, creditEvery-1000))
		}
		p.g[0].Flush()
		runFabric()
		for p.receive(1) {
		}
		p.g[1].Flush()
	}
	require.EqualValues(t, 4, p.got[1])
	runFabric()
	require.Less(t, told(), p.c[1].in.tail)
	e.hold = false
	for range 3 {
		runFabric()
		p.g[1].Step()
	}
	require.Equal(t, p.c[1].in.tail, told())
}
