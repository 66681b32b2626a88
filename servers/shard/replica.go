package shard

import (
	"bytes"
	"math"
	"slices"
	"time"

	"flashdbm/servers/arena"
	"flashdbm/servers/circle"
	"flashdbm/servers/guard"
	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/replica"
	"flashdbm/servers/store"
	"flashdbm/servers/table"
)

// Membership configures a shard that is one of several replicas. Log is nil for one that is not.
type Membership struct {
	Log       *replica.Log
	Self      string // the member's name in records
	Mode      replica.Mode
	MinInSync int               // fewer members in the set: writes are refused
	Ended     uint64            // the term that the record had when this life began: it does not go on in it
	RingSize  int               // bytes, those of Log
	Memory    replica.Allocator // of rings: the domain through which primaries come
	// Fresh returns an empty store for a copy, in place of the one that the shard has, and Keep makes it what the next life will open. In
	// memory mode they are nil.
	Fresh func() (*store.Store, error)
	Keep  func() error
}

// member is what a shard has that is one of several replicas. It is a secondary, which merges what its primary has decided and serves nobody,
// or the primary. See package replica for the rules; these are the shard's own:
//
//  1. A secondary shows what it merges at once: nobody has pointers into its memory that count. A primary that is deposed shows nothing any more,
//     as its clients may Read what it has until its tenure ends; it gets a copy, in new memory. One that has handed its reign over has waited
//     for that end.
//  2. A secondary knows the answers of all writes that it has merged in this life or was given with a copy. Who forgets a client logs that. Of
//     what its file had when the life began it knows no answers: the first entry of a client that comes says which numbers may be among them.
//  3. An answer that tells of what was read is given within tenure, as it was when the request had been polled, and so is the same answer to the same
//     number again: while tenure is over somebody else may reign, who knows nothing of that answer, and may have applied the write. The answer to a
//     write that is an entry of its own needs no tenure: the entry is committed only if the reign lasts, and who reigns next has it.
//  4. A reign serves no connection that was made before it served: what comes on one may be a write that was sent to this member long ago, and that
//     another primary has refused since.
//  5. Versions never fall: a reign begins with a base above every version that an earlier one may have given, committed or not.
type member struct {
	standing replica.Standing
	high     uint64 // no entry had a version of a higher base
	settles  uint64 // what is older than this entry is as durable as it: what earlier reigns have made
	admits   bool   // it serves, and the connections from before that are ended

	copying     bool
	changedKeys map[string]struct{} // keys that entries have changed since the copy began
	stuck       int64               // since when there has been no room for an entry; 0: there is

	pieces map[string]*copyPiece // of copies to other members
	buf    []byte
}

// A copyPiece is a part of the file on its way to another member.
type copyPiece struct {
	id   uint64
	came *store.Piece
}

const (
	// memberLook is the longest sleep of a shard with replicas: rings are Written without a notification.
	memberLook = 20 * time.Millisecond
	// stuckAfter is how long a secondary may have no room for an entry before it gives up its place in the set.
	stuckAfter = int64(300 * time.Millisecond)
	// copyBytes is about how much a piece of a copy has.
	copyBytes = 64 << 10
	// reignGap is what the base grows by with a reign: more than any number of entries that were given versions and then lost.
	reignGap = 1 << 36
)

// join makes the shard a secondary of nobody yet.
func (s *Shard) join() {
	s.standing.Join(s.o.Self, s.o.Ended, replica.NewFollower(replica.FollowerOptions{
		Memory: s.o.Memory, RingSize: s.o.RingSize, Log: s.o.Log, State: (*merged)(s), Eager: s.o.Mode != replica.Relaxed,
	}, s.now), s.now, s.wall)
	s.pieces = map[string]*copyPiece{}
	if s.high = s.base; s.o.Store == nil {
		s.base, s.high = 0, 0 // versions are those of the entries that will come
	}
}

// leave ends what the shard has with other members.
func (s *Shard) leave() {
	s.endMoves()
	s.standing.End()
	if f := s.Follower(); f != nil {
		f.Close()
	}
}

// Follower returns the shard as a secondary, Reign as the primary; nil if it is none. Both are for the shard's thread.
func (s *Shard) Follower() *replica.Follower { return s.standing.Follower() }
func (s *Shard) Reign() *replica.Reign       { return s.standing.Reign() }

// Record returns the newest record that the shard was told.
func (s *Shard) Record() replica.Record { return s.standing.Record() }

// Learn tells the shard what its record says.
func (s *Shard) Learn(rec replica.Record) { s.standing.Learn(rec) }

// Stop obeys the order to follow nobody of the record's term any more; false if the order is void, or this is the primary.
func (s *Shard) Stop(rec *replica.Record) bool {
	now, _ := s.o.Clock()
	return s.standing.Stop(rec, now)
}

// passive reports whether the shard serves nobody: it is a secondary, or a primary that does not serve yet.
func (s *Shard) passive() bool { return s.o.Log != nil && (s.Reign() == nil || !s.Reign().Serving()) }

// unsure reports whether somebody else may serve by now, so that nothing that was read may be told.
func (s *Shard) unsure() bool {
	return s.o.Log != nil && (s.Reign() == nil || s.now >= s.Reign().TenureEnd())
}

// lacksMembers reports whether there are too few members for writes.
func (s *Shard) lacksMembers() bool {
	return s.o.Log != nil && (s.Reign() == nil || s.Reign().InSync() < s.o.MinInSync)
}

// tenureLeft returns what is left of the tenure, in microseconds.
func (s *Shard) tenureLeft() uint32 {
	switch {
	case s.o.Log == nil:
		return micros(int64(tenure))
	case s.Reign().Yields():
		return 0
	}
	return micros(max(0, s.Reign().TenureEnd()-s.now))
}

func (s *Shard) reignTerm() uint64 {
	if s.o.Log == nil {
		return 0
	}
	return s.term
}

// agreed returns the newest entry that is committed.
func (s *Shard) agreed() uint64 {
	if s.Reign() == nil || s.Reign().Over() {
		return s.shown
	}
	s.Reign().Advance()
	return min(s.seq, s.Reign().Committed())
}

func (s *Shard) originOf(r *reply, q *protocol.Request) *origin {
	if s.o.Log == nil || r.c.once {
		return nil
	}
	cl := r.c.client
	return &origin{client: cl.id, number: q.Number, oldest: q.Oldest, floor: cl.unused()}
}

// replicate gives the log the entry that has just been numbered.
func (s *Shard) replicate(seq uint64, c *change) {
	s.buf = c.append(s.buf[:0])
	if got := s.o.Log.Append(s.term, s.buf); got != seq {
		panic("shard: the log has another entry")
	}
}

// confer goes on with the other members. It is called behind the clock.
func (s *Shard) confer() (worked bool) {
	if s.failed != nil {
		return false
	}
	s.standing.Look(s.now, s.wall)
	if s.Reign() == nil {
		s.Follower().Bar(s.Record().Term, s.now)
	}
	if s.Reign() != nil {
		worked = s.Reign().Step(s.now)
		if s.Reign().Over() {
			s.depose()
			worked = true
		} else if s.Reign().Closed() && s.still() {
			s.Reign().Still()
		}
		if !s.passive() {
			worked = s.move() || worked
		}
	}
	worked = s.Follower().Step(s.now) || worked
	if s.standing.Promoted() {
		s.beginReign()
		worked = true
	}
	if was := s.admits; was == s.passive() {
		if s.admits = !was; s.admits {
			s.dropClients()
		}
	}
	return worked
}

// beginReign makes this member the primary.
func (s *Shard) beginReign() {
	rec := s.Record()
	s.term, s.reignAt = rec.Term, rec.Revision
	s.setBase(max(s.high+reignGap, s.wall<<20))
	s.start, s.settles = s.seq, s.seq
	s.standing.Begin(replica.ReignOptions{Mode: s.o.Mode, Log: s.o.Log, Source: (*source)(s)})
	for _, cl := range s.clients {
		cl.left = s.now
	}
	s.Reign().Step(s.now)
}

// setBase goes on with versions of another base: those of the entries that come, or of this member's reign.
func (s *Shard) setBase(base uint64) {
	s.base, s.high = base, max(s.high, base)
	if s.o.Store != nil {
		s.o.Store.SetBase(s.high)
	}
}

// still reports whether nothing is left of what was decided, or waits to be.
func (s *Shard) still() bool {
	return s.shown == s.seq && s.waiting == 0 && len(s.scans) == 0 && len(s.stalls) == 0 && len(s.inbox) == 0
}

// closed reports whether the reign is being handed over, so that nothing new may be decided.
func (s *Shard) closed() bool { return s.Reign() != nil && s.Reign().Closed() }

// depose ends the reign. What is not committed may be in the next reign or not. Who has handed over, and has nothing of that kind, goes on with
// what there is (rule 13 of package replica).
func (s *Shard) depose() {
	if !s.Reign().Closed() || s.shown != s.seq {
		s.Follower().Spoil()
	}
	s.endMoves()
	s.standing.End()
	s.refuseAll()
	s.dropClients()
}

// dropClients ends the connections of clients: they look for the primary. What came on them is not looked at. Callers of this process have none.
func (s *Shard) dropClients() {
	for _, c := range s.conns {
		c.ended = !c.once
	}
	s.inbox = slices.DeleteFunc(s.inbox, func(m message) bool { return m.c.ended })
	s.dropEnded()
}

// merged is the shard as the state of a secondary: replica.State.
type merged Shard

// source is the shard as the state of a primary: replica.Source.
type source Shard

// Yield implements replica.State: a later primary has come before the record did.
func (m *merged) Yield() {
	if s := (*Shard)(m); s.Reign() != nil {
		s.depose()
	}
}

// Merge implements replica.State.
func (m *merged) Merge(seq, term uint64, body []byte) bool {
	s := (*Shard)(m)
	var c change
	if err := c.parse(body); err != nil {
		s.stepDown(err)
		return false
	}
	if s.o.Store != nil && s.o.Store.Backlog() > maxBacklog {
		return s.noRoom()
	}
	e := entry{seq: seq, hash: s.hash(c.Key), remove: c.kind == changeRemove}
	switch c.kind {
	case changePut, changeMoved:
		n := guard.Size(len(c.Key), len(c.Value))
		p, err := s.room(n)
		switch {
		case err == nil:
			e.place, e.guardian = p, guard.Build(s.arena.Bytes(p)[:n], &c.Item)
		case s.o.Store == nil || s.pinned(e.hash):
			return s.noRoom()
		default: // the file has it, where requests find it
			s.toFile(e.hash, c.Key)
			e.empty = true
		}
	case changeRemove:
		e.key = bytes.Clone(c.Key)
	default:
		e.empty = true
	}
	s.stuck = 0
	s.seq, s.shown = seq, seq
	if base := c.entry - seq; base != s.base { // of a new reign, or raised above the versions of another shard
		s.setBase(base)
		s.start, s.settles = seq-1, seq-1
	}
	if c.kind == changeMoved {
		s.settles = seq // its version does not say which entry brought it
	}
	x := store.Entry{Seq: seq, Term: term, Hash: e.hash, Remove: e.remove, Empty: c.kind == changeNothing || c.kind == changeForget, Record: store.Record{
		Version: c.Version, Expiry: c.Expiry, Flags: c.Flags, Key: c.Key, Value: c.Value,
	}}
	if c.kind == changeDrop {
		x = store.Entry{Seq: seq, Term: term, Hash: c.origin.number, Last: c.origin.oldest, Drop: true}
	}
	if s.o.Store != nil {
		s.o.Store.Append(x)
	}
	if s.copying && (c.kind <= changeRemove || c.kind == changeMoved) {
		s.changedKeys[string(c.Key)] = struct{}{}
	}
	switch {
	case c.kind == changeDrop:
		s.drop(drop{circle.Range{First: c.origin.number, Last: c.origin.oldest}, seq})
	case !e.empty:
		s.show(&e)
	}
	s.noteOrigin(seq, &c)
	return true
}

// toFile takes a key out of the memory: what the file has counts.
func (s *Shard) toFile(h uint64, key []byte) {
	s.complete, s.evicted = false, true
	delete(s.tombs, string(key))
	p, ok := s.table.Find(h, key)
	if !ok {
		return
	}
	b := guard.Bytes(s.arena.Bytes(arena.Place(p)))
	if guard.Hide(b); guard.Parse(b).Expiry != 0 {
		s.expiring--
	}
	s.table.Remove(h, p)
	s.arena.Retire(arena.Place(p), s.now)
}

func (s *Shard) noRoom() bool {
	if s.stuck == 0 {
		s.stuck = s.now
	}
	return false
}

// noteOrigin keeps the answer to the write.
func (s *Shard) noteOrigin(seq uint64, c *change) {
	o := c.origin
	if o.client == 0 {
		return
	}
	if c.kind == changeForget {
		delete(s.clients, o.client)
		return
	}
	cl := s.clients[o.client]
	if cl == nil {
		cl = &client{id: o.client, floor: o.floor, outcomes: map[uint64]outcome{}, left: s.now}
		s.clients[o.client] = cl
	}
	cl.answered(o.oldest)
	cl.high = max(cl.high, o.number)
	if o.number >= cl.low {
		out := outcome{seq: seq, logged: true, body: protocol.Written{Sum: o.sum}}
		if c.kind == changePut {
			out.body.Version = c.Version
		}
		cl.outcomes[o.number] = out
	}
}

// Synced implements replica.State and replica.Source.
func (m *merged) Synced() uint64 {
	if m.o.Store == nil {
		return m.seq
	}
	return m.o.Store.Durable()
}

// Room implements replica.State.
func (m *merged) Room() (bytes uint64, ok bool) {
	if m.failed != nil || m.stuck != 0 && m.now-m.stuck > stuckAfter {
		return 0, false
	}
	if m.o.Store == nil {
		return math.MaxUint64, true
	}
	return m.o.Store.RoomLeft(), !m.o.Store.Full()
}

// Forget implements replica.State: the shard becomes empty, in new memory.
func (m *merged) Forget(seq uint64, terms []replica.Term, header []byte) error {
	s := (*Shard)(m)
	if s.o.Fresh != nil {
		st, err := s.o.Fresh()
		if err != nil {
			return err
		}
		var list []store.Term
		for _, t := range terms {
			list = append(list, store.Term{Term: t.Term, First: t.First})
		}
		st.Begin(seq, list)
		s.o.Store = st
	}
	a, err := arena.New(s.o.Alloc, s.o.Arena)
	if err != nil {
		return err
	}
	s.refuseAll()
	s.dropClients()
	s.arena.Close()
	s.arena, s.table = a, table.New((*items)(s))
	s.log = log{seq: seq, shown: seq, newest: map[uint64]uint64{}}
	ids := s.ids // pieces of the last file may still come
	s.cache = cache{pieceBytes: s.pieceBytes}
	s.cache.init()
	s.ids, s.complete = ids, true
	s.drops, s.hidden = nil, false
	s.expiring, s.clients, s.stuck = 0, map[uint64]*client{}, 0
	s.copying, s.changedKeys = true, map[string]struct{}{}
	return s.takeHeader(seq, header)
}

// Whole implements replica.State.
func (m *merged) Whole(mark uint64) bool {
	s := (*Shard)(m)
	if s.o.Store != nil {
		if s.o.Store.Durable() < mark {
			return false
		}
		if err := s.o.Keep(); err != nil {
			s.stepDown(err)
			return false
		}
	}
	s.copying, s.changedKeys = false, nil
	s.forgetDrops()
	return true
}
