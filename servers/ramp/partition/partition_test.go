package partition

import (
	"fmt"
	"testing"
	"time"

	"flashdbm/servers/arena"
	"flashdbm/servers/circle"
	"flashdbm/servers/fabric/mem"
	"flashdbm/servers/guard"
	"flashdbm/servers/ramp/protocol"
	"flashdbm/servers/wire"

	"github.com/stretchr/testify/require"
)

// A bench is a partition in memory mode with a clock of its own.
type bench struct {
	t     *testing.T
	p     *Partition
	mono  int64
	wall  uint64
	told  []Note
	later time.Duration // of the store
}

const someTime = 1_700_000_000_000

func newBench(t *testing.T) *bench {
	b := &bench{t: t, wall: someTime, mono: 1}
	d := mem.NewNetwork().Open()
	var err error
	b.p, err = New(Options{
		Term: 1, Seed: 5, Arena: arena.Options{Extent: 1 << 20, Limit: 1 << 20}, Alloc: d.Alloc,
		Clock: func(uint64) (int64, uint64) { return b.mono, b.wall },
		Owner: func(h uint64) uint32 {
			if h == circle.Hash(5, []byte("elsewhere")) {
				return 1
			}
			return 0
		},
		Tell: func(to uint32, n Note) {
			require.EqualValues(t, 1, to)
			b.told = append(b.told, n)
		},
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, b.p.Close())
		require.NoError(t, d.Close())
	})
	return b
}

func (b *bench) pass(d time.Duration) {
	b.mono += int64(d)
	b.wall += uint64(d.Milliseconds())
	for range 20 {
		b.p.Step()
	}
}

func at(milli uint64) Timestamp { return protocol.MakeTimestamp(someTime+milli, 1, 0) }

// prepare sends a PREPARE of keys. If elsewhere is set, the transaction has a key of another partition as well.
func (b *bench) prepare(ts Timestamp, elsewhere bool, keys ...string) (s protocol.Status, newest Timestamp) {
	q := &protocol.Prepare{TS: ts, Client: 9, Kind: protocol.KindHashes}
	for _, k := range keys {
		q.Hashes = append(q.Hashes, circle.Hash(5, []byte(k)))
	}
	if elsewhere {
		q.Hashes = append(q.Hashes, circle.Hash(5, []byte("elsewhere")))
	}
	q.Hashes = protocol.SortHashes(q.Hashes)
	for _, h := range q.Hashes {
		for _, k := range keys {
			if circle.Hash(5, []byte(k)) == h {
				q.Parts = append(q.Parts, protocol.Part{Key: []byte(k), Value: fmt.Appendf(nil, "%s at %v", k, ts)})
			}
		}
	}
	s = 99
	b.p.Look()
	b.p.Prepare(q, 0, func(status protocol.Status, n Timestamp) { s, newest = status, n })
	require.NotEqual(b.t, protocol.Status(99), s, "it is answered at once")
	return s, newest
}

func (b *bench) commit(ts Timestamp) (s protocol.Status) {
	b.p.Look()
	b.p.Commit(protocol.Transaction{TS: ts, Client: 9}, func(status protocol.Status) { s = status })
	return s
}

func (b *bench) remove(ts Timestamp, key string) {
	h := circle.Hash(5, []byte(key))
	q := &protocol.Prepare{TS: ts, Client: 9, Kind: protocol.KindHashes, Hashes: []uint64{h}, Parts: []protocol.Part{{Removed: true, Key: []byte(key)}}}
	b.p.Look()
	b.p.Prepare(q, protocol.FlagOnePhase, func(s protocol.Status, _ Timestamp) { require.Equal(b.t, protocol.StatusOK, s) })
}

func (b *bench) get(key string, ts Timestamp) (v protocol.Version) {
	b.p.Look()
	b.p.Get(&protocol.Get{Keys: []protocol.Wanted{{TS: ts, Key: []byte(key)}}}, protocol.FlagPointer, func(_ int, x *protocol.Version) { v = *x }, func(s protocol.Status) {
		require.Equal(b.t, protocol.StatusOK, s)
	})
	return v
}

// valid returns the versions that Reads accept.
func (b *bench) valid() (list []Timestamp) {
	e := b.p.arena.Extent(0)
	for i := 0; i+guard.HeaderSize < len(e); i += 16 {
		it := e[i:]
		n, ok := guard.SizeOf(it)
		if !ok || n > 4096 || len(guard.Parse(it).Key) == 0 {
			continue
		}
		if v, err := guard.Verify(it[:n], guard.Parse(it).Key); err == nil {
			list = append(list, Timestamp(v.Version))
		}
	}
	return list
}

// TestGuardians: at any time a Read accepts the version that was committed last.
func TestGuardians(t *testing.T) {
	b := newBench(t)
	valid := b.valid
	b.prepare(at(1), false, "a")
	require.Empty(t, valid())
	b.commit(at(1))
	require.Equal(t, []Timestamp{at(1)}, valid())
	b.prepare(at(3), false, "a")
	b.prepare(at(2), false, "a")
	require.Equal(t, []Timestamp{at(1)}, valid())
	b.commit(at(3))
	require.Equal(t, []Timestamp{at(3)}, valid())
	b.commit(at(2))
	require.Equal(t, []Timestamp{at(3)}, valid())
	slot := b.get("a", 0).Slot
	b.prepare(at(4), false, "a")
	b.commit(at(4))
	require.Equal(t, slot, b.get("a", 0).Slot, "the slot's place stays")
	b.remove(at(5), "a")
	b.pass(5 * time.Second)
	b.pass(5 * time.Second)
	require.Zero(t, b.p.Stats().Keys)
	require.Empty(t, valid(), "a slot that was given up")
}

// TestSlotsOfThePaper: a slot is invalid while a version of its key is prepared, and valid when the last prepared
// version is committed, even below the newest one, or aborted.
func TestSlotsOfThePaper(t *testing.T) {
	b := newBench(t)
	b.p.HidePending()
	b.prepare(at(1), false, "a")
	b.commit(at(1))
	require.Equal(t, []Timestamp{at(1)}, b.valid())
	b.prepare(at(3), false, "a")
	b.prepare(at(2), false, "a")
	require.Empty(t, b.valid())
	b.commit(at(3))
	require.Empty(t, b.valid(), "one is left")
	require.Equal(t, at(3), b.get("a", 0).TS, "by message")
	b.commit(at(2))
	require.Equal(t, []Timestamp{at(3)}, b.valid())
	b.prepare(at(4), false, "a")
	require.Empty(t, b.valid())
	b.p.Abort(protocol.Transaction{TS: at(4), Client: 9}, func(protocol.Status) {})
	require.Equal(t, []Timestamp{at(3)}, b.valid())
}

// TestGone: an overtaken version is kept for 4 s, and is gone after that; a version that never was is told apart from
// it.
func TestGone(t *testing.T) {
	b := newBench(t)
	for i := range uint64(3) {
		b.prepare(at(10*i+10), false, "a")
		b.commit(at(10*i + 10))
	}
	require.Equal(t, protocol.StateFound, b.get("a", at(20)).State)
	require.Equal(t, protocol.StateNever, b.get("a", at(31)).State)
	b.pass(3900 * time.Millisecond)
	require.Equal(t, protocol.StateFound, b.get("a", at(20)).State)
	b.pass(200 * time.Millisecond)
	require.Equal(t, protocol.StateGone, b.get("a", at(20)).State)
	require.Equal(t, protocol.StateFound, b.get("a", at(30)).State)
	require.Zero(t, b.p.Stats().Held)
	b.prepare(at(4200), false, "a")
	require.Equal(t, protocol.StateFound, b.get("a", at(4200)).State, "prepared versions are found by their timestamp")
	require.Equal(t, at(30), b.get("a", 0).TS)
}

// TestTermination: a client has died in the middle of a transaction. The partitions finish the transaction according
// to the answer of the other partition. A partition that is asked about a transaction that it does not know refuses it
// from then on.
func TestTermination(t *testing.T) {
	b := newBench(t)
	s, _ := b.prepare(at(1), true, "a")
	require.Equal(t, protocol.StatusOK, s)
	b.pass(900 * time.Millisecond)
	require.Empty(t, b.told)
	b.pass(200 * time.Millisecond)
	require.Len(t, b.told, 1)
	require.True(t, b.told[0].Question)
	answer := Note{From: 1, TS: at(1), Client: 9, State: NotePrepared}
	b.p.Hear(answer)
	require.Equal(t, at(1), b.get("a", 0).TS, "all have prepared it")
	require.Equal(t, 1, b.p.Stats().Transactions, "the other one may ask")
	answer.State, answer.Settled = NoteCommitted, true
	b.p.Hear(answer)
	require.Zero(t, b.p.Stats().Transactions)

	b.told = nil
	b.p.Hear(Note{From: 1, TS: at(1200), Client: 9, State: NotePrepared, Question: true})
	require.Equal(t, NoteRefused, b.told[0].State)
	s, _ = b.prepare(at(1200), true, "a")
	require.Equal(t, protocol.StatusRefused, s)
	b.pass(10 * time.Second)
	b.pass(11 * time.Second)
	require.Zero(t, b.p.Stats().Transactions, "the refusal is forgotten")
	s, _ = b.prepare(at(1200), true, "a")
	require.NotEqual(t, protocol.StatusOK, s)

	s, _ = b.prepare(at(22_500), true, "a")
	require.Equal(t, protocol.StatusOK, s)
	b.p.Hear(Note{From: 1, TS: at(22_500), Client: 9, State: NoteRefused})
	require.Equal(t, at(1), b.get("a", 0).TS)
	require.Equal(t, protocol.StatusRefused, b.commit(at(22_500)))
}

// TestFloor: a remove is forgotten after a while; older versions stay refused.
func TestFloor(t *testing.T) {
	b := newBench(t)
	b.prepare(at(1), false, "a", "b")
	b.commit(at(1))
	b.remove(at(5000), "a")
	require.Equal(t, protocol.StateAbsent, b.get("a", 0).State)
	b.pass(5 * time.Second)
	b.pass(5 * time.Second)
	v := b.get("a", 0)
	require.Equal(t, protocol.StateNever, v.State)
	require.Equal(t, at(5000), v.TS)
	require.Equal(t, 1, b.p.Stats().Keys)
	s, newest := b.prepare(at(4000), false, "a")
	require.Equal(t, protocol.StatusRefused, s)
	require.Equal(t, at(5000), newest)
	s, _ = b.prepare(at(10_000), false, "a")
	require.Equal(t, protocol.StatusOK, s)
}

// TestClockWindow: timestamps that differ too much from the partition's time are refused, with that time.
func TestClockWindow(t *testing.T) {
	b := newBench(t)
	s, newest := b.prepare(at(11_000), false, "a")
	require.Equal(t, protocol.StatusClock, s)
	require.EqualValues(t, someTime, newest.Milli())
	s, _ = b.prepare(at(9000), false, "a")
	require.Equal(t, protocol.StatusOK, s)
	b.wall += 30_000
	s, newest = b.prepare(at(0), false, "b")
	require.Equal(t, protocol.StatusClock, s)
	require.EqualValues(t, someTime+30_000, newest.Milli())
}

// TestFull: without room PREPARE is refused, and changes nothing.
func TestFull(t *testing.T) {
	b := newBench(t)
	n := 0
	for ; ; n++ {
		s, _ := b.prepare(at(uint64(n)+1), false, fmt.Sprintf("%0900d", n), fmt.Sprintf("%0901d", n))
		if s == protocol.StatusFull {
			break
		}
		require.Equal(t, protocol.StatusOK, s)
	}
	require.Greater(t, n, 200)
	require.Equal(t, 2*n, b.p.Stats().Prepared)
	require.Equal(t, n, b.p.Stats().Transactions)
}

// TestWaitDie: a younger transaction dies where an older one has the lock; an older one waits.
func TestWaitDie(t *testing.T) {
	var l lockTable
	l.init()
	var granted []int
	var died []int
	take := func(ts int, exclusive bool) bool {
		return l.take([]byte("k"), holder{Transaction: protocol.Transaction{TS: Timestamp(ts)}, exclusive: exclusive}, func() { granted = append(granted, ts) }, func() { died = append(died, ts) })
	}
	release := func(ts int) { l.release(func(h *holder) bool { return h.TS == Timestamp(ts) }) }
	require.True(t, take(5, false))
	require.True(t, take(6, false), "shared")
	require.False(t, take(7, true))
	require.Equal(t, []int{7}, died)
	require.False(t, take(3, true))
	require.False(t, take(2, false), "it does not overtake an older one that waits for it, and waits")
	release(5)
	require.Empty(t, granted)
	release(6)
	require.Equal(t, []int{3}, granted)
	release(3)
	require.Equal(t, []int{3, 2}, granted)
	release(2)
	require.Empty(t, l.keys)

	of := func(client uint64) holder {
		return holder{Transaction: protocol.Transaction{TS: 9, Client: client}, exclusive: true}
	}
	waits, dies := false, false
	require.True(t, l.take([]byte("k"), of(5), nil, nil))
	require.False(t, l.take([]byte("k"), of(6), nil, func() { dies = true }), "another client's transaction with the same timestamp")
	require.True(t, dies)
	require.False(t, l.take([]byte("k"), of(4), func() { waits = true }, nil))
	l.release(func(h *holder) bool { return h.Client == 5 })
	require.True(t, waits)
}

// TestLockWaitsForTheOutcome: a writer whose connection has ended leaves a prepared version and no lock; a later lock
// waits for the outcome of that version.
func TestLockWaitsForTheOutcome(t *testing.T) {
	b := newBench(t)
	s, _ := b.prepare(at(1000), true, "k")
	require.Equal(t, protocol.StatusOK, s)
	var got Timestamp
	q := &protocol.Lock{Transaction: protocol.Transaction{TS: at(1001), Client: 8}, Keys: [][]byte{[]byte("k")}}
	b.p.Lock(&conn{}, q, false, func(_ int, v *protocol.Version) { got = v.TS }, func(s protocol.Status) { require.Equal(t, protocol.StatusOK, s) })
	require.Zero(t, got)
	b.p.Commit(protocol.Transaction{TS: at(1000), Client: 9}, func(protocol.Status) {})
	require.Equal(t, at(1000), got)
}

// TestNewLife: a life after the first one serves nothing while clients may still Read the memory of the last life.
func TestNewLife(t *testing.T) {
	d := mem.NewNetwork().Open()
	defer d.Close()
	now := int64(1)
	for term, quiet := range map[uint64]bool{1: false, 2: true} {
		p, err := New(Options{Term: term, Alloc: d.Alloc, Arena: arena.Options{Extent: 1 << 20}, Clock: func(uint64) (int64, uint64) { return now, someTime }})
		require.NoError(t, err)
		require.Equal(t, quiet, p.Quiet())
		now += int64(1100 * time.Millisecond)
		p.Look()
		require.Equal(t, quiet, p.Quiet(), "tenure, and what clocks may differ in rate")
		now += int64(100 * time.Millisecond)
		p.Look()
		require.False(t, p.Quiet())
		require.NoError(t, p.Close())
	}
}

// TestFarAhead: requests of a client with a wrong clock do not keep others from writing: an ABORT with a date in the
// future is not remembered, and timestamps do not move the partition's time.
func TestFarAhead(t *testing.T) {
	b := newBench(t)
	for _, ahead := range []uint64{10_001, 29_999, 31_000, 86_400_000} {
		s, _ := b.prepare(at(ahead), true, "a")
		require.Equal(t, protocol.StatusClock, s)
		b.p.Abort(protocol.Transaction{TS: at(ahead), Client: 9}, func(s protocol.Status) { require.Equal(t, protocol.StatusOK, s) })
	}
	require.Equal(t, 2, b.p.Stats().Transactions, "those whose PREPARE may be accepted when it comes late")
	for i := range uint64(60) {
		b.pass(time.Second)
		s, _ := b.prepare(at(1000*i+1000), false, fmt.Sprint(i))
		require.Equal(t, protocol.StatusOK, s, "second %d", i)
		b.commit(at(1000*i + 1000))
	}
	require.Zero(t, b.p.Stats().Transactions)
	for i := range uint64(3) {
		s, _ := b.prepare(at(60_000+9000*(i+1)), false, "a")
		require.Equal(t, i == 0, s == protocol.StatusOK, "%d", i)
	}
	b.wall -= 3_600_000 // the clock is set back: time goes on
	b.mono += 1e9
	s, newest := b.prepare(at(61_000), false, "b")
	require.Equal(t, protocol.StatusOK, s)
	s, newest = b.prepare(at(80_000), false, "b")
	require.Equal(t, protocol.StatusClock, s)
	require.EqualValues(t, someTime+61_000, newest.Milli())
}

// A line is a connection that a test controls.
type line struct {
	in  []wire.Message
	out []wire.Header
}

func (l *line) Begin(int) ([]byte, error)    { return nil, nil }
func (l *line) End(h *wire.Header, _ []byte) { l.out = append(l.out, *h) }
func (l *line) Flush()                       {}
func (l *line) Err() error                   { return nil }
func (l *line) Close() error                 { return nil }
func (l *line) Receive() (m wire.Message, ok bool) {
	if len(l.in) == 0 {
		return m, false
	}
	m, l.in = l.in[0], l.in[1:]
	return m, true
}

// TestAmong: clients may have the same number, so a transaction is identified by its client as well. A version that
// another client's transaction with the same timestamp has prepared was not written by the transaction that a reader
// has seen, and may be aborted. Versions name their writers even without their values.
func TestAmong(t *testing.T) {
	b := newBench(t)
	b.prepare(at(1), false, "a")
	b.commit(at(1))
	b.prepare(at(2), true, "a")
	ask := func(flags protocol.Flags, among ...protocol.Transaction) (v protocol.Version) {
		b.p.Look()
		b.p.Get(&protocol.Get{Among: among, Keys: []protocol.Wanted{{Key: []byte("a")}}}, flags, func(_ int, x *protocol.Version) { v = *x }, func(protocol.Status) {})
		return v
	}
	old, mine, other := protocol.Transaction{TS: at(1), Client: 9}, protocol.Transaction{TS: at(2), Client: 9}, protocol.Transaction{TS: at(2), Client: 8}
	require.Equal(t, at(2), ask(0, old, mine).TS)
	require.Equal(t, at(1), ask(0, old, other).TS)
	require.Equal(t, protocol.StateNever, ask(0, other).State)
	m, value, err := protocol.ParseContent(ask(protocol.FlagTimestamps).Content)
	require.NoError(t, err)
	require.EqualValues(t, 9, m.Client)
	require.Empty(t, value)
}

// TestGoneAmong: of the transactions that a reader names, one wrote a version of the key that was overtaken and
// dropped, and a newer one has not written the key. The answer is that a version is gone. A forgotten remove leaves
// no version at all: the answer names the timestamp up to which that may be so.
func TestGoneAmong(t *testing.T) {
	b := newBench(t)
	ask := func(key string, among ...Timestamp) (v protocol.Version) {
		q := &protocol.Get{Keys: []protocol.Wanted{{Key: []byte(key)}}}
		for _, ts := range among {
			q.Among = append(q.Among, protocol.Transaction{TS: ts, Client: 9})
		}
		b.p.Look()
		b.p.Get(q, 0, func(_ int, x *protocol.Version) { v = *x }, func(protocol.Status) {})
		return v
	}
	write := func(ts Timestamp, key string) {
		b.prepare(ts, false, key)
		require.Equal(t, protocol.StatusOK, b.commit(ts))
	}
	write(at(1), "a")
	write(at(2), "b")
	write(at(3), "a")
	require.Equal(t, at(1), ask("a", at(1), at(2)).TS)
	b.pass(4100 * time.Millisecond)
	require.Equal(t, protocol.StateGone, ask("a", at(1)).State)
	require.Equal(t, protocol.StateGone, ask("a", at(1), at(2)).State, "the newest one that is named is above all that was dropped, and another one is not")
	require.Equal(t, at(3), ask("a", at(1), at(2), at(3)).TS)
	require.Equal(t, protocol.StateNever, ask("a", at(2)).State, "nothing with its timestamp was dropped")
	v := ask("b", at(1))
	require.Equal(t, protocol.StateGone, v.State, "something with its timestamp was dropped")

	b.remove(at(4200), "a")
	b.pass(5 * time.Second)
	b.pass(5 * time.Second)
	v = ask("a", at(3))
	require.Equal(t, protocol.StateNever, v.State)
	require.Equal(t, at(4200), v.TS)
}

// TestFinished: without a file, a transaction that all partitions have committed is forgotten when its client says
// so; with a file, when the partitions have told each other. A transaction that is only prepared is kept, and so is
// another client's.
func TestFinished(t *testing.T) {
	b := newBench(t)
	d := protocol.Transaction{TS: at(10), Client: 9}
	s, _ := b.prepare(d.TS, true, "k")
	require.Equal(t, protocol.StatusOK, s)
	b.p.Finished(d)
	require.Contains(t, b.p.txns, d.TS, "it is not committed")
	require.Equal(t, protocol.StatusOK, b.commit(d.TS))
	b.p.Finished(protocol.Transaction{TS: d.TS, Client: 10})
	require.Contains(t, b.p.txns, d.TS, "it is another client's")
	b.p.Finished(d)
	require.Empty(t, b.p.txns)
	require.Equal(t, d.TS, b.get("k", 0).TS)
	b.pass(2 * time.Second)
	require.Empty(t, b.told, "nothing is left to ask")
	b.p.Hear(Note{From: 1, TS: d.TS, Client: 9, State: NoteCommitted, Question: true})
	require.Len(t, b.told, 1)
	require.Equal(t, NoteCommitted, b.told[0].State)

	f := newMemberBench(t)
	f.reign(1)
	q := f.question("k")
	q.TS = at(2000)
	f.p.Look()
	f.p.Prepare(q, 0, func(protocol.Status, Timestamp) {})
	f.work(time.Millisecond)
	d = protocol.Transaction{TS: q.TS, Client: q.Client}
	f.p.Commit(d, func(s protocol.Status) { require.Equal(t, protocol.StatusOK, s) })
	f.p.Finished(d)
	require.Contains(t, f.p.txns, d.TS)
}

// TestIdleBeside: callers within the process do the work that is due by time, so the thread does not wake for each
// piece of it. It wakes for work that cannot wait.
func TestIdleBeside(t *testing.T) {
	b := newBench(t)
	for i := range uint64(2) {
		b.prepare(at(i), false, "a")
		require.Equal(t, protocol.StatusOK, b.commit(at(i)))
	}
	require.Equal(t, time.Second, b.p.IdleBeside(), "the outcome may be asked for in a second")
	require.Equal(t, time.Second, b.p.IdleFor())
	b.mono += versionTime - int64(time.Millisecond) // the first version is about to be dropped
	b.p.Look()
	require.Equal(t, 100*time.Millisecond, b.p.IdleBeside())
	require.Equal(t, 10*time.Millisecond, b.p.IdleFor())
	b.p.quiet = b.p.now + int64(time.Millisecond)
	require.Equal(t, time.Millisecond, b.p.IdleBeside())
}

// TestSameHash: keys with the same hash have versions of their own.
func TestSameHash(t *testing.T) {
	a := active{lists: map[uint64]*versions{}}
	keys := []string{"a", "b", "c"}
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}} {
		list := make([]*versions, len(keys))
		for i, k := range keys {
			require.Nil(t, a.find(7, []byte(k)))
			list[i] = a.add(7, []byte(k))
		}
		require.Equal(t, len(keys), a.count)
		for _, gone := range order {
			a.remove(list[gone])
			list[gone] = nil
			for i, k := range keys {
				require.True(t, list[i] == a.find(7, []byte(k)))
			}
		}
		require.Zero(t, a.count)
		require.Empty(t, a.lists)
	}
}

// TestQueue: work comes out when it is due, in order, however much there is.
func TestQueue(t *testing.T) {
	var q queue[int]
	added, next := 0, 0
	for round := range 200 {
		for range round * 7 % 600 {
			q.add(int64(added+1), added)
			added++
		}
		until := min(next+round*5%600, added) // a part of it is not due yet
		for {
			if next < added {
				require.EqualValues(t, next+1, q.due())
			}
			what, ok := q.next(int64(until))
			if !ok {
				break
			}
			require.Equal(t, next, what)
			next++
		}
		require.Equal(t, until, next)
		if next == added {
			require.Zero(t, q.due())
		}
	}
	require.Positive(t, next)
}
