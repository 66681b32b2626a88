package partition

import (
	"path/filepath"
	"testing"
	"time"

	"flashdbm/servers/arena"
	"flashdbm/servers/circle"
	"flashdbm/servers/fabric/mem"
	"flashdbm/servers/ramp/protocol"
	"flashdbm/servers/replica"
	"flashdbm/servers/store"
	"flashdbm/servers/wire"

	"github.com/stretchr/testify/require"
)

// A memberBench is a member that is alone in its set, with a clock and a file that the test controls.
type memberBench struct {
	bench
	m  *Member
	st *store.Store
	f  store.VersionFile
}

func newMemberBench(t *testing.T) *memberBench {
	b := &memberBench{bench: bench{t: t, wall: someTime, mono: 1}}
	d := mem.NewNetwork().Open()
	var err error
	b.f, err = store.OpenVersions(filepath.Join(t.TempDir(), "p.fdbm"), 0)
	require.NoError(t, err)
	b.st, err = store.Open(b.f, func() {}, 0)
	require.NoError(t, err)
	log, err := replica.NewLog(d, 64<<10, 0, nil)
	require.NoError(t, err)
	b.m, err = NewMember(MemberOptions{
		Options: Options{
			Durability: Sync, Seed: 5, Arena: arena.Options{Extent: 64 << 10}, Alloc: d.Alloc, Store: b.st,
			Clock: func(uint64) (int64, uint64) { return b.mono, b.wall },
			Owner: func(h uint64) uint32 {
				if h == circle.Hash(5, []byte("elsewhere")) {
					return 1
				}
				return 0
			},
			Tell: func(_ uint32, n Note) { b.told = append(b.told, n) },
		},
		Mode: replica.Synced, Log: log, Self: "a", MinInSync: 1, Memory: d,
		Inherit: func() (store.Inherited, error) { return b.f.Inherit(func(uint64) bool { return true }) },
		Places:  func() []byte { return nil },
		Raw:     func() (int64, uint64) { return b.mono, b.wall },
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, b.m.Close())
		require.NoError(t, b.st.Close())
		require.NoError(t, d.Close())
	})
	return b
}

// work lets time pass, and lets the file do its work.
func (b *memberBench) work(d time.Duration) {
	b.mono += int64(d)
	b.wall += uint64(d.Milliseconds())
	for range 6 {
		b.later += time.Hour
		now := time.Now().Add(b.later)
		b.st.StepCommitter(now)
		b.st.StepSyncer(now)
		b.st.StepFetcher(now)
		b.m.Step()
	}
	b.p = b.m.p
}

func (b *memberBench) reign(term uint64) {
	b.m.Learn(replica.Record{Revision: term, Term: term, Primary: "a", Set: []string{"a"}})
	b.work(time.Millisecond)
	b.work(1300 * time.Millisecond)
}

func (b *memberBench) get(key string) (s protocol.Status, v protocol.Version) {
	s = 99
	q := &protocol.Get{Keys: []protocol.Wanted{{Key: []byte(key)}}}
	b.p.Get(q, 0, func(_ int, x *protocol.Version) { v = *x }, func(status protocol.Status) { s = status })
	return s, v
}

// TestTenureIsReadBehindTheQuestion: a primary that stood still between two readings of the clock sends no answer,
// even if its tenure still lasted at the first one.
func TestTenureIsReadBehindTheQuestion(t *testing.T) {
	b := newMemberBench(t)
	b.m.Learn(replica.Record{Revision: 1, Term: 1, Primary: "a", Set: []string{"a"}})
	b.work(time.Millisecond)
	b.work(time.Second)
	require.True(t, b.p.Busy(), "the last primary's tenure may last")
	b.work(300 * time.Millisecond)
	require.False(t, b.p.Busy())
	s, v := b.get("k")
	require.Equal(t, protocol.StatusOK, s)
	require.Equal(t, protocol.StateNever, v.State)
	b.m.Step()
	b.mono, b.wall = b.mono+int64(3*time.Second), b.wall+3000
	s, _ = b.get("k")
	require.Equal(t, protocol.StatusUnavailable, s)
	b.p.Hear(Note{From: 1, TS: at(5), Client: 9, State: NoteCommitted, Question: true})
	require.Empty(t, b.told, "a successor may have it prepared")
	b.work(time.Millisecond)
	b.p.Hear(Note{From: 1, TS: at(5), Client: 9, State: NoteCommitted, Question: true})
	require.Len(t, b.told, 1, "forgotten, as all have it")
	s, _ = b.get("k")
	require.Equal(t, protocol.StatusOK, s)
	b.wall += 5000
	s, _ = b.get("k")
	require.Equal(t, protocol.StatusUnavailable, s, "the machine was suspended, and its monotonic clock stood still")
	s, _ = b.get("k")
	require.Equal(t, protocol.StatusUnavailable, s, "until a member has granted anew")
	b.work(time.Millisecond)
	s, _ = b.get("k")
	require.Equal(t, protocol.StatusOK, s)
}

// TestCommitNeedsTenure: a primary without tenure may have a successor, at which the client has prepared. The COMMIT
// is meant for that successor: its readers do not see what is committed here.
func TestCommitNeedsTenure(t *testing.T) {
	b := newMemberBench(t)
	b.reign(1)
	q := b.question("k")
	q.TS = at(2000)
	b.p.Look()
	b.p.Prepare(q, 0, func(protocol.Status, Timestamp) {})
	b.work(time.Millisecond)
	commit := func(ts Timestamp) (s protocol.Status) {
		b.p.Commit(protocol.Transaction{TS: ts, Client: q.Client}, func(status protocol.Status) { s = status })
		return s
	}
	b.mono, b.wall = b.mono+int64(3*time.Second), b.wall+3000
	require.Equal(t, protocol.StatusUnavailable, commit(q.TS))
	require.Equal(t, protocol.StatusUnavailable, commit(at(1999)), "a successor may have it prepared")
	b.work(time.Millisecond)
	require.Equal(t, protocol.StatusUnknown, commit(at(1999)))
	require.Equal(t, protocol.StatusOK, commit(q.TS))
}

// TestConnectionOfAnotherReign: a connection that was made in an earlier reign comes to the member's thread late. The
// member does not serve requests of that connection: another primary may have refused them since, and the client
// would take the answers for those of a reign that is over.
func TestConnectionOfAnotherReign(t *testing.T) {
	b := newMemberBench(t)
	b.reign(3)
	q := b.question("k")
	q.TS, q.Hashes = at(2000), []uint64{circle.Hash(5, []byte("k"))}
	for _, term := range []uint64{0, 1, 4, 3} {
		c := &said{in: []wire.Message{{Header: wire.Header{Op: uint8(protocol.OpPrepare), Flags: uint8(protocol.FlagOnePhase)}, Body: q.AppendBody(nil)}}}
		b.m.Attach(c, Greeting{Term: term})
		b.work(time.Millisecond)
		b.work(time.Millisecond)
		_, v := b.get("k")
		require.Equal(t, term == 3, v.State == protocol.StateFound)
		require.Equal(t, term != 3, c.closed)
	}
}

// TestToldOnceItIsSynced: a partition tells nothing of a PREPARE, nor that a timestamp belongs to another
// transaction, before the file has it.
func TestToldOnceItIsSynced(t *testing.T) {
	b := newMemberBench(t)
	b.reign(1)
	s := protocol.Status(99)
	q := b.question("k")
	q.TS = at(2000)
	b.p.Look()
	b.p.Prepare(q, 0, func(status protocol.Status, _ Timestamp) { s = status })
	require.Equal(t, protocol.Status(99), s)
	b.p.Hear(Note{From: 1, TS: q.TS, Client: 10, State: NotePrepared, Question: true})
	b.p.Hear(Note{From: 1, TS: q.TS, Client: q.Client, State: NotePrepared, Question: true})
	b.m.Step()
	require.Empty(t, b.told)
	b.work(time.Millisecond)
	require.Equal(t, protocol.StatusOK, s)
	require.Len(t, b.told, 2)
	require.Equal(t, NoteRefused, b.told[0].State, "it is another client's transaction here")
	require.Equal(t, NotePrepared, b.told[1].State)
}

// TestTimestampOfAnother: a client that was told that a timestamp belongs to another transaction here has aborted its
// own transaction. So its transaction is not prepared here after the other one is forgotten, in this reign or in the
// next one.
func TestTimestampOfAnother(t *testing.T) {
	b := newMemberBench(t)
	b.reign(1)
	q := b.question("k")
	q.TS, q.Hashes = at(2000), []uint64{circle.Hash(5, []byte("k"))} // of this partition only
	b.p.Look()
	b.p.Prepare(q, protocol.FlagOnePhase, func(protocol.Status, Timestamp) {})
	b.p.Hear(Note{From: 1, TS: q.TS, Client: 10, State: NotePrepared, Question: true})
	require.Empty(t, b.told)
	b.work(time.Millisecond)
	require.Len(t, b.told, 1)
	require.Equal(t, NoteRefused, b.told[0].State)
	b.work(2 * time.Second)
	require.NotContains(t, b.p.txns, q.TS)
	late := func() {
		s := protocol.Status(99)
		o := b.question("other")
		o.TS, o.Client = q.TS, 10
		b.p.Look()
		b.p.Prepare(o, 0, func(status protocol.Status, _ Timestamp) { s = status })
		require.Equal(t, protocol.StatusRefused, s)
	}
	late()
	in, err := b.f.Inherit(func(uint64) bool { return true })
	require.NoError(t, err)
	require.GreaterOrEqual(t, in.Floor, uint64(q.TS))
}

// TestNextReign: the next reign inherits what was prepared. It refuses a PREPARE with a lower timestamp, and a read
// waits for the outcome.
func TestNextReign(t *testing.T) {
	b := newMemberBench(t)
	b.reign(1)
	q := b.question("k")
	q.TS = at(2000)
	b.p.Look()
	b.p.Prepare(q, 0, func(protocol.Status, Timestamp) {})
	b.work(time.Millisecond)
	first := b.p
	b.m.Learn(replica.Record{Revision: 2, Term: 2, Primary: "b", Set: []string{"b"}})
	b.work(time.Millisecond)
	require.Nil(t, b.m.p)
	require.False(t, b.m.Follower().Whole(), "it may have what no successor has")
	b.m.standing.Join("a", 0, replica.NewFollower(replica.FollowerOptions{
		Memory: b.m.o.Memory, RingSize: b.m.o.Log.Size(), Log: b.m.o.Log, State: (*merged)(b.m), Eager: true,
	}, b.mono), b.mono, b.wall) // as after a restart
	b.reign(3)
	require.NotSame(t, first, b.p)
	require.Equal(t, 1, b.p.Stats().Prepared)
	s, newest := protocol.Status(99), Timestamp(0)
	lower := b.question("k")
	lower.TS = at(1999)
	b.p.Look()
	b.p.Prepare(lower, 0, func(status protocol.Status, n Timestamp) { s, newest = status, n })
	require.Equal(t, protocol.StatusRefused, s)
	require.Equal(t, q.TS, newest)
	s, _ = b.get("k")
	require.Equal(t, protocol.Status(99), s, "its outcome is not known")
}

// TestTenureLeft: clients are told the tenure that is left.
func TestTenureLeft(t *testing.T) {
	b := newMemberBench(t)
	b.reign(1)
	b.mono, b.wall = b.mono+int64(600*time.Millisecond), b.wall+600
	require.True(t, b.p.mayTell())
	require.InDelta(t, 400_000, float64(b.p.tenureLeft()), 10_000)
}

// TestReignBeginsOnAWholeFile: a member whose file lacks an entry that the member has does not reign yet.
func TestReignBeginsOnAWholeFile(t *testing.T) {
	b := newMemberBench(t)
	body := store.AppendChanges(nil, []store.Change{store.PutFloor(7)})
	require.True(t, (*merged)(b.m).Merge(b.m.o.Log.Append(1, body), 1, body))
	b.m.Learn(replica.Record{Revision: 2, Term: 2, Primary: "a", Set: []string{"a"}})
	b.m.Step()
	require.Nil(t, b.m.Reign())
	b.work(time.Millisecond)
	require.NotNil(t, b.m.Reign())
	require.Equal(t, Timestamp(7), b.p.floor)
}

// TestEntriesAreNewerThanPieces: pieces of a copy that come after an entry do not bring back a record that this entry
// has changed or deleted since the copy began.
func TestEntriesAreNewerThanPieces(t *testing.T) {
	b := newMemberBench(t)
	f, err := store.OpenVersions(filepath.Join(t.TempDir(), "copy.fdbm"), 0)
	require.NoError(t, err)
	st, err := store.Open(f, func() {}, 0)
	require.NoError(t, err)
	defer st.Close()
	was := b.m.o.Store
	b.m.o.Fresh = func() (*store.Store, error) { return st, nil }
	b.m.o.Log, err = replica.NewLog(b.m.o.Memory, 64<<10, 5, nil)
	require.NoError(t, err)
	x := (*merged)(b.m)
	require.NoError(t, x.Forget(5, nil, nil))
	row := func(ts uint64, s store.TransactionState) store.Change {
		return store.PutTransaction(&store.Transaction{TS: ts, State: s, Hashes: []uint64{1}})
	}
	body := store.AppendChanges(nil, []store.Change{row(1, store.Committed), store.DropTransaction(2)})
	require.True(t, x.Merge(b.m.o.Log.Append(1, body), 1, body))
	require.True(t, x.Piece(store.AppendChanges(nil, []store.Change{row(1, store.Prepared), row(2, store.Prepared), row(3, store.Prepared)})))
	for range 6 {
		b.later += time.Hour
		now := time.Now().Add(b.later)
		st.StepCommitter(now)
		st.StepSyncer(now)
	}
	in, err := f.Inherit(func(uint64) bool { return true })
	require.NoError(t, err)
	require.Len(t, in.Transactions, 2)
	require.Equal(t, store.Committed, in.Transactions[0].State)
	require.EqualValues(t, 3, in.Transactions[1].TS)
	b.m.o.Store = was
}

// TestMapOfAnotherNode: a member that serves nobody tells clients the map, once they have proved that they have the
// secret, and nothing else.
func TestMapOfAnotherNode(t *testing.T) {
	b := newMemberBench(t)
	b.m.o.Places = func() []byte { return []byte("the map") }
	ask := func(c *said, ops ...protocol.Op) {
		for _, op := range ops {
			m := wire.Message{Header: wire.Header{Op: uint8(op)}}
			if op == protocol.OpAuth {
				m.Body = make([]byte, protocol.ProofSize)
				m.Body[0] = 7
			}
			c.in = append(c.in, m)
		}
		for range 4 {
			b.m.Step()
		}
	}
	open, secret, stranger := &said{}, &said{}, &said{}
	b.m.Attach(open, Greeting{})
	b.m.Attach(secret, Greeting{Auth: true, Proof: [protocol.ProofSize]byte{7}})
	b.m.Attach(stranger, Greeting{Auth: true, Proof: [protocol.ProofSize]byte{8}})
	ask(open, protocol.OpMap)
	ask(secret, protocol.OpAuth, protocol.OpMap)
	ask(stranger, protocol.OpAuth, protocol.OpMap)
	require.Equal(t, []string{"the map"}, open.out)
	require.Equal(t, []string{"the map"}, secret.out)
	require.Empty(t, stranger.out)
	require.True(t, stranger.closed)
	ask(open, protocol.OpGet)
	require.True(t, open.closed)
	require.Len(t, open.out, 1)
}

// said is a connection that a test controls.
type said struct {
	in     []wire.Message
	out    []string
	closed bool
}

func (c *said) Begin(int) ([]byte, error)       { return nil, nil }
func (c *said) End(_ *wire.Header, body []byte) { c.out = append(c.out, string(body)) }
func (c *said) Flush()                          {}
func (c *said) Err() error                      { return nil }
func (c *said) Close() error                    { c.closed = true; return nil }
func (c *said) Receive() (m wire.Message, ok bool) {
	if len(c.in) == 0 {
		return m, false
	}
	m, c.in = c.in[0], c.in[1:]
	return m, true
}

func TestNotes(t *testing.T) {
	n := Note{From: 3, TS: at(7), Client: 9, State: NoteCommitted, Settled: true, Question: true, Hashes: []uint64{1, 1 << 63}}
	b := n.Append(nil)
	var got Note
	require.NoError(t, got.Parse(b))
	require.Equal(t, n, got)
	for i := range b {
		require.Error(t, got.Parse(b[:i]))
	}
	b[4] = 9
	require.Error(t, got.Parse(b))
}

// TestNotesOfAnotherLife: a partition may have lost since what it knew in another life of the table. So nothing is
// committed because of its notes of that life.
func TestNotesOfAnotherLife(t *testing.T) {
	b := newMemberBench(t)
	b.m.Learn(replica.Record{Revision: 1, Term: 1, Primary: "a", Set: []string{"a"}, Life: 3})
	b.work(time.Millisecond)
	b.work(1300 * time.Millisecond)
	q := b.question("k")
	q.TS = at(2000)
	b.p.Look()
	b.p.Prepare(q, 0, func(protocol.Status, Timestamp) {})
	b.work(time.Millisecond)
	n := Note{From: 1, TS: q.TS, Client: q.Client, Life: 2, State: NoteCommitted, Synced: true, Settled: true}
	b.m.Hear(n)
	_, v := b.get("k")
	require.Equal(t, protocol.StateNever, v.State)
	n.Life = 3
	b.m.Hear(n)
	_, v = b.get("k")
	require.Equal(t, q.TS, v.TS)
}
