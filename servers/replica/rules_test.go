package replica

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/mem"
)

// A stage is a primary and its secondaries. The test controls their clocks, messages and Writes.
type stage struct {
	t       *testing.T
	d       fabric.Domain
	regions map[uint64]*stageRegion
	now     int64
	r       *Reign
	log     *Log
	synced  uint64 // newest entry that the primary has synced
	actors  map[string]*actor
}

type stageRegion struct {
	fabric.Region
	fenced bool
}

func (r *stageRegion) Fence() error { r.fenced = true; return r.Region.Fence() }

func (s *stage) Alloc(n int, a fabric.Access) (fabric.Region, error) {
	r, err := s.d.Alloc(n, a)
	if err != nil {
		return nil, err
	}
	x := &stageRegion{Region: r}
	s.regions[r.Key().ID] = x
	return x, nil
}

// An actor is a secondary and its State.
type actor struct {
	s        *stage
	name     string
	f        *Follower
	log      *Log
	near     *stageLink // the primary's end
	far      *stageLink
	synced   uint64
	noRoom   bool
	forgot   int
	yielded  int
	pieces   []string
	unwell   bool
	notWhole bool
}

type stageLink struct {
	s         *stage
	other     *stageLink
	in        []Message
	held      bool // its messages do not arrive
	completed int
	withheld  int // completions
	err       error
}

func (l *stageLink) Send(m *Message) {
	if l.held || l.other.err != nil {
		return
	}
	var c Message
	if err := c.Parse(m.Append(nil)); err != nil {
		panic(err)
	}
	l.other.in = append(l.other.in, c)
}

func (l *stageLink) Receive() (m Message, ok bool) {
	if l.err != nil || len(l.in) == 0 {
		return m, false
	}
	m, l.in = l.in[0], l.in[1:]
	return m, true
}

func (l *stageLink) Write(local fabric.Region, off, n uint64, key fabric.Key, at uint64) error {
	r := l.s.regions[key.ID]
	if r.fenced {
		l.err = fabric.ErrAccess
		return l.err
	}
	copy(r.Bytes()[at:at+n], local.Bytes()[off:off+n])
	l.completed++
	return nil
}

func (l *stageLink) Written() (n int) {
	if l.withheld > 0 {
		return 0
	}
	n, l.completed = l.completed, 0
	return n
}

func (l *stageLink) Err() error { return l.err }

func (l *stageLink) Close() {
	l.err = fabric.ErrClosed
	l.other.err = fabric.ErrPeer
}

func (a *actor) Yield() { a.yielded++ }
func (a *actor) Merge(uint64, uint64, []byte) bool {
	return !a.noRoom
}
func (a *actor) Forget(seq uint64, _ []Term, _ []byte) error { a.forgot++; return nil }
func (a *actor) Piece(b []byte) bool                         { a.pieces = append(a.pieces, string(b)); return true }
func (a *actor) Whole(uint64) bool                           { return !a.notWhole }
func (a *actor) Synced() uint64                              { return a.synced }
func (a *actor) Room() (uint64, bool)                        { return 1 << 30, !a.unwell }

// The stage is also the Source of the primary.
func (s *stage) Header() []byte { return []byte("header") }
func (s *stage) Piece(_ string, _, from uint64) ([]byte, uint64, bool, bool) {
	return []byte{'a' + byte(from)}, from + 1, from == 2, true
}
func (s *stage) ForgetPieces(string) {}
func (s *stage) Mark() uint64        { return s.log.Append(s.r.Term(), nil) }
func (s *stage) Synced() uint64      { return s.synced }
func (s *stage) Applied() uint64     { return s.synced }

func newStage(t *testing.T, mode Mode, set ...string) *stage {
	s := &stage{t: t, d: mem.NewNetwork().Open(), regions: map[uint64]*stageRegion{}, now: int64(time.Hour), actors: map[string]*actor{}, synced: 1 << 40}
	t.Cleanup(func() { s.d.Close() })
	var err error
	s.log, err = NewLog(s, testSize, 0, nil)
	require.NoError(t, err)
	s.r = NewReign(ReignOptions{Self: "p", Mode: mode, Log: s.log, Source: s, Record: Record{Revision: 1, Term: 1, Primary: "p", Set: append([]string{"p"}, set...)}, StopAt: s.now - StopWait})
	for _, name := range set {
		s.actor(name, mode)
	}
	s.runAll()
	return s
}

func (s *stage) actor(name string, mode Mode) *actor {
	a := &actor{s: s, name: name}
	var err error
	a.log, err = NewLog(s, testSize, 0, nil)
	require.NoError(s.t, err)
	a.f = NewFollower(FollowerOptions{Memory: s, RingSize: testSize, Log: a.log, State: a, Eager: mode != Relaxed}, s.now)
	s.actors[name] = a
	return a
}

// dial connects the members to which the primary wants a connection.
func (s *stage) dial() {
	for name := s.r.Dial(); name != ""; name = s.r.Dial() {
		a := s.actors[name]
		if a == nil {
			s.r.NoLink(name)
			return
		}
		a.near, a.far = &stageLink{s: s}, &stageLink{s: s}
		a.near.other, a.far.other = a.far, a.near
		a.f.Offered(a.far)
		s.r.Attach(name, a.near)
	}
}

// runAll steps the primary and all members several times, without letting time pass.
func (s *stage) runAll() {
	for range 12 {
		s.r.Step(s.now)
		s.dial()
		s.r.Flush()
		for _, a := range s.actors {
			a.f.Step(s.now)
		}
	}
}

func (s *stage) pass(d time.Duration) {
	s.now += int64(d)
	s.runAll()
}

func (s *stage) append(n int) uint64 {
	for range n {
		s.log.Append(s.r.Term(), []byte("entry"))
	}
	return s.log.Last()
}

func (s *stage) next() (Record, bool) {
	s.r.Step(s.now)
	return s.r.Proposal()
}

// TestCommitWaitsForAll: in each mode an entry is committed once every member has it as the mode requires.
func TestCommitWaitsForAll(t *testing.T) {
	for _, mode := range []Mode{Relaxed, Strict, Synced} {
		s := newStage(t, mode, "a", "b")
		a := s.actors["a"]
		s.actors["b"].synced = 1 << 40
		require.True(t, s.r.Serving())
		a.near.withheld, a.noRoom = 1, true
		n := s.append(3)
		s.runAll()
		assert.Zero(t, s.r.Committed(), "%v: a has nothing", mode)
		a.near.withheld = 0
		s.runAll()
		assert.Equal(t, mode == Relaxed, s.r.Committed() == n, "%v: a has it in its ring", mode)
		a.noRoom = false
		s.runAll()
		assert.Equal(t, mode != Synced, s.r.Committed() == n, "%v: a has merged it", mode)
		a.synced = n
		s.synced = n - 1
		s.pass(askDue)
		assert.Equal(t, mode != Synced, s.r.Committed() == n, "%v: a has synced it, and the primary not", mode)
		s.synced = n
		s.runAll()
		assert.Equal(t, n, s.r.Committed())
	}
}

const askDue = time.Duration(askEvery) + 1

// TestPlacedCountsOnceBegun: entries in a ring do not count before the owner knows where they begin, because a stop
// would lose them.
func TestPlacedCountsOnceBegun(t *testing.T) {
	s := newStage(t, Relaxed, "a")
	a := s.actors["a"]
	before := s.append(2)
	s.runAll()
	a.near.Close()
	s.r.Step(s.now)
	a.f.Step(s.now)
	s.now += redialEvery
	n := s.append(1)
	s.r.Step(s.now)
	s.dial()
	a.f.Step(s.now) // accepts
	a.near.held = true
	for range 3 {
		s.r.Step(s.now) // KindStart does not arrive, but Writes do
		s.r.Flush()
	}
	assert.Equal(t, before, s.r.Committed())
	rec := s.r.Record()
	require.True(t, a.f.Stop(&rec, s.now))
	a.f.Step(s.now)
	assert.Equal(t, before, a.f.Report().Seq)
	assert.Less(t, before, n)
}

// TestRetiredRingsAreDrained: entries in a retired ring are merged before the member reports, and before the next ring
// is used.
func TestRetiredRingsAreDrained(t *testing.T) {
	s := newStage(t, Relaxed, "a")
	a := s.actors["a"]
	a.noRoom = true
	n := s.append(5)
	s.runAll()
	require.Equal(t, n, s.r.Committed(), "placed")
	rec := s.r.Record()
	require.True(t, a.f.Stop(&rec, s.now))
	a.f.Step(s.now)
	assert.Empty(t, a.f.Stopped(), "what is in the ring is not merged yet")
	a.noRoom = false
	s.append(1)
	s.r.Flush() // the ring is fenced
	a.f.Step(s.now)
	assert.Equal(t, []uint64{rec.Revision}, a.f.Stopped())
	assert.Equal(t, Report{Seq: n, Term: 1, Whole: true}, a.f.Report())
	assert.Empty(t, a.f.Stopped(), "once")

	s = newStage(t, Relaxed, "a") // the same with a connection that is lost
	a = s.actors["a"]
	a.noRoom = true
	n = s.append(5)
	s.runAll()
	a.near.Close()
	s.runAll()
	a.noRoom = false
	s.pass(time.Duration(redialEvery))
	assert.Equal(t, n, a.log.Last())
	n = s.append(1)
	s.runAll()
	assert.Equal(t, n, s.r.Committed())
	assert.Zero(t, a.forgot, "no copy was needed")
}

// TestStopEndsGrants: after a stop the ring accepts no Writes, the member grants nothing, and it follows no primary of
// the term.
func TestStopEndsGrants(t *testing.T) {
	s := newStage(t, Relaxed, "a")
	a := s.actors["a"]
	end := s.r.TenureEnd()
	require.Positive(t, end)
	rec := s.r.Record()
	require.True(t, a.f.Stop(&rec, s.now))
	n := s.append(1)
	s.pass(askDue)
	s.pass(3 * time.Duration(redialEvery))
	assert.Equal(t, end, s.r.TenureEnd(), "no grant since")
	assert.Less(t, s.r.Committed(), n)
	assert.Zero(t, a.f.Following())
	assert.EqualValues(t, 1, a.f.Followed())
	assert.EqualValues(t, 2, a.f.Barred())
	old := Record{Revision: 0, Term: 1, Primary: "p", Set: []string{"p", "a"}}
	assert.False(t, a.f.Stop(&old, s.now), "an order from an older record is void")
}

// TestStopThatCameToNothing: a member was told to stop, and then reads that the term has continued without it. It
// follows the primary again. A stop order that is based on that later record is obeyed.
func TestStopThatCameToNothing(t *testing.T) {
	s := newStage(t, Relaxed, "a")
	a := s.actors["a"]
	rec := s.r.Record()
	require.True(t, a.f.Stop(&rec, s.now))
	s.runAll()
	a.f.Know(&rec)
	require.EqualValues(t, 2, a.f.Barred())
	next := Record{Revision: 2, Term: 1, Primary: "p", Set: []string{"p"}}
	s.r.Learn(next)
	s.r.Want(Wishes{In: []string{"a"}})
	s.pass(3 * time.Duration(redialEvery))
	require.Zero(t, a.f.Following(), "it does not know yet")
	require.True(t, a.f.Stop(&next, s.now))
	s.runAll()
	a.f.Know(&next)
	s.pass(3 * time.Duration(redialEvery))
	require.Zero(t, a.f.Following())
	next.Revision = 3
	s.r.Learn(next)
	a.f.Know(&next)
	require.EqualValues(t, 1, a.f.Barred())
	s.append(1)
	s.pass(3 * time.Duration(redialEvery))
	s.runAll()
	require.EqualValues(t, 1, a.f.Following())
	joined, ok := s.next()
	require.True(t, ok)
	require.Equal(t, []string{"p", "a"}, joined.Set)
	a.f.Bar(2, s.now)
	next.Revision = 4
	a.f.Know(&next)
	require.EqualValues(t, 2, a.f.Barred(), "no order has raised that")
}

// TestTenure: tenure counts from the time at which the request was sent, and needs every member.
func TestTenure(t *testing.T) {
	s := newStage(t, Relaxed, "a", "b")
	first := s.now
	require.Equal(t, first+Tenure, s.r.TenureEnd())
	a := s.actors["a"]
	a.far.held = true // a's answers do not arrive
	s.pass(askDue)
	asked := s.now
	assert.Equal(t, first+Tenure, s.r.TenureEnd(), "of the oldest of the newest grants")
	s.pass(300 * time.Millisecond)
	a.far.held = false
	a.f.answer(asked)
	s.r.Step(s.now)
	assert.Equal(t, asked+Tenure, s.r.TenureEnd(), "from when it was asked, not from when the answer came")
	s.r.Suspended(s.now)
	assert.Zero(t, s.r.TenureEnd())
	a.f.answer(asked)
	s.actors["b"].f.answer(asked)
	s.r.Step(s.now)
	assert.Zero(t, s.r.TenureEnd(), "what was asked before the clock stood still says nothing")
	s.pass(askDue)
	assert.Equal(t, s.now+Tenure, s.r.TenureEnd())
	alone := newStage(t, Relaxed)
	assert.Equal(t, alone.now+Tenure, alone.r.TenureEnd())
}

// TestRemovalCountsUntilKnown: a silent member is needed until its removal from the set is known, and no longer.
func TestRemovalCountsUntilKnown(t *testing.T) {
	s := newStage(t, Relaxed, "a", "b")
	a := s.actors["a"]
	a.far.held, a.near.withheld = true, 1
	n := s.append(1)
	s.pass(time.Duration(leaveAfter) - askDue)
	_, ok := s.next()
	require.False(t, ok)
	s.pass(2 * askDue)
	rec, ok := s.next()
	require.True(t, ok)
	assert.Equal(t, Record{Revision: 1, Term: 1, Primary: "p", Set: []string{"p", "b"}}, rec)
	s.runAll()
	assert.Less(t, s.r.Committed(), n, "the outcome is not known")
	s.r.Learn(s.r.Record())
	s.runAll()
	assert.Less(t, s.r.Committed(), n, "to read the old record again proves nothing")
	s.pass(time.Duration(proposeEvery))
	again, ok := s.next()
	require.True(t, ok, "it is proposed again")
	again.Revision = 2
	s.r.Learn(again)
	s.runAll()
	assert.Equal(t, n, s.r.Committed())
	assert.Equal(t, 2, s.r.InSync())
}

// TestJoinerCountsFromBefore: a member that is to be added has everything committed. It counts as a member from the
// proposal until the proposal is decided.
func TestJoinerCountsFromBefore(t *testing.T) {
	s := newStage(t, Relaxed)
	require.Equal(t, s.append(5), func() uint64 { s.runAll(); return s.r.Committed() }())
	a := s.actor("a", Relaxed)
	s.r.Want(Wishes{In: []string{"a"}})
	a.noRoom = true
	for range 3 {
		s.r.Step(s.now)
		s.dial()
		a.f.Step(s.now)
		s.r.Step(s.now) // it has accepted; no entry was sent yet
	}
	_, ok := s.next()
	assert.False(t, ok, "it lacks five entries")
	a.noRoom = false
	s.runAll()
	rec, ok := s.next()
	require.True(t, ok)
	assert.Equal(t, []string{"p", "a"}, rec.Set)
	a.near.withheld, a.far.held = 1, true
	n := s.append(1)
	s.runAll()
	assert.Less(t, s.r.Committed(), n, "it may have been added")
	s.r.Learn(s.r.Record())
	s.pass(time.Duration(joinsWithin) + 1)
	settled, ok := s.next()
	require.True(t, ok)
	require.Equal(t, []string{"p"}, settled.Set, "a is silent: the set as it is, which settles what was proposed")
	s.runAll()
	assert.Less(t, s.r.Committed(), n, "the first proposal may still be the one that happens, whatever is proposed now")
	settled.Revision, settled.Set = 2, []string{"p"}
	s.r.Learn(settled)
	s.runAll()
	assert.Equal(t, n, s.r.Committed())
}

// TestJoinerIsLevel: a member that lacks committed entries is not proposed.
func TestJoinerIsLevel(t *testing.T) {
	s := newStage(t, Strict)
	s.append(5)
	s.runAll()
	a := s.actor("a", Strict)
	a.noRoom = true
	s.r.Want(Wishes{In: []string{"a"}})
	s.runAll()
	s.pass(askDue)
	_, ok := s.next()
	assert.False(t, ok, "it has merged nothing")
	a.noRoom = false
	s.pass(askDue)
	rec, ok := s.next()
	require.True(t, ok)
	assert.Equal(t, []string{"p", "a"}, rec.Set)
}

// TestJoinerHasWhatIsDurable: entries that were reported as durable are durable at every member that is ever in the
// set, in every mode, because it may become the only member left. While a member is about to join, entries are
// reported as durable only once it has synced them, so that it becomes level.
func TestJoinerHasWhatIsDurable(t *testing.T) {
	s := newStage(t, Relaxed)
	s.synced = s.append(5)
	s.runAll()
	require.Equal(t, s.synced, s.r.Durable())
	a := s.actor("a", Relaxed)
	s.r.Want(Wishes{In: []string{"a"}})
	s.runAll()
	a.synced = 4
	s.pass(askDue)
	_, ok := s.next()
	assert.False(t, ok, "it has entry 5 in its ring, and not in its file")
	s.synced = s.append(1)
	a.synced = 5
	s.pass(askDue)
	assert.EqualValues(t, 5, s.r.Durable(), "entry 6 is not in the file of the member that joins")
	rec, ok := s.next()
	require.True(t, ok)
	assert.Equal(t, []string{"p", "a"}, rec.Set)
}

// TestJoinerHasWhatWasDurable: the same for entries that earlier reigns have reported as durable. This reign does not
// know these, so it requires everything that its own file had when the reign began.
func TestJoinerHasWhatWasDurable(t *testing.T) {
	s := newStage(t, Relaxed)
	s.synced = s.append(5)
	s.runAll()
	s.r.Close()
	s.r = NewReign(ReignOptions{Self: "p", Log: s.log, Source: s, Record: Record{Revision: 3, Term: 3, Primary: "p", Set: []string{"p"}}, StopAt: s.now - StopWait})
	a := s.actor("a", Relaxed)
	s.r.Want(Wishes{In: []string{"a"}})
	s.runAll()
	a.synced = 4
	s.pass(askDue)
	_, ok := s.next()
	assert.False(t, ok, "it has entry 5 in its ring, and not in its file")
	a.synced = 5
	s.pass(askDue)
	rec, ok := s.next()
	require.True(t, ok)
	assert.Equal(t, []string{"p", "a"}, rec.Set)
}

// TestReignBegins: a reign serves when all members have the entries with which it began, and not earlier than 1.2 s
// after the stop.
func TestReignBegins(t *testing.T) {
	s := newStage(t, Relaxed)
	n := s.append(3)
	a := s.actor("a", Relaxed)
	b := s.actor("b", Relaxed)
	b.noRoom = true
	begin := func(term uint64, stopAt int64) {
		s.r = NewReign(ReignOptions{Self: "p", Log: s.log, Source: s, Record: Record{Revision: term, Term: term, Primary: "p", Set: []string{"p", "a", "b"}}, StopAt: stopAt})
	}
	begin(2, s.now)
	s.pass(time.Duration(StopWait) - 10)
	assert.False(t, s.r.Serving())
	assert.Equal(t, n, a.log.Last())
	assert.Equal(t, n, s.r.Committed(), "it is placed everywhere")
	s.pass(10)
	assert.True(t, s.r.Serving())
	s.r.Close()
	c := s.actor("b", Relaxed) // a member without entries, to which nothing arrives
	begin(3, s.now-StopWait)
	s.r.Step(s.now)
	s.dial()
	assert.False(t, s.r.Serving(), "c has nothing")
	assert.Zero(t, s.r.TenureEnd())
	assert.Less(t, s.r.Committed(), n)
	s.runAll()
	assert.True(t, s.r.Serving())
	assert.Equal(t, n, c.log.Last())
	s.r.Learn(Record{Revision: 9, Term: 4, Primary: "a", Set: []string{"a"}})
	assert.True(t, s.r.Over())
	assert.Zero(t, s.r.TenureEnd())
}

// TestCopies: a member whose entries are not a prefix gets a copy. It is not in the set meanwhile, and joins when the
// copy is complete.
func TestCopies(t *testing.T) {
	s := newStage(t, Relaxed)
	s.append(4)
	a := s.actor("a", Relaxed)
	a.log.Append(7, []byte("of a reign that nobody knows"))
	a.notWhole = true
	s.r.Want(Wishes{In: []string{"a"}})
	s.runAll()
	assert.Equal(t, 1, a.forgot)
	assert.Equal(t, []string{"a", "b", "c"}, a.pieces)
	assert.False(t, a.f.Whole())
	assert.False(t, a.f.Report().Whole)
	s.pass(askDue)
	_, ok := s.next()
	assert.False(t, ok, "a part of a copy joins nothing")
	a.notWhole = false
	s.pass(askDue)
	rec, ok := s.next()
	require.True(t, ok)
	assert.Equal(t, []string{"p", "a"}, rec.Set)
	rec.Revision++
	s.r.Learn(rec)
	n := s.append(2)
	s.runAll()
	assert.Equal(t, n, s.r.Committed())
	assert.Equal(t, n, a.log.Last())

	// A member of the set that needs a copy has to leave the set first.
	a.f.Spoil()
	a.near.Close()
	s.runAll()
	s.pass(time.Duration(redialEvery))
	s.pass(time.Duration(proposeEvery))
	rec, ok = s.next()
	require.True(t, ok)
	assert.Equal(t, []string{"p"}, rec.Set)
	assert.Equal(t, 1, a.forgot)
	rec.Revision++
	s.r.Learn(rec)
	s.pass(askDue)
	assert.Equal(t, 2, a.forgot)
}

// TestCopyWaitsForCommit: a state machine contains only committed entries, so a copy of it waits until all entries
// before the copy are committed.
func TestCopyWaitsForCommit(t *testing.T) {
	s := newStage(t, Relaxed, "b")
	b := s.actors["b"]
	s.append(3)
	s.runAll()
	b.near.withheld, b.far.held = 1, true
	s.append(1)
	s.runAll()
	a := s.actor("a", Relaxed)
	a.log.Append(7, []byte("of a reign that nobody knows"))
	s.r.Want(Wishes{In: []string{"a", "b"}})
	s.runAll()
	assert.Equal(t, 1, a.forgot)
	assert.Empty(t, a.pieces)
	b.near.withheld, b.far.held = 0, false
	s.runAll()
	assert.Len(t, a.pieces, 3)
}

// TestPlacesAreUsedAgain sends many laps of entries to a member that merges late. Neither its ring nor the log
// overwrites an entry that it lacks.
func TestPlacesAreUsedAgain(t *testing.T) {
	s := newStage(t, Relaxed, "a")
	a := s.actors["a"]
	want := uint64(0)
	for i := range 200 {
		a.noRoom = i%8 < 6
		for range 7 {
			if !s.log.Waits() {
				s.log.Append(1, make([]byte, 150))
				want++
			}
		}
		s.pass(askDue)
		require.NoError(t, a.far.err, "the member was lost")
	}
	a.noRoom = false
	s.pass(askDue)
	s.pass(askDue)
	assert.Equal(t, want, a.log.Last())
	assert.Equal(t, want, s.r.Committed())
	assert.Zero(t, a.forgot)
}

// TestRestsUntilItServes: a primary that does not serve yet can do nothing for a member that needs a copy, so it may
// sleep.
func TestRestsUntilItServes(t *testing.T) {
	s := newStage(t, Relaxed)
	s.append(3)
	s.r = NewReign(ReignOptions{Self: "p", Log: s.log, Source: s, Record: Record{Revision: 2, Term: 2, Primary: "p", Set: []string{"p"}}, StopAt: s.now})
	s.r.Want(Wishes{In: []string{"a"}})
	s.actor("a", Relaxed).f.Spoil()
	s.runAll()
	require.False(t, s.r.Serving())
	require.Equal(t, blocked, s.r.member("a").state)
	assert.False(t, s.r.Step(s.now), "there is nothing to do")
	s.pass(time.Duration(StopWait))
	assert.Equal(t, 1, s.actors["a"].forgot, "the copy begins once it serves")
}
