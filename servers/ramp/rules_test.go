package ramp

import (
	"context"
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

// A stub is a connection to a partition, and the partition's memory, both controlled by a test.
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

func (s *stub) Reads(_ fabric.Region, ops []wire.ReadOp) (int, error) {
	for _, o := range ops {
		s.reads = append(s.reads, o.Token)
	}
	return len(ops), nil
}

// TestReads: a slot is Read while the tenure lasts and the machine was not suspended. A torn slot is Read twice more
// and then requested by message; a slot of another key is requested at once.
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
	m := protocol.MakeMeta(protocol.KindHashes, 1, []uint64{circle.Hash(3, key)})
	content := m.AppendContent(nil, []byte("value"))
	answer := func() { // to all requests that were sent
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

	place := func(k string, whole bool) { // sets what the next Read brings
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
	pass(985 * time.Millisecond) // the tenure counts from the time when the request was sent, less the difference that the rates of clocks may have
	get()
	require.Len(t, s.reads, reads)
	require.Len(t, s.sent, 1, "the tenure is over")
	answer()
	get()
	reads++
	require.Len(t, s.reads, reads, "there is a new one")
	place("k", true)
	e.readDone(land, s.reads[reads-1], nil)
	get()
	reads++
	require.Len(t, s.reads, reads)
	place("k", true)
	pass(time.Second)
	e.readDone(land, s.reads[reads-1], nil)
	require.Nil(t, got, "the tenure has ended since the Read was posted")
	require.Len(t, s.sent, 1)
	answer()
	require.Equal(t, Timestamp(5), got[0].TS)
	wall += 5000 // the machine was suspended
	get()
	require.Len(t, s.reads, reads)
	require.Len(t, s.sent, 1)
}

// TestReadOfLastLife: a Read brings what the last life of a partition has shown, and the next life of another
// partition answers. The transaction of the copy may be lost there, so the reader begins again.
func TestReadOfLastLife(t *testing.T) {
	now, wall := int64(1), uint64(1_700_000_000_000)
	e := newEngine(Fast, 1, func() (int64, uint64) { return now, wall })
	e.slots = make(slots, 8)
	e.setTable(3, 2)
	d := mem.NewNetwork().Open()
	defer d.Close()
	land, err := newLanding(d, 2)
	require.NoError(t, err)
	var stubs []*stub
	keys := make([][]byte, 2)
	for i := byte('a'); keys[0] == nil || keys[1] == nil; i++ {
		keys[e.owner(circle.Hash(3, []byte{i})).number] = []byte{i}
	}
	for _, l := range e.links {
		s := &stub{}
		stubs = append(stubs, s)
		e.attach(l, s, s, land, &protocol.Welcome{Term: 7})
	}
	hash := circle.Hash(3, keys[0])
	e.slots.put(slot{protocol.Slot{Offset: 64, Length: 128}, hash, 7})
	e.links[0].extents[0] = &extent{known: true}
	e.links[0].tenure = now + int64(time.Second)
	e.lost(e.links[1], errProtocol)
	stubs[1] = &stub{}
	e.attach(e.links[1], stubs[1], nil, nil, &protocol.Welcome{Term: 8}) // partition 0 has begun a new life, too, which the client does not know yet
	done := false
	e.startGet(keys, now+int64(time.Hour), func(_ []Value, err error) {
		require.NoError(t, err)
		done = true
	})
	require.Len(t, stubs[0].reads, 1)
	m := protocol.MakeMeta(protocol.KindHashes, 1, []uint64{hash})
	content := m.AppendContent(nil, []byte("value"))
	b := land.region.Bytes()[stubs[0].reads[0]*landingSize:]
	n := guard.Size(1, len(content))
	guard.Show(b[:n], guard.Build(b[:n], &guard.Item{Version: 9, Key: keys[0], Value: content}))
	e.readDone(land, stubs[0].reads[0], nil)
	now += int64(1200 * time.Millisecond) // no new life answers earlier
	e.step()
	g := protocol.Got{Term: 8, Versions: []protocol.Version{{State: protocol.StateNever}}}
	stubs[1].in = append(stubs[1].in, wire.Message{Header: stubs[1].sent[0].Header, Body: g.AppendBody(nil)})
	stubs[1].sent = nil
	e.step()
	require.False(t, done)
	require.Len(t, stubs[0].reads, 1)
	require.Len(t, stubs[1].sent, 1, "it begins anew")
}

// TestTwoLives: a partition begins a new life between the phases, so nothing is committed.
func TestTwoLives(t *testing.T) {
	e := newEngine(Fast, 1, func() (int64, uint64) { return 1, 1_700_000_000_000 })
	e.setTable(3, 2)
	var stubs []*stub
	for _, l := range e.links {
		s := &stub{}
		stubs = append(stubs, s)
		e.attach(l, s, nil, nil, &protocol.Welcome{Term: 7, Life: 1})
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
	e.attach(l, stubs[1], nil, nil, &protocol.Welcome{Term: 8, Life: 2})
	e.step()
	require.Len(t, stubs[1].sent, 1, "PREPARE is sent to the new life")
	answer(1)
	require.ErrorIs(t, failure, ErrUnknownOutcome)
	require.Empty(t, stubs[0].sent)
	require.Empty(t, stubs[1].sent)

	// The same for a read: it begins again.
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

// TestAbandonedIsNotSent: after a call has ended, requests of it that were not sent yet, or were sent over a lost
// connection, are not sent any more: the caller may have other keys and values in that memory.
func TestAbandonedIsNotSent(t *testing.T) {
	now := int64(1)
	e := newEngine(Fast, 1, func() (int64, uint64) { return now, 1_700_000_000_000 + uint64(now/1e6) })
	e.setTable(3, 1)
	l := e.links[0]
	key := []byte("a")
	var ended int
	begin := func() {
		e.startPut([]Pair{{Key: key, Value: key}}, now+int64(time.Second), func(_ Timestamp, err error) {
			require.ErrorIs(t, err, ErrUnknownOutcome)
			ended++
		})
		e.startGet([][]byte{key}, now+int64(time.Second), func(_ []Value, err error) {
			require.ErrorIs(t, err, ErrUnavailable)
			ended++
		})
	}
	pass := func() {
		now += int64(2 * time.Second)
		e.tick()
	}
	begin() // without a connection
	pass()
	require.Equal(t, 2, ended)
	require.Empty(t, l.waiting)
	begin()
	e.running[0].abandon(e, ErrClosed)
	e.running[0].abandon(e, ErrClosed)
	require.Equal(t, 4, ended)
	first, second := &stub{}, &stub{}
	e.attach(l, first, nil, nil, &protocol.Welcome{Term: 7})
	e.step()
	require.Empty(t, first.sent)
	begin()
	require.Len(t, first.sent, 2)
	pass()
	e.lost(l, errSilent)
	e.attach(l, second, nil, nil, &protocol.Welcome{Term: 7})
	e.step()
	require.Empty(t, second.sent)
}

// TestSilentPartition: a process that was stopped ends no connection. The client sends the requests without an answer
// to the node that serves the partition by then, if another node may serve it.
func TestSilentPartition(t *testing.T) {
	for _, replicas := range []bool{true, false} {
		now := int64(1)
		e := newEngine(Fast, 1, func() (int64, uint64) { return now, 1_700_000_000_000 + uint64(now/1e6) })
		e.setTable(3, 1)
		e.replicas = replicas
		l := e.links[0]
		first, second := &stub{}, &stub{}
		e.attach(l, first, nil, nil, &protocol.Welcome{Term: 7})
		acked := false
		e.startPut([]Pair{{Key: []byte("a")}}, now+int64(time.Hour), func(_ Timestamp, err error) {
			require.NoError(t, err)
			acked = true
		})
		now += silentAfter
		e.tick()
		require.NotNil(t, l.conn)
		now++
		e.tick()
		require.Equal(t, replicas, l.conn == nil)
		if !replicas {
			continue
		}
		e.attach(l, second, nil, nil, &protocol.Welcome{Term: 8})
		e.step()
		require.Equal(t, first.sent[0].Body, second.sent[0].Body)
		second.in = []wire.Message{{Header: second.sent[0].Header, Body: (&protocol.Newest{}).AppendBody(nil)}}
		e.step()
		require.True(t, acked)
	}
}

// TestSentAgainAndRefused: a PREPARE whose connection was lost may have been served, and forgotten since. If it is
// sent again and refused, for whatever reason, it is unknown whether the transaction was written.
func TestSentAgainAndRefused(t *testing.T) {
	for _, status := range []protocol.Status{protocol.StatusFull, protocol.StatusUnavailable, protocol.StatusRefused, protocol.StatusClock} {
		for _, lost := range []bool{false, true} {
			e := newEngine(Fast, 1, func() (int64, uint64) { return 1, 1_700_000_000_000 })
			e.setTable(3, 1)
			s := &stub{}
			e.attach(e.links[0], s, nil, nil, &protocol.Welcome{Term: 7})
			var failure error
			e.startPut([]Pair{{Key: []byte("a")}}, int64(time.Hour), func(_ Timestamp, err error) { failure = err })
			if lost {
				e.lost(e.links[0], errProtocol)
				s = &stub{}
				e.attach(e.links[0], s, nil, nil, &protocol.Welcome{Term: 7})
				e.step()
			}
			q := s.sent[0]
			n := protocol.Newest{TS: e.clock.Next(1_700_000_000_000)}
			s.in = append(s.in, wire.Message{Header: wire.Header{Op: q.Op, Status: uint16(status), Request: q.Request}, Body: n.AppendBody(nil)})
			e.step()
			switch {
			case lost:
				require.ErrorIs(t, failure, ErrUnknownOutcome)
				require.Len(t, s.sent, 1, "it is left to the partitions")
			case status == protocol.StatusRefused || status == protocol.StatusClock:
				require.NoError(t, failure)
				require.Len(t, s.sent, 2, "it is tried with another timestamp")
			default:
				require.ErrorIs(t, failure, failed(status))
			}
		}
	}
}

// TestRefusedAgain: a transaction that is refused repeatedly is tried again at once a few times, then after pauses.
func TestRefusedAgain(t *testing.T) {
	now := int64(1)
	e := newEngine(Fast, 1, func() (int64, uint64) { return now, 1_700_000_000_000 })
	e.setTable(3, 1)
	s := &stub{}
	e.attach(e.links[0], s, nil, nil, &protocol.Welcome{Term: 7})
	tries := 0
	e.startPut([]Pair{{Key: []byte("a")}}, int64(time.Hour), func(Timestamp, error) { t.Error("it goes on") })
	for range 1000 {
		for _, q := range s.sent {
			tries++
			n := protocol.Newest{TS: e.clock.Next(1_700_000_000_000)}
			s.in = append(s.in, wire.Message{Header: wire.Header{Op: q.Op, Status: uint16(protocol.StatusRefused), Request: q.Request}, Body: n.AppendBody(nil)})
		}
		s.sent = nil
		now += int64(100 * time.Microsecond)
		e.step()
	}
	require.Greater(t, tries, quickTries+50)
	require.Less(t, tries, quickTries+150, "once in a millisecond, for 100 ms")
}

// A refusingHost refuses every PREPARE.
type refusingHost struct{ prepares int }

func (h *refusingHost) Table() (uint64, uint32) { return 3, 2 }
func (h *refusingHost) Prepare(_ uint32, q *protocol.Prepare, _ protocol.Flags, done func(protocol.Status, protocol.Timestamp)) {
	h.prepares++
	done(protocol.StatusRefused, q.TS)
}
func (h *refusingHost) Commit(uint32, protocol.Transaction, func(protocol.Status)) {
	panic("it was refused")
}
func (h *refusingHost) Finished(uint32, protocol.Transaction) { panic("it was refused") }
func (h *refusingHost) Abort(_ uint32, _ protocol.Transaction, done func(protocol.Status)) {
	done(protocol.StatusOK)
}
func (h *refusingHost) Get(uint32, *protocol.Get, protocol.Flags, func(int, *protocol.Version), func(protocol.Status)) {
}

// TestLocalRefused: a transaction that is refused until its time is over was not written, and its caller is told so.
func TestLocalRefused(t *testing.T) {
	h := &refusingHost{}
	c := Local(h, 50*time.Millisecond)
	_, err := c.PutAll(context.Background(), []Pair{{Key: []byte("a")}, {Key: []byte("b")}, {Key: []byte("c")}})
	require.ErrorIs(t, err, ErrUnavailable)
	require.Greater(t, h.prepares, quickTries)
	require.Less(t, h.prepares, 1000)
}

// TestOmitted: a value for which an answer has no room is requested again with the same transactions as the first
// time.
func TestOmitted(t *testing.T) {
	e := newEngine(Small, 1, func() (int64, uint64) { return 1, 1_700_000_000_000 })
	e.setTable(3, 1)
	s := &stub{}
	e.attach(e.links[0], s, nil, nil, &protocol.Welcome{Term: 7})
	content := (&protocol.Meta{}).AppendContent(nil, []byte("value"))
	var got []Value
	e.startGet([][]byte{[]byte("a"), []byte("b")}, 1e12, func(v []Value, err error) {
		require.NoError(t, err)
		got = v
	})
	answer := func(list ...protocol.Version) (q protocol.Get) {
		require.Len(t, s.sent, 1)
		m := s.sent[0]
		s.sent = nil
		require.NoError(t, q.Parse(m.Body))
		g := protocol.Got{Term: 7, Versions: list}
		s.in = append(s.in, wire.Message{Header: m.Header, Body: g.AppendBody(nil)})
		e.step()
		return q
	}
	bare := (&protocol.Meta{Client: 8}).AppendContent(nil, nil)
	require.Empty(t, answer(protocol.Version{State: protocol.StateFound, TS: 5, Content: bare}, protocol.Version{State: protocol.StateFound, TS: 4, Content: bare}).Among)
	both := []protocol.Transaction{{TS: 4, Client: 8}, {TS: 5, Client: 8}}
	require.Equal(t, both, answer(protocol.Version{State: protocol.StateFound, TS: 5, Content: content}, protocol.Version{State: protocol.StateOmitted, TS: 5}).Among)
	require.Equal(t, both, answer(protocol.Version{State: protocol.StateFound, TS: 5, Content: content}).Among)
	require.Len(t, got, 2)
	require.Equal(t, Timestamp(5), got[1].TS)
}

// TestForgottenSinceTheFirstRound: between the two rounds of a read a key is removed, and the remove is forgotten.
// The reader must not return what the first round has told of the key: that lacks the value (Small), or lacks a
// version that a transaction wrote of which the reader sees another part. So the reader begins again. If the remove
// was forgotten before the first round, or does not concern these transactions, the result of the first round counts.
func TestForgottenSinceTheFirstRound(t *testing.T) {
	keys := [][]byte{[]byte("a"), []byte("b")}
	bare, bloom := (&protocol.Meta{Client: 8}).AppendContent(nil, nil), protocol.MakeMeta(protocol.KindBloom, 8, protocol.SortHashes([]uint64{circle.Hash(3, keys[0]), circle.Hash(3, keys[1])}))
	full := bloom.AppendContent(nil, []byte("value"))
	found := func(ts Timestamp, content []byte) protocol.Version {
		return protocol.Version{State: protocol.StateFound, TS: ts, Content: content}
	}
	never := func(floor Timestamp) protocol.Version { return protocol.Version{State: protocol.StateNever, TS: floor} }
	for _, c := range []struct {
		what          string
		alg           Algorithm
		first, second protocol.Version // of key a; key b was written at 20
		anew          bool
	}{
		{"its value never came", Small, found(10, bare), never(30), true},
		{"the other key's transaction may have written it", Small, never(5), never(30), true},
		{"it was forgotten before", Small, never(25), never(30), false},
		{"it is older than the transaction", Small, never(5), never(15), false},
		{"the other key's transaction may have written it", Hybrid, found(10, full), never(30), true},
		{"the filter was wrong", Hybrid, found(10, full), never(0), false},
		{"a remove that is older than the transaction", Hybrid, found(10, full), never(15), false},
	} {
		e := newEngine(c.alg, 1, func() (int64, uint64) { return 1, 1_700_000_000_000 })
		e.setTable(3, 1)
		s := &stub{}
		e.attach(e.links[0], s, nil, nil, &protocol.Welcome{Term: 7})
		ended := false
		e.startGet(keys, 1e12, func(_ []Value, err error) {
			require.NoError(t, err)
			ended = true
		})
		answer := func(a protocol.Version) {
			require.Len(t, s.sent, 1)
			sent := s.sent[0]
			s.sent = nil
			var q protocol.Get
			require.NoError(t, q.Parse(sent.Body))
			g := protocol.Got{Term: 7}
			for _, k := range q.Keys {
				if string(k.Key) == "a" {
					g.Versions = append(g.Versions, a)
				} else {
					g.Versions = append(g.Versions, found(20, full))
				}
			}
			s.in = append(s.in, wire.Message{Header: sent.Header, Body: g.AppendBody(nil)})
			e.step()
		}
		answer(c.first)
		answer(c.second)
		require.Equal(t, c.anew, !ended, "%v: %s", c.alg, c.what)
	}
}

// TestRemoveHasSiblings: a version that removes a key names the other keys of its transaction, and the reader
// requests these.
func TestRemoveHasSiblings(t *testing.T) {
	e := newEngine(Fast, 1, func() (int64, uint64) { return 1, 1_700_000_000_000 })
	e.setTable(3, 1)
	s := &stub{}
	e.attach(e.links[0], s, nil, nil, &protocol.Welcome{Term: 7})
	keys := [][]byte{[]byte("a"), []byte("b")}
	hashes := []uint64{circle.Hash(3, keys[0]), circle.Hash(3, keys[1])}
	m := protocol.MakeMeta(protocol.KindHashes, 1, protocol.SortHashes(hashes))
	var got []Value
	e.startGet(keys, 1e12, func(v []Value, err error) {
		require.NoError(t, err)
		got = v
	})
	answer := func(of map[string]protocol.Version) (q protocol.Get) {
		require.Len(t, s.sent, 1)
		sent := s.sent[0]
		s.sent = nil
		require.NoError(t, q.Parse(sent.Body))
		g := protocol.Got{Term: 7}
		for _, k := range q.Keys {
			g.Versions = append(g.Versions, of[string(k.Key)])
		}
		s.in = append(s.in, wire.Message{Header: sent.Header, Body: g.AppendBody(nil)})
		e.step()
		return q
	}
	answer(map[string]protocol.Version{
		"a": {State: protocol.StateAbsent, TS: 9, Content: m.AppendContent(nil, nil)},
		"b": {State: protocol.StateFound, TS: 5, Content: (&protocol.Meta{}).AppendContent(nil, []byte("old"))},
	})
	require.Nil(t, got)
	q := answer(map[string]protocol.Version{"b": {State: protocol.StateFound, TS: 9, Content: m.AppendContent(nil, []byte("new"))}})
	require.Equal(t, []protocol.Wanted{{TS: 9, Key: keys[1]}}, q.Keys)
	require.Equal(t, []Value{{TS: 9}, {Value: []byte("new"), Found: true, TS: 9}}, got)
}

// TestLocksAreLost: locks end with their connection. Values that were read under locks are valid within the tenure of
// their partitions.
func TestLocksAreLost(t *testing.T) {
	now := int64(1)
	e := newEngine(Fast, 1, func() (int64, uint64) { return now, 1_700_000_000_000 + uint64(now/1e6) })
	e.setTable(3, 2)
	e.replicas = true
	var stubs [2]*stub
	attach := func(i int) {
		stubs[i] = &stub{}
		e.attach(e.links[i], stubs[i], nil, nil, &protocol.Welcome{Term: 7})
		e.step()
	}
	attach(0)
	attach(1)
	var keys [][]byte
	var pairs []Pair
	for i := byte('a'); i < 'q'; i++ {
		keys = append(keys, []byte{i})
		pairs = append(pairs, Pair{Key: []byte{i}})
	}
	sent := func(i int, op protocol.Op) wire.Message {
		require.Len(t, stubs[i].sent, 1)
		m := stubs[i].sent[0]
		stubs[i].sent = nil
		require.Equal(t, op, protocol.Op(m.Op))
		return m
	}
	answer := func(i int, m wire.Message, body []byte) {
		stubs[i].in = append(stubs[i].in, wire.Message{Header: wire.Header{Op: m.Op, Request: m.Request}, Body: body})
		e.step()
	}
	lock := func(i int) {
		m := sent(i, protocol.OpLock)
		var q protocol.Lock
		require.NoError(t, q.Parse(m.Body))
		g := protocol.Got{Term: 7, Tenure: 1_000_000, Versions: make([]protocol.Version, len(q.Keys))}
		for n := range g.Versions {
			g.Versions[n].State = protocol.StateNever
		}
		answer(i, m, g.AppendBody(nil))
	}
	released := func() { // all locks, before the first one is requested again
		for _, x := range stubs {
			require.NotEmpty(t, x.sent)
			require.Equal(t, protocol.OpUnlock, protocol.Op(x.sent[0].Op), "a partition hands over when nobody has a lock")
			x.sent = x.sent[1:]
		}
	}
	reads := 0
	e.startLockedGet(keys, int64(time.Hour), func(_ []Value, err error) {
		require.NoError(t, err)
		reads++
	})
	lock(0)
	e.lost(e.links[0], errSilent)
	attach(0)
	lock(1)
	require.Zero(t, reads, "the locks of partition 0 are lost")
	released()
	lock(0)
	now += int64(1100 * time.Millisecond)
	lock(1)
	require.Zero(t, reads, "another node may have given the locks of partition 0 to others")
	released()
	lock(0)
	e.lost(e.links[1], errSilent)
	attach(1)
	lock(0) // locking begins again with the first lock, which has waited for the others
	lock(1)
	require.Equal(t, 1, reads)
	sent(0, protocol.OpUnlock)
	sent(1, protocol.OpUnlock)

	var failure error
	e.startLockedPut(pairs, int64(time.Hour), func(_ Timestamp, err error) { failure = err })
	lock(0)
	lock(1)
	m := sent(0, protocol.OpPrepare)
	sent(1, protocol.OpPrepare)
	e.lost(e.links[1], errSilent)
	attach(1)
	require.Empty(t, stubs[1].sent, "it has no locks of the transaction")
	require.NoError(t, failure)
	answer(0, m, (&protocol.Newest{}).AppendBody(nil))
	require.ErrorIs(t, failure, ErrUnknownOutcome)
	sent(0, protocol.OpUnlock)
}
