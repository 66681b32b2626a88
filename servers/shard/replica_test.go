package shard

import (
	"bytes"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/mem"
	"flashdbm/servers/guard"
	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/replica"
	"flashdbm/servers/store"
	"flashdbm/servers/wire"
)

// memberDesk is a desk whose shard is the member "a".
func memberDesk(t *testing.T, mode Durability, ended uint64, more func(*Options)) *desk {
	return newDesk(t, mode, filepath.Join(t.TempDir(), "f"), func(o *Options) {
		d := mem.NewNetwork().Open()
		t.Cleanup(func() { d.Close() })
		log, err := replica.NewLog(d, 1<<16, 0, nil)
		require.NoError(t, err)
		o.Membership = Membership{Log: log, Self: "a", Ended: ended, RingSize: 1 << 16, Memory: d}
		if more != nil {
			more(o)
		}
	})
}

// record gives the shard a record, and lets time pass until the shard may serve.
func (d *desk) record(revision, term uint64, primary string, others ...string) {
	set := others
	if primary != "" {
		set = append([]string{primary}, others...)
	}
	d.s.Learn(replica.Record{Revision: revision, Term: term, Primary: primary, Set: set})
	d.s.Sweep()
	for range 30 { // the clock does not jump: that would be a suspension
		d.now += 50e6
		d.wall += 50
		d.s.Sweep()
	}
	if r := d.s.Reign(); r != nil && r.Serving() && len(d.s.conns) == 0 { // connections of an earlier reign were ended
		d.s.Attach(d, Greeting{Client: 1, Next: 1, Term: d.s.servingTerm()})
	}
}

// TestReigns: a member reigns in a term of a record that names it, unless it was told to stop that term, or its life
// began in that term.
func TestReigns(t *testing.T) {
	d := memberDesk(t, Memory, 3, nil)
	d.record(1, 3, "a")
	assert.Nil(t, d.s.Reign(), "the life began in term 3, in which an earlier one may have reigned")
	s, _ := d.get("k")
	assert.Equal(t, protocol.StatusUnavailable, s)
	rec := replica.Record{Revision: 2, Term: 4, Primary: "a", Set: []string{"a"}}
	require.True(t, d.s.Stop(&rec), "by a leader who has read the record before this member has")
	d.record(2, 4, "a")
	assert.Nil(t, d.s.Reign(), "it was stopped for term 5")
	d.record(3, 5, "a")
	require.NotNil(t, d.s.Reign())
	assert.EqualValues(t, 5, d.s.Term())
	d.put("k", "v")
	assert.False(t, d.s.Stop(&replica.Record{Revision: 3, Term: 5}), "a primary learns from the record that it is none")
	d.record(4, 6, "b")
	assert.Nil(t, d.s.Reign())
	assert.False(t, d.s.Follower().Whole(), "it may have entries that nobody else will have")
	d.record(5, 7, "a")
	assert.Nil(t, d.s.Reign(), "and nobody goes on with them")
}

// TestNothingIsReadWithoutTenure: a primary whose secondary has granted it no tenure sends no answer that depends on
// a read.
func TestNothingIsReadWithoutTenure(t *testing.T) {
	d := memberDesk(t, Memory, 0, nil)
	d.record(1, 1, "a")
	v := d.put("k", "v")
	s, it := d.get("k")
	require.Equal(t, protocol.StatusOK, s)
	assert.LessOrEqual(t, it.Pointer.Tenure, uint32(1e6))
	assert.Positive(t, it.Pointer.Tenure)
	d.record(2, 1, "a", "b") // b is away
	for what, ask := range map[string]func() protocol.Status{
		"GET": func() protocol.Status { s, _ := d.get("k"); return s },
		"INSERT": func() protocol.Status {
			s, _ := d.write(protocol.Request{Op: protocol.OpInsert, Key: []byte("k"), Value: []byte("w")})
			return s
		},
		"UPDATE": func() protocol.Status {
			s, _ := d.write(protocol.Request{Op: protocol.OpUpdate, Key: []byte("x"), Value: []byte("w")})
			return s
		},
		"CAS": func() protocol.Status {
			s, _ := d.write(protocol.Request{Op: protocol.OpCompareAndSet, Key: []byte("k"), Operand: v + 1, Value: []byte("w")})
			return s
		},
		"SCAN": func() protocol.Status {
			return protocol.Status(d.send(protocol.OpScan, 0, (&protocol.Scan{Last: 1}).AppendBody(nil)).Status)
		},
		"RENEW": func() protocol.Status {
			return protocol.Status(d.send(protocol.OpRenew, 0, protocol.AppendRenew(nil, v, []byte("k"))).Status)
		},
	} {
		assert.Equal(t, protocol.StatusUnavailable, ask(), what)
	}
	q := protocol.Request{Op: protocol.OpPut, Key: []byte("k"), Value: []byte("w"), Number: 100, Oldest: 100}
	d.in = append(d.in, wire.Message{Header: wire.Header{Op: uint8(q.Op), Request: 1}, Body: q.AppendBody(nil)})
	d.s.Sweep()
	assert.Empty(t, d.out, "a write waits for b")
	d.record(3, 2, "b") // another member reigns: the outcome of the write is unknown
	require.Len(t, d.out, 1)
	assert.Equal(t, protocol.StatusUnknownOutcome, protocol.Status(d.out[0].Status))
}

// TestRepeatedAnswersNeedTenure: the answer to a write that made no entry depends on a read, also when it is repeated.
// If another member may reign, that member does not know the answer, and may have applied the same write. An entry is
// known to every member that may ever reign.
func TestRepeatedAnswersNeedTenure(t *testing.T) {
	d, o := reigning(t) // "k" is there
	request := func(op protocol.Op, key, value string, operand uint64, flags protocol.Flags) protocol.Request {
		d.number++
		return protocol.Request{Op: op, Key: []byte(key), Value: []byte(value), Operand: operand, Flags: flags, Number: d.number, Oldest: 1}
	}
	type told struct {
		what  string
		q     protocol.Request
		s     protocol.Status
		w     protocol.Written
		entry bool
	}
	list := []told{
		{what: "PUT", q: request(protocol.OpPut, "y", "w", 0, 0), entry: true},
		{what: "REMOVE", q: request(protocol.OpRemove, "y", "", 0, 0), entry: true},
		{what: "ADD", q: request(protocol.OpAdd, "n", "", 3, 0), entry: true},
		{what: "INSERT of what is there", q: request(protocol.OpInsert, "k", "w", 0, 0), s: protocol.StatusExists},
		{what: "UPDATE of what is not", q: request(protocol.OpUpdate, "x", "w", 0, 0), s: protocol.StatusNotFound},
		{what: "REMOVE of what is not", q: request(protocol.OpRemove, "x", "", 0, 0), s: protocol.StatusNotFound},
		{what: "CAS of another version", q: request(protocol.OpCompareAndSet, "k", "w", 1, 0), s: protocol.StatusVersion},
		{what: "CAS that removes what is not there", q: request(protocol.OpCompareAndSet, "x", "", 0, protocol.FlagRemove)},
		{what: "ADD to what is no number", q: request(protocol.OpAdd, "k", "", 1, 0), s: protocol.StatusNotNumber},
	}
	for i := range list {
		x := &list[i]
		first, w := d.write(x.q)
		require.Equal(t, x.s, first, x.what)
		again, same := d.write(x.q)
		assert.Equal(t, first, again, x.what)
		assert.Equal(t, w, same, x.what)
		x.w = w
	}
	moved := request(protocol.OpPut, "k", "w", 0, 0)
	cl := d.s.conns[0].client
	cl.outcomes[moved.Number] = outcome{status: protocol.StatusMoved}
	list = append(list, told{what: "that it has moved", q: moved})
	o.mute = true
	d.pass(25)
	require.NotNil(t, d.s.Reign())
	require.True(t, d.s.unsure())
	for _, x := range list {
		s, w := d.write(x.q)
		if !x.entry {
			x.s, x.w = protocol.StatusUnavailable, protocol.Written{}
		}
		assert.Equal(t, x.s, s, x.what)
		assert.Equal(t, x.w, w, x.what)
	}
}

// TestLateRequests: a request that was sent to a member before it served is not executed. The client may have given
// that connection up long ago, and may have been refused by the primary of that time, of which this member knows
// nothing.
func TestLateRequests(t *testing.T) {
	const polled, later, connection = "it is polled when the reign begins to serve", "it comes later", "its connection, which was greeted before, comes later"
	for _, what := range []string{polled, later, connection} {
		t.Run(what, func(t *testing.T) {
			early := what == polled
			d := memberDesk(t, Memory, 0, nil)
			q := protocol.Request{Op: protocol.OpPut, Key: []byte("k"), Value: []byte("w"), Number: 1, Oldest: 1}
			late := []wire.Message{{Header: wire.Header{Op: uint8(q.Op), Request: 1}, Body: q.AppendBody(nil)}}
			d.s.Learn(replica.Record{Revision: 1, Term: 1, Primary: "a", Set: []string{"a"}})
			for d.s.passive() {
				d.now += 50e6
				d.wall += 50
				if d.s.Step(time.Time{}); early {
					d.s.inbox = append(d.s.inbox, message{c: d.s.conns[0], id: 1, op: q.Op, body: late[0].Body})
				}
				d.s.Step(time.Time{})
			}
			if !early {
				d.in = late
			}
			if what == connection {
				d.pass(1)
				d.s.Attach(d, Greeting{Client: 1, Next: 1})
			}
			d.pass(3)
			assert.Zero(t, d.s.Connections())
			assert.Zero(t, d.s.seq, "it was not decided")
			d.in, d.out = nil, nil
			d.s.Attach(d, Greeting{Client: 1, Next: 2, Term: d.s.servingTerm()})
			s, _ := d.get("k")
			assert.Equal(t, protocol.StatusNotFound, s)
		})
	}
}

// TestTenureThatIsLeftIsPassedOn: a client gets only the tenure that is left. With a whole second it would still Read
// after another member serves.
func TestTenureThatIsLeftIsPassedOn(t *testing.T) {
	d := memberDesk(t, Memory, 0, nil)
	d.record(1, 1, "a")
	d.put("k", "v")
	end := d.s.Reign().TenureEnd()
	d.s.now = end - 250e6
	assert.EqualValues(t, 250e3, d.s.tenureLeft())
	d.s.now = end + 1
	assert.Zero(t, d.s.tenureLeft())
	assert.True(t, d.s.unsure())
}

// TestClockJumpEndsTenure: while the clock stood still, another member may have begun to serve.
func TestClockJumpEndsTenure(t *testing.T) {
	d, o := reigning(t)
	require.Greater(t, d.s.Reign().TenureEnd(), d.s.now)
	o.off = true
	d.wall += 100 + 1
	d.s.Sweep()
	assert.Zero(t, d.s.Reign().TenureEnd(), "what was granted before says nothing")
	assert.True(t, d.s.unsure())
}

// An offering is a link of a member that wants to be the primary.
type offering struct {
	replica.Link
	offer []replica.Message
	said  []replica.Message
}

func (o *offering) Send(m *replica.Message) { o.said = append(o.said, *m) }
func (o *offering) Receive() (m replica.Message, ok bool) {
	if len(o.offer) > 0 {
		m, o.offer, ok = o.offer[0], nil, true
	}
	return m, ok
}
func (o *offering) Err() error { return nil }
func (o *offering) Close()     {}

// TestPrimaryThatFollows: a primary to which a later primary comes says from the start that its state counts no more
// than a part of a copy.
func TestPrimaryThatFollows(t *testing.T) {
	d := memberDesk(t, Memory, 0, nil)
	d.record(1, 1, "a")
	d.put("k", "v")
	o := &offering{offer: []replica.Message{{Kind: replica.KindOffer, Term: 2}}}
	d.s.Follower().Offered(o)
	d.s.Sweep()
	require.Len(t, o.said, 1)
	assert.Equal(t, replica.KindAccept, o.said[0].Kind)
	assert.Zero(t, o.said[0].Flags&replica.FlagWhole)
	assert.Nil(t, d.s.Reign())
	late := &offering{offer: []replica.Message{{Kind: replica.KindOffer, Term: 1}}}
	d.s.Follower().Offered(late)
	d.s.Sweep()
	require.Len(t, late.said, 1)
	assert.Equal(t, replica.KindRefuse, late.said[0].Kind)
}

// TestAnswersGoWithEntries: a secondary that is promoted answers a repeated write instead of applying it again, and
// so does one that got a copy.
func TestAnswersGoWithEntries(t *testing.T) {
	p := memberDesk(t, Memory, 0, nil)
	p.record(1, 1, "a")
	number := uint64(7)
	add := protocol.Request{Op: protocol.OpAdd, Key: []byte("n"), Operand: 5, Number: number, Oldest: number}
	s, w := p.write(add)
	require.Equal(t, protocol.StatusOK, s)
	require.EqualValues(t, 5, w.Sum)
	insert := protocol.Request{Op: protocol.OpInsert, Key: []byte("n"), Number: number + 1, Oldest: number}
	s, _ = p.write(insert)
	require.Equal(t, protocol.StatusExists, s)
	c := change{kind: changePut, Item: guard.Item{Version: w.Version, Key: []byte("n"), Value: []byte("5")}, origin: &origin{client: 1, number: number, oldest: number, floor: 1, sum: 5}}
	for what, take := range map[string]func(d *desk){
		"entry": func(d *desk) {
			body := c.append(nil)
			require.True(t, (*merged)(d.s).Merge(1, 1, body))
			d.s.o.Log.Append(1, body)
		},
		"copy": func(d *desk) {
			require.NoError(t, (*merged)(d.s).Forget(1, nil, (*source)(p.s).Header()))
			body, _, last, ok := (*source)(p.s).Piece("x", 0, 0)
			require.True(t, ok && last)
			require.True(t, (*merged)(d.s).Piece(body))
			require.True(t, (*merged)(d.s).Whole(1))
			d.s.o.Log.Append(1, nil)
			d.s.Attach(d, Greeting{Client: 1, Next: 8, Term: d.s.servingTerm()}) // the old connection was ended
		},
	} {
		t.Run(what, func(t *testing.T) {
			d := memberDesk(t, Memory, 0, nil)
			take(d)
			d.record(2, 2, "a")
			require.True(t, d.s.Reign().Serving())
			s, again := d.write(add)
			assert.Equal(t, protocol.StatusOK, s)
			assert.Equal(t, w, again, "the same answer")
			_, it := d.get("n")
			assert.Equal(t, "5", string(it.Value))
			s, _ = d.write(insert)
			assert.Equal(t, protocol.StatusExists, s, "what was refused may be decided anew")
			d.number = number + 1
			assert.Greater(t, d.put("other", "x"), w.Version+1, "versions of a new reign are above all that were given")
		})
	}
}

// TestAnswersBeforeARestart: a secondary whose file had an entry when its life began does not know the answer of that
// entry. Once it is the primary, it does not apply that write again. It decides about writes that cannot be among
// those entries as always.
func TestAnswersBeforeARestart(t *testing.T) {
	p := memberDesk(t, Memory, 0, nil)
	p.record(1, 1, "a")
	add := func(number uint64) protocol.Request {
		return protocol.Request{Op: protocol.OpAdd, Key: []byte("n"), Operand: number, Number: number, Oldest: 7}
	}
	var entries [2][]byte
	for i := range entries {
		s, _ := p.write(add(7 + uint64(i)))
		require.Equal(t, protocol.StatusOK, s)
		entries[i] = bytes.Clone(p.s.buf)
	}
	d := memberDesk(t, Memory, 0, nil)
	d.s.dropClients()
	clear(d.s.clients)
	d.s.o.Log.Append(1, entries[0]) // the file has it
	require.True(t, (*merged)(d.s).Merge(2, 1, entries[1]))
	d.s.o.Log.Append(1, entries[1])
	d.record(2, 2, "a")
	require.True(t, d.s.Reign().Serving())
	d.s.Attach(d, Greeting{Client: 1, Next: 10, Term: d.s.servingTerm()})
	s, _ := d.write(add(7))
	assert.Equal(t, protocol.StatusUnknownOutcome, s, "of the file")
	s, w := d.write(add(8))
	assert.Equal(t, protocol.StatusOK, s)
	assert.EqualValues(t, 7+8, w.Sum, "the answer that the primary gave")
	s, w = d.write(add(9))
	assert.Equal(t, protocol.StatusOK, s)
	assert.EqualValues(t, 7+8+9, w.Sum)
}

// TestCopyMeetsEntries: an item that an entry has changed since the copy began is newer than the copy's item.
func TestCopyMeetsEntries(t *testing.T) {
	p := memberDesk(t, Memory, 0, nil)
	p.record(1, 1, "a")
	for _, k := range []string{"kept", "removed", "changed"} {
		p.put(k, "old")
	}
	body, _, _, ok := (*source)(p.s).Piece("x", 0, 0)
	require.True(t, ok)
	d := memberDesk(t, Memory, 0, nil)
	require.NoError(t, (*merged)(d.s).Forget(3, nil, (*source)(p.s).Header()))
	remove := change{kind: changeRemove, Item: guard.Item{Version: p.s.base + 4, Key: []byte("removed")}}
	put := change{kind: changePut, Item: guard.Item{Version: p.s.base + 5, Key: []byte("changed"), Value: []byte("new")}}
	require.True(t, (*merged)(d.s).Merge(4, 1, remove.append(nil)))
	require.True(t, (*merged)(d.s).Merge(5, 1, put.append(nil)))
	require.True(t, (*merged)(d.s).Piece(body))
	require.True(t, (*merged)(d.s).Piece(body), "again, as after a piece that found no room")
	for k, want := range map[string]string{"kept": "old", "removed": "", "changed": "new"} {
		st := d.s.shownState(d.s.hash([]byte(k)), []byte(k), nil)
		assert.Equal(t, want, string(st.item.Value), k)
		assert.Equal(t, want != "", st.found, k)
	}
	assert.Equal(t, 2, d.s.table.Len())
}

// TestCopyOfLargeValues: a piece of a copy fits into a message, however many large values are in a bucket of the
// table.
func TestCopyOfLargeValues(t *testing.T) {
	d := memberDesk(t, Memory, 0, nil)
	d.record(1, 1, "a")
	const n, size = 20, 900_000
	d.s.o.Log.Free()
	for i := range n { // not by requests: the test's log is smaller than such an entry
		it := guard.Item{Version: uint64(i + 1), Key: []byte{byte(i)}, Value: make([]byte, size)}
		require.NoError(t, d.s.takeCopied(&it))
	}
	got, from := 0, uint64(0)
	for last := false; !last; {
		body, next, end, ok := (*source)(d.s).Piece("x", 0, from)
		require.True(t, ok)
		m := replica.Message{Body: body}
		require.LessOrEqual(t, m.Size(), wire.MaxBody)
		got += len(body) / size
		from, last = next, end
	}
	assert.Equal(t, n, got)
}

// TestCopyWaitsForTheFile: a copy is read from the file once the file has the entry after which the log brings
// everything.
func TestCopyWaitsForTheFile(t *testing.T) {
	var st *store.Store
	d := memberDesk(t, Async, 0, func(o *Options) { st = o.Store })
	d.record(1, 1, "a")
	d.put("k", "v")
	d.s.complete = false // as after a start, or when items were evicted
	_, _, _, ok := (*source)(d.s).Piece("b", d.s.seq+1, 0)
	assert.False(t, ok)
	assert.Empty(t, d.s.pieces, "the file is not asked yet")
	require.Eventually(t, func() bool { return st.Applied() >= d.s.seq }, time.Minute, time.Millisecond)
	require.Eventually(t, func() bool {
		body, _, last, ok := (*source)(d.s).Piece("b", d.s.seq, 0)
		d.s.Sweep()
		return ok && last && len(body) == copyItemHead+2
	}, time.Minute, time.Millisecond)
}

// An obedient member follows a primary and confirms everything that its log has.
type obedient struct {
	replica.Link
	s      *Shard
	ring   fabric.Region
	in     []replica.Message
	off    bool // it confirms no more than before, and none of its Writes completes
	mute   bool // it confirms nothing any more
	writes int
	seq    uint64
	pos    uint64
}

func (o *obedient) Send(m *replica.Message) {
	if o.mute {
		return
	}
	if !o.off {
		o.seq = o.s.o.Log.Last()
	}
	a := replica.Message{Term: m.Term, Seq: o.seq, Pos: o.pos, Synced: o.seq, Time: m.Time, Flags: replica.FlagWhole, Room: math.MaxUint64}
	switch m.Kind {
	case replica.KindOffer:
		a.Kind, a.Key, a.Pos = replica.KindAccept, o.ring.Key(), o.s.o.Log.TermAt(o.seq)
	case replica.KindStart:
		o.pos = m.Pos
		return
	case replica.KindAsk:
		a.Kind = replica.KindAnswer
	default:
		return
	}
	o.in = append(o.in, a)
}

func (o *obedient) Receive() (m replica.Message, ok bool) {
	if len(o.in) > 0 {
		m, o.in, ok = o.in[0], o.in[1:], true
	}
	return m, ok
}
func (o *obedient) Write(fabric.Region, uint64, uint64, fabric.Key, uint64) error {
	o.writes++
	return nil
}

func (o *obedient) Written() (n int) {
	if !o.off {
		n, o.writes = o.writes, 0
	}
	return n
}
func (o *obedient) Err() error { return nil }
func (o *obedient) Close()     {}

// reigning returns a desk whose shard is the primary, with b in its set.
func reigning(t *testing.T) (*desk, *obedient) {
	d := memberDesk(t, Memory, 0, nil)
	d.record(1, 1, "a")
	ring, err := d.s.o.Memory.Alloc(1<<16, 0)
	require.NoError(t, err)
	o := &obedient{s: d.s, ring: ring}
	d.put("k", "v")
	d.s.Learn(replica.Record{Revision: 2, Term: 1, Primary: "a", Set: []string{"a", "b"}})
	d.pass(1)
	require.Equal(t, "b", d.s.Reign().Dial())
	d.s.Reign().Attach("b", o)
	d.pass(4)
	return d, o
}

// closing returns a desk whose shard has begun to hand its reign over to b.
func closing(t *testing.T) (*desk, *obedient) {
	d, o := reigning(t)
	d.put("k", "w")
	require.True(t, d.s.Reign().HandOver("b", true))
	s, it := d.get("k")
	require.Equal(t, protocol.StatusOK, s, "it serves")
	assert.Zero(t, it.Pointer.Tenure, "and passes on no tenure")
	assert.Zero(t, d.s.tenureLeft())
	return d, o
}

func (d *desk) pass(steps int) {
	for range steps {
		d.now += 50e6
		d.wall += 50
		d.s.Sweep()
	}
}

// TestHandedOverFollows: a primary that has handed its reign over follows with its own state, if all of that is
// committed.
func TestHandedOverFollows(t *testing.T) {
	next := replica.Record{Revision: 3, Term: 2, Primary: "b", Set: []string{"a", "b"}, Handed: true}
	t.Run("still", func(t *testing.T) {
		d, _ := closing(t)
		d.pass(30)
		require.True(t, d.s.Reign().Closed())
		rec, ok := d.s.Reign().Proposal()
		require.True(t, ok)
		assert.True(t, rec.Handed)
		d.s.Learn(next)
		d.s.Sweep()
		assert.Nil(t, d.s.Reign())
		assert.True(t, d.s.Follower().Whole())
	})
	t.Run("uncommitted", func(t *testing.T) {
		d, o := closing(t)
		for !d.s.Reign().Closed() {
			d.pass(1)
		}
		o.off = true
		d.s.appendNothing(&change{kind: changeNothing})
		d.s.Learn(next)
		d.s.Sweep()
		assert.Nil(t, d.s.Reign())
		assert.False(t, d.s.Follower().Whole(), "b may lack it")
	})
	t.Run("early", func(t *testing.T) {
		d, _ := closing(t)
		d.s.Learn(next)
		d.s.Sweep()
		assert.Nil(t, d.s.Reign())
		assert.False(t, d.s.Follower().Whole(), "clients may Read what it has")
	})
	t.Run("closed", func(t *testing.T) {
		d, o := closing(t)
		for !d.s.Reign().Closed() {
			d.pass(1)
		}
		o.off = true
		q := protocol.Request{Op: protocol.OpPut, Key: []byte("k"), Value: []byte("x"), Number: 50, Oldest: 50}
		d.in = append(d.in, wire.Message{Header: wire.Header{Op: uint8(q.Op), Request: 1}, Body: q.AppendBody(nil)})
		d.s.Sweep()
		assert.Len(t, d.in, 1, "it is not polled")
	})
}
