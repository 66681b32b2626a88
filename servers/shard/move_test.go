package shard

import (
	"fmt"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/arena"
	"flashdbm/servers/circle"
	"flashdbm/servers/guard"
	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/replica"
	"flashdbm/servers/store"
)

// A moveLink is a link whose other end is the test.
type moveLink struct {
	replica.Link
	in, out []replica.Message
	seen    int // number of messages of out that answer has seen
	err     error
}

func (l *moveLink) Send(m *replica.Message) { l.out = append(l.out, *m) }
func (l *moveLink) Receive() (m replica.Message, ok bool) {
	if len(l.in) > 0 {
		m, l.in, ok = l.in[0], l.in[1:], true
	}
	return m, ok
}
func (l *moveLink) Err() error { return l.err }
func (l *moveLink) Close()     { l.err = fmt.Errorf("closed") }

// last returns the newest message of a kind that the shard has sent.
func (l *moveLink) last(t *testing.T, kind replica.Kind) *replica.Message {
	t.Helper()
	for i := len(l.out) - 1; i >= 0; i-- {
		if l.out[i].Kind == kind {
			return &l.out[i]
		}
	}
	t.Fatalf("no message of kind %d", kind)
	return nil
}

// view gives the shard a view: the circle, and the records of shard 0, which is the desk's, and of shard 1.
func (d *desk) view(revision uint64, a circle.Assignment, term0, term1 uint64) *View {
	v := &View{Revision: revision, Circle: a, Changed: revision, Seed: 5, Records: map[uint32]replica.Record{
		0: {Revision: d.s.Record().Revision, Term: term0, Primary: "a", Set: []string{"a"}}, 1: {Revision: 1, Term: term1, Primary: "b", Set: []string{"b"}},
	}}
	d.s.See(v.Complete(nil))
	d.s.Sweep()
	return v
}

var (
	all0  = circle.Assignment{Shards: []uint32{0}, Unused: 2}
	away  = circle.Assignment{Shards: []uint32{0}, Next: []uint32{0, 1}, Unused: 2}
	back  = circle.Assignment{Shards: []uint32{0, 1}, Next: []uint32{0}, Unused: 2}
	both  = circle.Assignment{Shards: []uint32{0, 1}, Unused: 2}
	whole = protocol.Scan{Last: math.MaxUint64}
)

// keys returns a key that shard 0 keeps when both shards share the circle, and a key that moves to shard 1.
func keys() (stays, goes string) {
	at := both.At(5)
	for i := 0; stays == "" || goes == ""; i++ {
		k := fmt.Sprint("key-", i)
		if owner, _ := at.Owner(circle.Hash(5, []byte(k))); owner == 0 {
			stays = k
		} else {
			goes = k
		}
	}
	return stays, goes
}

// movingDesk returns a desk whose shard is about to bring a part to shard 1, and the link to that shard.
func movingDesk(t *testing.T, mode Durability) (*desk, *moveLink) {
	d := memberDesk(t, mode, 0, nil)
	d.record(1, 1, "a")
	d.view(2, away, 1, 7)
	to, linked := d.s.MoveDial()
	require.NotNil(t, linked)
	require.EqualValues(t, 1, to)
	l := &moveLink{}
	linked(l)
	begin := l.last(t, moveBegin)
	require.EqualValues(t, 1, begin.Term)
	require.Greater(t, begin.Pos, d.s.base+d.s.seq)
	return d, l
}

// answer answers the messages since the last call, marks only if marks is set, and calls Sweep.
func (d *desk) answer(l *moveLink, marks bool) {
	for ; l.seen < len(l.out); l.seen++ {
		switch m := &l.out[l.seen]; m.Kind {
		case moveBegin:
			l.in = append(l.in, replica.Message{Kind: moveReady})
		case moveItems:
			l.in = append(l.in, replica.Message{Kind: moveTaken, Seq: m.Seq})
		case moveMark:
			if marks {
				l.in = append(l.in, replica.Message{Kind: moveMarked, Seq: m.Seq, Term: 7})
			}
		}
	}
	d.s.Sweep()
}

// until calls answer until the move has come to a phase.
func (d *desk) until(l *moveLink, phase movePhase) {
	d.t.Helper()
	for began := time.Now(); time.Since(began) < 20*time.Second; time.Sleep(20 * time.Microsecond) {
		if d.s.out != nil && d.s.out.phase == phase {
			return
		}
		d.answer(l, true)
	}
	d.t.Fatalf("it does not come to %v", phase)
}

// TestViewOfASuccessor: a primary serves nothing before it knows the changes up to the record that made it the
// primary.
func TestViewOfASuccessor(t *testing.T) {
	d := memberDesk(t, Memory, 0, nil)
	d.view(3, all0, 0, 7)
	d.record(5, 2, "a")
	require.NotNil(t, d.s.Reign())
	s, _ := d.get("k")
	assert.Equal(t, protocol.StatusUnavailable, s)
	s, _ = d.write(protocol.Request{Op: protocol.OpPut, Key: []byte("k")})
	assert.Equal(t, protocol.StatusUnavailable, s)
	assert.Equal(t, protocol.StatusUnavailable, protocol.Status(d.send(protocol.OpScan, 0, whole.AppendBody(nil)).Status))
	d.view(5, both, 2, 7)
	stays, goes := keys()
	d.put(stays, "v")
	s, _ = d.get(goes)
	assert.Equal(t, protocol.StatusMoved, s)
	d.view(4, all0, 2, 7)
	s, _ = d.get(goes)
	assert.Equal(t, protocol.StatusMoved, s, "an older view changes nothing")
}

// TestNoPointersIntoAMove: before a part is closed, clients no longer accept Reads of it, nor of items that are
// written meanwhile. After a move that is given up everything is as before.
func TestNoPointersIntoAMove(t *testing.T) {
	for _, mode := range []Durability{Memory, Async, Sync} {
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			d, l := movingDesk(t, mode)
			stays, goes := keys()
			d.put(stays, "v")
			d.put(goes, "v")
			shown := func(key string) bool {
				p, ok := d.s.table.Find(d.s.hash([]byte(key)), []byte(key))
				require.True(t, ok)
				return guard.Shown(guard.Bytes(d.s.bytesAt(p)))
			}
			_, it := d.get(goes)
			require.True(t, it.HasPointer)
			d.until(l, moveSyncs)
			assert.False(t, shown(goes))
			s, it := d.get(goes)
			assert.Equal(t, protocol.StatusOK, s)
			assert.False(t, it.HasPointer)
			v := d.put(goes, "w")
			assert.False(t, shown(goes))
			renew := d.send(protocol.OpRenew, 0, protocol.AppendRenew(protocol.AppendRenew(nil, v, []byte(goes)), 1, []byte("x")))
			var r protocol.Renewed
			require.NoError(t, r.Parse(renew.Body))
			assert.Zero(t, r.Leases[0])
			assert.True(t, shown(stays))
			_, it = d.get(stays)
			assert.True(t, it.HasPointer)
			d.until(l, moveCloses)
			s, _ = d.get(goes)
			assert.Equal(t, protocol.StatusUnavailable, s)
			s, _ = d.write(protocol.Request{Op: protocol.OpPut, Key: []byte(goes)})
			assert.Equal(t, protocol.StatusUnavailable, s)
			d.put(stays, "w")
			d.view(9, all0, 1, 7)
			assert.Nil(t, d.s.out)
			s, it = d.get(goes)
			assert.Equal(t, protocol.StatusOK, s)
			assert.Equal(t, "w", string(it.Value))
			assert.True(t, it.HasPointer)
			assert.True(t, shown(goes))
		})
	}
}

// TestPartIsHandedOver: the old owner brings the items of the part, and brings items that change meanwhile again. It
// proposes the circle once the new owner has everything. The part stays closed until its fate is known.
func TestPartIsHandedOver(t *testing.T) {
	d, l := movingDesk(t, Async)
	stays, goes := keys()
	d.put(stays, "v")
	version := d.put(goes, "v1")
	got := map[string]string{}
	take := func() {
		clear(got)
		for _, m := range l.out {
			for b := m.Body; m.Kind == moveItems && len(b) > 0; {
				it, flags, rest, err := cutCopied(b)
				require.NoError(t, err)
				if got[string(it.Key)] = string(it.Value); flags&copyRemoved != 0 {
					delete(got, string(it.Key))
				}
				b = rest
			}
		}
	}
	require.Eventually(t, func() bool { d.answer(l, false); take(); return len(got) > 0 }, 10*time.Second, time.Millisecond)
	assert.Equal(t, map[string]string{goes: "v1"}, got, "the rest stays")
	it, _, _, err := cutCopied(l.last(t, moveItems).Body)
	require.NoError(t, err)
	assert.Equal(t, version, it.Version, "an item keeps its version")
	d.put(goes, "v2")
	d.until(l, moveSyncs)
	d.answer(l, false)
	require.Equal(t, moveDurable, l.last(t, moveMark).Flags)
	l.in = append(l.in, replica.Message{Kind: moveMarked, Seq: l.last(t, moveMark).Seq + 1})
	d.s.Sweep()
	require.Error(t, l.err, "a mark that was not sent")
	d.now += moveAgain
	d.s.Sweep()
	_, linked := d.s.MoveDial()
	*l = moveLink{}
	linked(l)
	d.until(l, moveSyncs)
	s, _ := d.write(protocol.Request{Op: protocol.OpRemove, Key: []byte(goes)})
	require.Equal(t, protocol.StatusOK, s)
	for range 5 {
		d.answer(l, false)
	}
	take()
	assert.NotContains(t, got, goes)
	l.in = append(l.in, replica.Message{Kind: moveMarked, Seq: l.last(t, moveMark).Seq, Term: 7})
	d.until(l, moveCloses)
	_, ok := d.s.CircleProposal()
	assert.False(t, ok)
	d.until(l, moveAsks)
	p, ok := d.s.CircleProposal()
	require.True(t, ok)
	assert.Equal(t, circle.Pair{From: 0, To: 1}, p.Pair)
	_, ok = d.s.CircleProposal()
	assert.False(t, ok, "it was just made")
	for range 30 {
		d.now += 50e6
		d.wall += 50
		d.s.Sweep()
	}
	_, ok = d.s.CircleProposal()
	assert.True(t, ok, "its outcome is unknown")
	s, _ = d.get(goes)
	assert.Equal(t, protocol.StatusUnavailable, s, "nor is it known whose the part is")
	d.view(10, both, 1, 7)
	s, _ = d.get(goes)
	assert.Equal(t, protocol.StatusMoved, s)
	_, ok = d.s.CircleProposal()
	assert.False(t, ok)
	require.Eventually(t, func() bool { d.s.Sweep(); return d.s.table.Len() == 1 }, 10*time.Second, time.Millisecond, "it drops what is another one's")
}

// TestMoveBeginsAnew: once the new owner has another primary, no proposal can succeed, so the old owner serves the
// part and brings it again. A part that takes too long to close is opened again.
func TestMoveBeginsAnew(t *testing.T) {
	d, l := movingDesk(t, Memory)
	_, goes := keys()
	d.put(goes, "v")
	d.until(l, moveCloses)
	d.s.Sweep()
	l.seen = len(l.out)
	mark := l.last(t, moveMark).Seq
	d.now += moveClosed + 1
	d.wall += 300
	d.s.Sweep()
	require.Equal(t, moveSyncs, d.s.out.phase)
	l.in = append(l.in, replica.Message{Kind: moveMarked, Seq: mark, Term: 7})
	d.s.Sweep()
	assert.Equal(t, moveSyncs, d.s.out.phase, "the answer comes too late")
	assert.NoError(t, l.err)
	d.put(goes, "w")
	for range 30 {
		d.now += 50e6
		d.wall += 50
		d.s.Sweep()
	}
	d.until(l, moveAsks)
	d.view(4, away, 1, 8)
	assert.Equal(t, moveApart, d.s.out.phase)
	assert.Error(t, l.err)
	d.put(goes, "x")
	to, linked := d.s.MoveDial()
	assert.EqualValues(t, 1, to)
	assert.NotNil(t, linked)
}

// TestChangeIsNotTheNextOne: a primary may learn of the end of one change together with the beginning of the next
// change, which has the same pair. It then brings the part of the next change from the beginning, and proposes
// nothing before that.
func TestChangeIsNotTheNextOne(t *testing.T) {
	d, l := movingDesk(t, Memory)
	d.until(l, moveAsks)
	next := circle.Assignment{Shards: []uint32{0, 1}, Next: []uint32{1}, Unused: 2, Change: away.Change + 1}
	v := &View{Revision: 9, Circle: next, Changed: 9, Seed: 5, Records: d.s.view.Records}
	d.s.See(v.Complete(nil))
	_, ok := d.s.CircleProposal()
	assert.False(t, ok)
	for range 3 {
		d.s.Sweep()
		_, ok = d.s.CircleProposal()
		assert.False(t, ok)
	}
	assert.Equal(t, moveApart, d.s.out.phase)
	assert.Error(t, l.err)
	_, linked := d.s.MoveDial()
	require.NotNil(t, linked)
	again := &moveLink{}
	linked(again)
	assert.Equal(t, next.Change, again.last(t, moveBegin).Synced)
}

// TestScanMeetsMove: a scan ends where the part of another shard begins, and waits while a part is closed.
func TestScanMeetsMove(t *testing.T) {
	for _, mode := range []Durability{Memory, Async} {
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			d, l := movingDesk(t, mode)
			stays, goes := keys()
			d.put(stays, "v")
			d.put(goes, "v")
			for range 2 {
				m := d.send(protocol.OpScan, 0, whole.AppendBody(nil))
				require.Equal(t, protocol.StatusOK, protocol.Status(m.Status))
				_, n, err := protocol.CheckScan(m.Body)
				require.NoError(t, err)
				assert.Equal(t, 2, n)
				d.s.complete = mode == Memory // with files the scan asks the file
			}
			d.until(l, moveCloses)
			h := circle.Hash(5, []byte(stays))
			assert.Equal(t, protocol.StatusUnavailable, protocol.Status(d.send(protocol.OpScan, 0, (&protocol.Scan{First: h, Last: math.MaxUint64}).AppendBody(nil)).Status))
			d.view(9, both, 1, 7)
			h = circle.Hash(5, []byte(goes))
			m := d.send(protocol.OpScan, 0, (&protocol.Scan{First: h, Last: math.MaxUint64}).AppendBody(nil))
			assert.Equal(t, protocol.StatusMoved, protocol.Status(m.Status))
			h = circle.Hash(5, []byte(stays))
			m = d.send(protocol.OpScan, 0, (&protocol.Scan{First: h, Last: math.MaxUint64}).AppendBody(nil))
			require.Equal(t, protocol.StatusOK, protocol.Status(m.Status))
			next, n, err := protocol.CheckScan(m.Body)
			require.NoError(t, err)
			assert.Equal(t, 1, n)
			assert.NotZero(t, protocol.Flags(m.Flags)&protocol.FlagMore)
			assert.Equal(t, both.At(5).Run(h)+1, next)
		})
	}
}

// TestClosedPartIsLeftAlone: the shard decides nothing in a closed part, not even that an item has expired.
func TestClosedPartIsLeftAlone(t *testing.T) {
	d, l := movingDesk(t, Memory)
	_, goes := keys()
	s, _ := d.write(protocol.Request{Op: protocol.OpPut, Flags: protocol.FlagRelative, Expiry: 10_000, Key: []byte(goes), Value: []byte("v")})
	require.Equal(t, protocol.StatusOK, s)
	d.until(l, moveAsks)
	seq := d.s.seq
	for range 250 {
		d.now += 50e6
		d.wall += 50
		d.s.Sweep()
	}
	assert.Equal(t, seq, d.s.seq)
	assert.Equal(t, moveAsks, d.s.out.phase)
}

// comingDesk returns a desk to which a part comes, and the link to the old owner of the part.
func comingDesk(t *testing.T, mode Durability, more func(*Options)) (*desk, *moveLink) {
	d := memberDesk(t, mode, 0, more)
	d.record(1, 1, "a")
	d.view(2, back, 1, 7)
	l := &moveLink{in: []replica.Message{{Kind: moveBegin, Seq: 1, Term: 7, Pos: d.s.base + 1<<40}}}
	d.s.Arrive(l)
	for range 2000 {
		if d.s.Sweep(); len(l.out) > 0 {
			require.Equal(t, moveReady, l.out[0].Kind)
			return d, l
		}
		time.Sleep(50 * time.Microsecond)
	}
	t.Fatalf("it is not ready: %+v", d.s.in)
	return nil, nil
}

func itemsOf(list ...guard.Item) replica.Message {
	m := replica.Message{Kind: moveItems, Seq: 1}
	for i := range list {
		m.Body = appendCopied(m.Body, &list[i])
	}
	return m
}

// TestPartComes: items of the part are committed before they are answered, keep their versions, and are served once
// the part is this shard's.
func TestPartComes(t *testing.T) {
	d, l := comingDesk(t, Async, nil)
	stays, goes := keys()
	l.in = append(l.in, itemsOf(guard.Item{Version: 77, Key: []byte(goes), Value: []byte("v")}, guard.Item{Version: 78, Key: []byte(goes + "-"), Value: []byte("w")}), replica.Message{Kind: moveMark, Seq: 1})
	for range 5 {
		d.s.Sweep()
	}
	assert.EqualValues(t, 1, l.last(t, moveTaken).Seq)
	assert.EqualValues(t, 1, l.last(t, moveMarked).Term)
	s, _ := d.get(goes)
	assert.Equal(t, protocol.StatusMoved, s, "it is not this shard's yet")
	d.put(stays, "v")
	d.view(9, all0, 1, 7)
	s, it := d.get(goes)
	assert.Equal(t, protocol.StatusOK, s)
	assert.EqualValues(t, 77, it.Version)
	assert.Equal(t, "v", string(it.Value))
	assert.Error(t, l.err, "there is nothing left to come")
	assert.Greater(t, d.put(goes, "w"), uint64(1<<40), "above all versions that the old owner has given")
}

// TestBaseIsToldToMembers: a part comes of which every key was removed. The next primary's versions are above those that
// the removed items had.
func TestBaseIsToldToMembers(t *testing.T) {
	d, _ := comingDesk(t, Memory, nil)
	require.EqualValues(t, 1, d.s.seq, "one entry says so")
	m := memberDesk(t, Memory, 0, nil)
	require.True(t, (*merged)(m.s).Merge(1, 1, d.s.buf))
	m.s.o.Log.Append(1, d.s.buf)
	assert.Equal(t, d.s.base, m.s.base)
	m.record(2, 2, "a")
	assert.Greater(t, m.put("k", "v"), d.s.base)
}

// TestPartComesFromThePrimary: the shard takes a part only from the primary that the record names, and no part that
// it owns already.
func TestPartComesFromThePrimary(t *testing.T) {
	d, l := comingDesk(t, Memory, nil)
	refused := func(term uint64) {
		t.Helper()
		x := &moveLink{in: []replica.Message{{Kind: moveBegin, Seq: 1, Term: term}}}
		d.s.Arrive(x)
		d.s.Sweep()
		assert.Error(t, x.err)
	}
	refused(6)
	refused(8)
	assert.NoError(t, l.err)
	d.view(3, back, 1, 8)
	assert.Error(t, l.err, "a primary that was replaced")
	a := circle.Assignment{Shards: []uint32{0, 1, 2}, Next: []uint32{0}, Unused: 3, Moved: []circle.Pair{{From: 1, To: 0}}}
	d.view(4, a, 1, 8)
	refused(8)
}

// TestPartIsDroppedFirst: items that an earlier attempt has brought are removed before the next attempt begins.
func TestPartIsDroppedFirst(t *testing.T) {
	for _, mode := range []Durability{Memory, Async} {
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			d, l := comingDesk(t, mode, nil)
			stays, goes := keys()
			d.put(stays, "v")
			l.in = append(l.in, itemsOf(guard.Item{Version: 77, Key: []byte(goes), Value: []byte("v")}))
			d.s.Sweep()
			d.s.Sweep()
			require.Equal(t, 2, d.s.table.Len())
			again := &moveLink{in: []replica.Message{{Kind: moveBegin, Seq: 1, Term: 7}}}
			d.s.Arrive(again)
			require.Eventually(t, func() bool { d.s.Sweep(); return len(again.out) > 0 }, 10*time.Second, time.Millisecond)
			assert.Error(t, l.err)
			assert.Equal(t, 1, d.s.table.Len())
			d.view(9, all0, 1, 7)
			s, _ := d.get(goes)
			assert.Equal(t, protocol.StatusNotFound, s)
			s, _ = d.get(stays)
			assert.Equal(t, protocol.StatusOK, s)
		})
	}
}

// TestPartIsDroppedOnceItIsShown: items that an earlier attempt has brought may not be committed yet. The drop waits
// for them: otherwise it would not see them, and they would be shown after it.
func TestPartIsDroppedOnceItIsShown(t *testing.T) {
	d, l := comingDesk(t, Memory, nil)
	_, goes := keys()
	d.record(2, 1, "a", "b") // b is away: nothing is committed
	l.in = append(l.in, itemsOf(guard.Item{Version: 77, Key: []byte(goes), Value: []byte("v")}))
	d.s.Sweep()
	require.Len(t, d.s.pending, 1)
	again := &moveLink{in: []replica.Message{{Kind: moveBegin, Seq: 1, Term: 7}}}
	d.s.Arrive(again)
	for range 200 {
		d.s.Sweep()
	}
	assert.Empty(t, again.out)
	d.record(3, 1, "a")
	require.Eventually(t, func() bool { d.s.Sweep(); return len(again.out) > 0 }, 10*time.Second, 20*time.Microsecond)
	assert.Zero(t, d.s.table.Len())
}

// TestMarkOfWhatIsSynced: a mark that asks for a sync is answered when all members have synced the entries before it.
func TestMarkOfWhatIsSynced(t *testing.T) {
	d, l := comingDesk(t, Async, nil)
	n := d.s.seq
	d.s.in[1].owe(&replica.Message{Kind: moveMarked, Seq: 5}, n+3, true)
	d.s.shown = n + 3 // an entry that has not been appended is not synced
	d.s.takeArrival(d.s.in[1])
	d.s.shown = n
	assert.Len(t, l.out, 1)
}

// TestMovedIsAnAnswer: a write that was answered with moved is not applied when its key comes back.
func TestMovedIsAnAnswer(t *testing.T) {
	d := memberDesk(t, Memory, 0, nil)
	d.record(1, 1, "a")
	_, goes := keys()
	d.view(2, all0, 1, 7)
	done := protocol.Request{Op: protocol.OpAdd, Operand: 1, Key: []byte(goes), Number: 10, Oldest: 10}
	s, _ := d.write(done)
	require.Equal(t, protocol.StatusOK, s)
	d.view(3, both, 1, 7)
	s, w := d.write(done)
	assert.Equal(t, protocol.StatusOK, s, "it was applied here")
	assert.EqualValues(t, 1, w.Sum)
	q := done
	q.Number = 11
	s, _ = d.write(q)
	assert.Equal(t, protocol.StatusMoved, s)
	d.view(4, all0, 1, 7)
	s, _ = d.write(q)
	assert.Equal(t, protocol.StatusMoved, s, "a try that comes late: the client has sent it elsewhere")
}

// TestMovedIsToldWithinTenure: a primary that may have been replaced does not answer that a key has moved: the client
// would send the write with a new number.
func TestMovedIsToldWithinTenure(t *testing.T) {
	d := memberDesk(t, Memory, 0, nil)
	d.record(1, 1, "a")
	d.view(3, both, 1, 7)
	_, goes := keys()
	q := protocol.Request{Op: protocol.OpPut, Key: []byte(goes)}
	s, _ := d.write(q)
	assert.Equal(t, protocol.StatusMoved, s)
	d.record(4, 1, "a", "b") // b is away: there is no tenure
	s, _ = d.write(q)
	assert.Equal(t, protocol.StatusUnavailable, s)
}

// TestWalkMeetsTheMemory: a walk returns the item of a key that memory has, not the one that the file had.
func TestWalkMeetsTheMemory(t *testing.T) {
	d := memberDesk(t, Async, 0, nil)
	d.record(1, 1, "a")
	d.put("k", "old")
	d.put("gone", "old")
	w := d.walkWithPiece(func() {
		d.put("k", "new")
		d.put("k2", "new")
		d.write(protocol.Request{Op: protocol.OpRemove, Key: []byte("gone")})
	})
	assert.Equal(t, map[string]string{"k": "new", "k2": "new"}, d.rest(w))
}

// TestWalkMeetsEviction: after a piece of the file has come, a walk finds an item that memory has and notices that
// another one was removed. This holds too if the walk takes the piece when memory could have forgotten both.
func TestWalkMeetsEviction(t *testing.T) {
	d := memberDesk(t, Async, 0, nil)
	d.record(1, 1, "a")
	d.put("k", "v")
	d.put("gone", "v")
	w := d.walkWithPiece(func() {
		d.put("k", "new")
		d.write(protocol.Request{Op: protocol.OpRemove, Key: []byte("gone")})
	})
	require.Eventually(t, func() bool {
		d.s.Sweep()
		return d.s.o.Store.Durable() == d.s.seq && d.s.shown == d.s.seq
	}, 10*time.Second, time.Millisecond)
	for range 3 {
		d.s.evict(1 << 20)
		d.s.Sweep()
	}
	assert.Equal(t, map[string]string{"k": "new"}, d.rest(w))
	d.s.evict(1 << 20)
	d.s.Sweep()
	assert.Zero(t, d.s.table.Len(), "no piece is under way any more")
	assert.Empty(t, d.s.tombs)
}

// walkWithPiece begins a walk over everything, for which a piece of the file has come. It calls meanwhile once the
// file was read.
func (d *desk) walkWithPiece(meanwhile func()) *walk {
	w := d.s.newWalk([]circle.Range{{First: 0, Last: math.MaxUint64}})
	d.s.complete, d.s.tidy = false, w
	require.Eventually(d.t, func() bool { d.s.next(w); return w.asked != 0 && d.s.o.Store.Brought() }, 10*time.Second, time.Millisecond)
	meanwhile()
	require.Eventually(d.t, func() bool { d.s.Sweep(); return w.came != nil }, 10*time.Second, time.Millisecond)
	return w
}

// rest walks to the end, and returns the items that the walk has found.
func (d *desk) rest(w *walk) map[string]string {
	got := map[string]string{}
	for !w.done() {
		list, _, ok := d.s.next(w)
		require.True(d.t, ok)
		for _, it := range list {
			assert.NotContains(d.t, got, string(it.Key))
			got[string(it.Key)] = string(it.Value)
		}
	}
	return got
}

// TestDropMeetsTheLoad: a piece of the file that was read before a range was dropped brings back nothing of the
// range. Nor does a piece that was read while the drop went to the file.
func TestDropMeetsTheLoad(t *testing.T) {
	d := memberDesk(t, Async, 0, nil)
	s := d.s
	s.loading, s.complete = true, false
	s.drop(drop{circle.Range{First: 0, Last: math.MaxUint64}, 10})
	s.pieceLoaded(&store.Piece{Last: math.MaxUint64, Since: 9, Applied: 11, Hashes: []uint64{s.hash([]byte("k"))}, Records: []store.Record{{Version: 1, Key: []byte("k")}}})
	assert.Zero(t, s.table.Len())
	assert.Empty(t, s.drops, "nothing old can come any more")
}

// TestDropMeetsTheCopy: a piece of a copy that was made before a range was dropped brings back nothing of the range.
func TestDropMeetsTheCopy(t *testing.T) {
	p := memberDesk(t, Memory, 0, nil)
	p.record(1, 1, "a")
	p.put("k", "v")
	d := memberDesk(t, Memory, 0, nil)
	require.NoError(t, (*merged)(d.s).Forget(1, nil, (*source)(p.s).Header()))
	body, _, _, ok := (*source)(p.s).Piece("x", 0, 0)
	require.True(t, ok)
	c := change{kind: changeDrop, entry: p.s.base + 2, origin: &origin{number: 0, oldest: math.MaxUint64}}
	require.True(t, (*merged)(d.s).Merge(2, 1, c.append(nil)))
	require.True(t, (*merged)(d.s).Piece(body))
	assert.Zero(t, d.s.table.Len())
	require.True(t, (*merged)(d.s).Whole(2))
	assert.Empty(t, d.s.drops)
}

// TestBroughtIsNotEvicted: an item that was brought has the version of its old owner, which does not say whether the
// file has the item.
func TestBroughtIsNotEvicted(t *testing.T) {
	d := memberDesk(t, Async, 0, func(o *Options) {
		f, err := store.OpenFile(filepath.Join(t.TempDir(), "f"), 0)
		require.NoError(t, err)
		st, err := store.Open(f, func() {}, 0) // its threads do not run
		require.NoError(t, err)
		t.Cleanup(func() { st.Close() })
		o.Store = st
	})
	d.record(1, 1, "a")
	d.view(2, back, 1, 7)
	_, goes := keys()
	h := circle.Hash(5, []byte(goes))
	require.NoError(t, d.s.appendMoved(h, &guard.Item{Version: 3, Key: []byte(goes), Value: []byte("v")}))
	for range 3 {
		d.s.Sweep()
	}
	p, ok := d.s.table.Find(h, []byte(goes))
	require.True(t, ok)
	assert.False(t, d.s.evictOne(arena.Place(p)))
}
