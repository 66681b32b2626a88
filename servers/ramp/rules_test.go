package ramp

import (
	"testing"
	"time"

	"flashdbm/servers/circle"
	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/mem"
	"flashdbm/servers/guard"
	"flashdbm/servers/ramp/protocol"
	"flashdbm/servers/wire"

	"github.com/stretchr/testify/require"
)

// A stub is a connection to a partition, and its memory, that a test plays.
type stub struct {
	sent  []wire.Message
	in    []wire.Message
	reads []uint64 // tokens
}

func (s *stub) Begin(int) ([]byte, error) { return nil, nil }
func (s *stub) End(h *wire.Header, body []byte) {
	s.sent = append(s.sent, wire.Message{Header: *h, Body: body})
}
func (s *stub) Flush()       {}
func (s *stub) Err() error   { return nil }
func (s *stub) Close() error { return nil }
func (s *stub) Receive() (m wire.Message, ok bool) {
	if len(s.in) == 0 {
		return m, false
	}
	m, s.in = s.in[0], s.in[1:]
	return m, true
}

func (s *stub) Read(_ fabric.Region, _, _ uint64, _ fabric.Key, _, token uint64) error {
	s.reads = append(s.reads, token)
	return nil
}

// TestReads: a slot is Read while the tenure lasts and the machine was not suspended; what is torn is Read twice more, then asked for; another key's slot is
// asked for at once.
func TestReads(t *testing.T) {
	now, wall := int64(0), uint64(1_700_000_000_000)
	pass := func(d time.Duration) { now, wall = now+int64(d), wall+uint64(d.Milliseconds()) }
	e := newEngine(Fast, 1, func() (int64, uint64) { return now, wall })
	e.slots = make(slots, 8)
	e.setTable(3, 1)
	d := mem.NewNetwork().Open()
	defer d.Close()
	land, err := newLanding(d, 2)
	require.NoError(t, err)
	s, l := &stub{}, e.links[0]
	e.attach(l, s, s, land, &protocol.Welcome{Term: 7})
	key := []byte("k")
	var got []Value
	get := func() {
		got = nil
		e.look()
		e.startGet([][]byte{key}, now+int64(time.Hour), func(v []Value, err error) {
			require.NoError(t, err)
			got = v
		})
	}
	m := protocol.MakeMeta(protocol.KindHashes, []uint64{circle.Hash(3, key)})
	content := m.AppendContent(nil, []byte("value"))
	answer := func() { // to all that was sent
		for _, q := range s.sent {
			h := q.Header
			var body []byte
			switch protocol.Op(h.Op) {
			case protocol.OpGet:
				g := protocol.Got{Term: 7, Tenure: 1_000_000, Versions: []protocol.Version{{State: protocol.StateFound, TS: 5, Content: content, Slot: protocol.Slot{Offset: 64, Length: 128}}}}
				body = g.AppendBody(nil)
			case protocol.OpExtent:
				x := protocol.Extent{Term: 7}
				body = x.AppendBody(nil)
			}
			s.in = append(s.in, wire.Message{Header: h, Body: body})
		}
		s.sent = nil
		e.step()
	}
	get()
	require.Len(t, s.sent, 1, "it is not known where the slot is")
	answer()
	require.Equal(t, []Value{{Value: []byte("value"), Found: true, TS: 5}}, got)
	answer() // the extent

	place := func(k string, whole bool) { // what the next Read brings
		b := land.region.Bytes()[s.reads[len(s.reads)-1]*landingSize:]
		n := guard.Size(len(k), len(content))
		g := guard.Build(b[:n], &guard.Item{Version: 9, Key: []byte(k), Value: content})
		if whole {
			guard.Show(b[:n], g)
		}
	}
	pass(900 * time.Millisecond)
	get()
	require.Len(t, s.reads, 1)
	place("k", false)
	e.readDone(land, s.reads[0], nil)
	require.Len(t, s.reads, 2, "again")
	place("k", true)
	e.readDone(land, s.reads[1], nil)
	require.Equal(t, []Value{{Value: []byte("value"), Found: true, TS: 9}}, got)

	get()
	for range maxReads {
		place("k", false)
		e.readDone(land, s.reads[len(s.reads)-1], nil)
	}
	require.Len(t, s.reads, 2+maxReads)
	require.Len(t, s.sent, 1, "by message in the end")
	answer()
	require.Equal(t, Timestamp(5), got[0].TS)

	get()
	place("j", true)
	e.readDone(land, s.reads[len(s.reads)-1], nil)
	require.Len(t, s.sent, 1, "the slot is another key's")
	answer()

	reads := len(s.reads)
	pass(985 * time.Millisecond) // the tenure counts from when the request was sent, less what clocks may differ in rate
	get()
	require.Len(t, s.reads, reads)
	require.Len(t, s.sent, 1, "the tenure is over")
	answer()
	get()
	reads++
	require.Len(t, s.reads, reads, "there is a new one")
	place("k", true)
	e.readDone(land, s.reads[reads-1], nil)
	wall += 5000 // the machine was suspended
	get()
	require.Len(t, s.reads, reads)
	require.Len(t, s.sent, 1)
}

// TestTwoLives: a partition begins a new life between the phases, so nothing is committed.
func TestTwoLives(t *testing.T) {
	e := newEngine(Fast, 1, func() (int64, uint64) { return 1, 1_700_000_000_000 })
	e.setTable(3, 2)
	var stubs []*stub
	for _, l := range e.links {
		s := &stub{}
		stubs = append(stubs, s)
		e.attach(l, s, nil, nil, &protocol.Welcome{Term: 7})
	}
	var pairs []Pair
	for i := byte('a'); i < 'q'; i++ {
		pairs = append(pairs, Pair{Key: []byte{i}, Value: []byte{i}})
	}
	var failure error
	e.startPut(pairs, 1e12, func(_ Timestamp, err error) { failure = err })
	answer := func(i int) {
		var n protocol.Newest
		for _, q := range stubs[i].sent {
			stubs[i].in = append(stubs[i].in, wire.Message{Header: q.Header, Body: n.AppendBody(nil)})
		}
		stubs[i].sent = nil
		e.step()
	}
	answer(0)
	l := e.links[1]
	e.lost(l, errProtocol)
	stubs[1] = &stub{}
	e.attach(l, stubs[1], nil, nil, &protocol.Welcome{Term: 8})
	e.step()
	require.Len(t, stubs[1].sent, 1, "PREPARE is sent to the new life")
	answer(1)
	require.ErrorIs(t, failure, ErrUnknownOutcome)
	require.Empty(t, stubs[0].sent)
	require.Empty(t, stubs[1].sent)

	// The same for a read: it begins anew.
	done := false
	var keys [][]byte
	for _, p := range pairs {
		keys = append(keys, p.Key)
	}
	e.startGet(keys, 1e12, func(_ []Value, err error) {
		require.NoError(t, err)
		done = true
	})
	e.step()
	tell := func(i int, term uint64) {
		var q protocol.Get
		require.NoError(t, q.Parse(stubs[i].sent[0].Body))
		g := protocol.Got{Term: term, Versions: make([]protocol.Version, len(q.Keys))}
		for n := range g.Versions {
			g.Versions[n].State = protocol.StateNever
		}
		stubs[i].in = append(stubs[i].in, wire.Message{Header: stubs[i].sent[0].Header, Body: g.AppendBody(nil)})
		stubs[i].sent = nil
		e.step()
	}
	tell(0, 7)
	tell(1, 9)
	require.False(t, done, "partition 1 has begun another life")
	require.Len(t, stubs[0].sent, 1)
	tell(0, 7)
	tell(1, 9)
	require.True(t, done)
}

// TestAbandon: a call whose time is over leaves its transaction to the partitions: it aborts nothing.
func TestAbandon(t *testing.T) {
	now := int64(1)
	e := newEngine(Fast, 1, func() (int64, uint64) { return now, 1_700_000_000_000 + uint64(now/1e6) })
	e.setTable(3, 2)
	var stubs []*stub
	for _, l := range e.links {
		s := &stub{}
		stubs = append(stubs, s)
		e.attach(l, s, nil, nil, &protocol.Welcome{Term: 7})
	}
	var pairs []Pair
	for i := byte('a'); i < 'q'; i++ {
		pairs = append(pairs, Pair{Key: []byte{i}})
	}
	var failure error
	e.startPut(pairs, now+int64(time.Second), func(_ Timestamp, err error) { failure = err })
	now += int64(2 * time.Second)
	e.tick()
	e.step()
	require.ErrorIs(t, failure, ErrUnknownOutcome)
	for _, s := range stubs {
		require.Len(t, s.sent, 1)
		require.EqualValues(t, protocol.OpPrepare, s.sent[0].Op)
	}
}
