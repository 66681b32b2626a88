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

// Membership configures a shard that is one of several replicas. Without replicas Log is nil.
type Membership struct {
	Log       *replica.Log
	Self      string // the member's name in records
	Mode      replica.Mode
	MinInSync int               // with fewer members in the set, writes are refused
	Ended     uint64            // the record's term when this life began: the life does not reign in it
	RingSize  int               // bytes, as Log
	Memory    replica.Allocator // for rings: the domain through which primaries connect
	// Fresh returns an empty store for a copy, in place of the shard's store. Keep makes it the one that the next
	// life opens. In memory mode both are nil.
	Fresh func() (*store.Store, error)
	Keep  func() error
}

// member is the state of a shard with replicas. It is a secondary, which merges the entries of its primary and serves
// nobody, or the primary. See package replica for the rules; these are the shard's own:
//
//  1. A secondary shows what it merges at once: no client has a valid pointer into its memory. A deposed primary
//     shows no further entries, because its clients may Read its memory until its tenure ends; it receives a copy,
//     in new memory. A primary that has handed over its reign has already waited for the end of its tenure.
//  2. A secondary knows the answers to all writes that it has merged in this life or received with a copy. A primary
//     that forgets a client logs that. The secondary knows no answers to writes that its file had when the life
//     began: the first entry that arrives of a client says which numbers such writes may have.
//  3. An answer that reports a state that was read is given only within tenure, counted from when the request was
//     polled. The same holds when the answer is repeated: after tenure another member may reign, which does not know
//     the answer and may have applied the write. The answer to a write that is an entry of its own needs no tenure:
//     the entry is committed only if the reign lasts, and the next primary has it.
//  4. A reign serves only connections whose hello it has answered: clients send requests after that answer, which
//     names the term. A request on another connection may be a write that was sent to this member long ago, and that
//     another primary has refused since. The shard may get the connection some time after the hello was answered.
//  5. Versions never decrease: a reign begins with a base above every version that an earlier one may have assigned,
//     committed or not.
type member struct {
	standing replica.Standing
	high     uint64 // the highest base of any entry's version
	settles  uint64 // for durability, items older than this entry count as made by this entry, because earlier reigns have made them
	admits   bool   // it serves, and all connections made before it began to serve have ended

	copying     bool
	changedKeys map[string]struct{} // keys changed by entries since the copy began
	stuck       int64               // since when there has been no room for an entry; 0: there is room

	pieces map[string]*copyPiece // for copies to other members
	buf    []byte
}

// A copyPiece is a part of the file on its way to another member.
type copyPiece struct {
	id   uint64
	came *store.Piece
}

const (
	// memberLook is the longest sleep of a shard with replicas, because rings are Written without notification.
	memberLook = 20 * time.Millisecond
	// stuckAfter is how long a secondary may have no room for an entry before it gives up its place in the set.
	stuckAfter = int64(300 * time.Millisecond)
	// copyBytes is the approximate size of a piece of a copy.
	copyBytes = 64 << 10
	// reignGap is the increase of the base with each reign: more than the number of entries that can have been given
	// versions and then lost.
	reignGap = 1 << 36
)

// join makes the shard a secondary that does not follow a primary yet.
func (s *Shard) join() {
	s.standing.Join(s.o.Self, s.o.Ended, replica.NewFollower(replica.FollowerOptions{
		Memory: s.o.Memory, RingSize: s.o.RingSize, Log: s.o.Log, State: (*merged)(s), Eager: s.o.Mode != replica.Relaxed,
	}, s.now), s.now, s.wall)
	s.pieces = map[string]*copyPiece{}
	if s.high = s.base; s.o.Store == nil {
		s.base, s.high = 0, 0 // versions are those of the entries that will come
	}
}

// leave ends the shard's connections with other members.
func (s *Shard) leave() {
	s.endMoves()
	s.standing.End()
	if f := s.Follower(); f != nil {
		f.Close()
	}
}

// Follower returns the shard's part as a secondary. Reign returns its part as the primary, nil if it is not the
// primary. Only the shard's thread calls them.
func (s *Shard) Follower() *replica.Follower { return s.standing.Follower() }
func (s *Shard) Reign() *replica.Reign       { return s.standing.Reign() }

// Record returns the newest record that the shard has learned.
func (s *Shard) Record() replica.Record { return s.standing.Record() }

// Learn tells the shard the content of its record.
func (s *Shard) Learn(rec replica.Record) { s.standing.Learn(rec) }

// Stop obeys the order to follow no primary of the record's term; false if the order is invalid, or this member is
// the primary.
func (s *Shard) Stop(rec *replica.Record) bool {
	now, _ := s.o.Clock()
	return s.standing.Stop(rec, now)
}

// passive reports whether the shard serves nobody: it is a secondary, or a primary that does not serve yet.
func (s *Shard) passive() bool { return s.o.Log != nil && (s.Reign() == nil || !s.Reign().Serving()) }

// servingTerm returns the term in which this member serves, 0 if it does not.
func (s *Shard) servingTerm() uint64 {
	if s.passive() {
		return 0
	}
	return s.Reign().Term()
}

// unsure reports whether another member may serve by now, so that no read may be answered.
func (s *Shard) unsure() bool {
	return s.o.Log != nil && (s.Reign() == nil || s.now >= s.Reign().TenureEnd())
}

// lacksMembers reports whether there are too few members for writes.
func (s *Shard) lacksMembers() bool {
	return s.o.Log != nil && (s.Reign() == nil || s.Reign().InSync() < s.o.MinInSync)
}

// tenureLeft returns the remaining tenure in microseconds.
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

// agreed returns the newest committed entry.
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

// replicate appends the entry that has just been numbered to the log.
func (s *Shard) replicate(seq uint64, c *change) {
	s.buf = c.append(s.buf[:0])
	if got := s.o.Log.Append(s.term, s.buf); got != seq {
		panic("shard: the log has another entry")
	}
}

// confer advances everything that concerns other members. It is called after the clock was read.
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

// setBase continues with versions of another base: that of arriving entries, or of this member's reign.
func (s *Shard) setBase(base uint64) {
	s.base, s.high = base, max(s.high, base)
	if s.o.Store != nil {
		s.o.Store.SetBase(s.high)
	}
}

// still reports whether every decided entry is shown, and no request waits.
func (s *Shard) still() bool {
	return s.shown == s.seq && s.waiting == 0 && len(s.scans) == 0 && len(s.stalls) == 0 && len(s.inbox) == 0
}

// closed reports whether the reign is being handed over, so that nothing new may be decided.
func (s *Shard) closed() bool { return s.Reign() != nil && s.Reign().Closed() }

// depose ends the reign. Entries that are not committed may or may not be in the next reign. A primary that has
// handed over, and has no such entries, continues with its present state (rule 13 of package replica).
func (s *Shard) depose() {
	if !s.Reign().Closed() || s.shown != s.seq {
		s.Follower().Spoil()
	}
	s.endMoves()
	s.standing.End()
	s.refuseAll()
	s.dropClients()
}

// dropClients ends the connections of clients, which look for the primary. Requests polled from them are dropped.
// Connections within this process stay.
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

// Yield implements replica.State: a later primary has connected before this
// member learned of its record.
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
		default: // the file has the item, where requests find it
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
		s.settles = seq // the version does not show which entry brought the item
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

// toFile removes a key from memory: from now on its state is the file's record.
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
	ids := s.ids // pieces of the old file may still come
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
