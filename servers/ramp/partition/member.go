package partition

import (
	"bytes"
	"fmt"
	"time"

	"flashdbm/servers/ramp/protocol"
	"flashdbm/servers/replica"
	"flashdbm/servers/store"
	"flashdbm/servers/wire"
)

// MemberOptions configure a member of a partition's replicas.
type MemberOptions struct {
	// Options are those of the partition while this member reigns. Durability is Sync or Async, because there always
	// is a file, possibly in memory. Each reign sets Term and Inherited.
	Options
	Mode      replica.Mode // when an entry is committed: Synced if and only if Durability is Sync
	Log       *replica.Log
	Self      string // the member's name in records
	MinInSync int    // with fewer members in the set, nothing is prepared
	Ended     uint64 // the record's term when this life began: the life does not reign in it
	Memory    replica.Allocator
	// Inherit reads the unfinished work from the file. Fresh returns an empty store for a copy, in place of the
	// present store. Keep makes it the one that the next life opens.
	Inherit func() (store.Inherited, error)
	Fresh   func() (*store.Store, error)
	Keep    func() error
	// Places returns the map for clients.
	Places func() []byte
	// Raw returns the same monotonic clock as Clock, and the machine's own date, which jumps when the machine was
	// suspended.
	Raw func() (mono int64, wall uint64)
}

// A Member is a partition with replicas, on one node. As a secondary it only writes the primary's entries to its
// file. When it becomes the primary, a Partition begins on that file as it would after a restart; when it is deposed,
// that Partition ends. One thread uses it.
//
// Invariants, in addition to those of package replica and of a Partition alone:
//
//  1. An entry is the changes that it makes to the file. So all members with the same entries have the same records,
//     and a new primary knows what its predecessor had prepared, committed, refused, and forgotten.
//  2. An answer that depends on an entry is sent when the entry is committed: all members have synced it, in sync
//     mode; their rings have it, or they have merged it, in async mode. A COMMIT is shown before its own entry is
//     committed: all partitions have the PREPARE by then, at all their members, so the next primary commits the
//     transaction before it shows one of its keys.
//  3. An answer that depends on no entry, but on the partition's state, is sent within tenure, by the clock as read
//     after the question: values, the answer to COMMIT, and the answer that a transaction is forgotten because all
//     partitions have it. A primary that was deposed without knowing it lacks what was prepared since, and readers
//     do not see its commits.
//  4. A new reign serves no PREPARE below a version that it has inherited as prepared: that version may have been
//     acknowledged.
//  5. The items of a reign are in memory of its own, which ends with it. Reads of it are valid until its tenure ends,
//     and no later reign serves before that.
//  6. Notes go to the known primary of a partition, and may be lost with it. A transaction asks again.
//  7. In async mode the log gets a COMMIT when all partitions have synced the PREPARE at all their members, and a
//     member that joins the set has first synced what was durable. So if all members of all partitions end, no
//     file has a part of a transaction as committed that another partition has lost.
//  8. In async mode, if all members of one partition end, entries are lost on which other partitions depend. That
//     ends the life of the table: no partition enters the next life before the members of all others have ended, too
//     (membership.Table.Together). Notes and answers of another life do not count.
//  9. A reign serves no connection that was made in an earlier one. The client would take the answers for those of
//     the reign, and of the life of the table, that the welcome named; and requests that it sent earlier may have
//     been refused since, by a primary between the two reigns.
type Member struct {
	o        MemberOptions
	standing replica.Standing
	p        *Partition // set while the member reigns

	now     int64
	guides  []*conn // connections of clients that look for the primary
	copying bool
	changed map[string]struct{} // records that entries have changed since the copy began
	stuck   int64               // since when there has been no room for an entry; 0: there is room
	pieces  map[string]*copyPiece
	ids     uint64
	failed  error
	past    Stats // of past reigns
}

// A copyPiece is a part of the file on its way to another member.
type copyPiece struct {
	id   uint64
	came *store.Piece
	sent int // number of its records sent
}

const (
	// memberLook is the longest sleep of a partition with replicas, because rings are Written without notification.
	memberLook = 20 * time.Millisecond
	// stuckAfter is how long a secondary may have no room for an entry before it gives up its place in the set.
	stuckAfter = int64(300 * time.Millisecond)
	// copyBytes is the approximate size of a piece of a copy.
	copyBytes = 64 << 10
)

// NewMember returns a member that follows no primary yet.
func NewMember(o MemberOptions) (*Member, error) {
	if o.Store == nil || (o.Durability == Sync) != (o.Mode == replica.Synced) {
		return nil, fmt.Errorf("partition: replicas with durability %v, mode %v, and a file that is %v", o.Durability, o.Mode, o.Store)
	}
	m := &Member{o: o, pieces: map[string]*copyPiece{}}
	now, wall := o.Raw()
	m.now = now
	m.standing.Join(o.Self, o.Ended, replica.NewFollower(replica.FollowerOptions{
		Memory: o.Memory, RingSize: o.Log.Size(), Log: o.Log, State: (*merged)(m), Eager: o.Mode != replica.Relaxed,
	}, now), now, wall)
	return m, nil
}

// Follower implements membership.Shard, as do Reign, Learn and Stop.
func (m *Member) Follower() *replica.Follower { return m.standing.Follower() }

// Reign returns the member's part as the primary, nil if it is not the primary.
func (m *Member) Reign() *replica.Reign { return m.standing.Reign() }

// Learn tells the member the content of the partition's record.
func (m *Member) Learn(rec replica.Record) { m.standing.Learn(rec) }

// Stop obeys the order to follow no primary of the record's term; false if the order is invalid, or this member is
// the primary.
func (m *Member) Stop(rec *replica.Record) bool {
	now, _ := m.o.Raw()
	return m.standing.Stop(rec, now)
}

// Step does all work that is due, as secondary or as primary. It reports whether there was any.
func (m *Member) Step() (worked bool) {
	m.look()
	if m.failed == nil && m.o.Store.Err() != nil {
		m.fail(m.o.Store.Err())
	}
	if m.failed != nil {
		return false
	}
	worked = m.confer()
	m.takePieces()
	if m.p != nil {
		worked = m.p.Step() || worked
	}
	if m.Reign() != nil {
		worked = m.Reign().Flush() || worked
	}
	return m.guide() || worked
}

// look reads the clock. If the machine was suspended since the last call, earlier grants no longer count.
func (m *Member) look() (mono int64, suspended bool) {
	now, wall := m.o.Raw()
	m.now = now
	return now, m.standing.Look(now, wall)
}

// confer advances everything that concerns other members. The clock was read before.
func (m *Member) confer() (worked bool) {
	if m.Reign() == nil {
		m.Follower().Bar(m.standing.Record().Term, m.now)
	} else {
		worked = m.Reign().Step(m.now)
		if m.Reign().Over() {
			m.depose()
			worked = true
		} else if m.Reign().Closed() && m.p.still() {
			m.Reign().Still()
		}
	}
	worked = m.Follower().Step(m.now) || worked
	if m.promoted() {
		m.begin()
		worked = true
	}
	return worked
}

// promoted reports whether the record makes this member the primary of a term in which it may reign, and its file has
// all of its entries.
func (m *Member) promoted() bool {
	return m.standing.Promoted() && m.o.Store.Applied() == m.o.Log.Last()
}

// begin makes this member the primary.
func (m *Member) begin() {
	rec, reign := m.standing.Record(), m.standing.Begin(replica.ReignOptions{Mode: m.o.Mode, Log: m.o.Log, Source: (*source)(m)})
	m.o.Store.ForgetFetches() // of an earlier reign: the file has changed since
	o := m.o.Options
	o.Term = rec.Term
	var err error
	if o.Inherited, err = m.o.Inherit(); err == nil {
		m.p, err = open(o, &seat{log: m.o.Log, reign: reign, life: rec.Life, least: m.o.MinInSync, places: m.o.Places, look: m.look})
	}
	if err != nil {
		m.fail(err)
		return
	}
	reign.Step(m.now)
}

// depose ends the reign. Entries that not all members have may or may not be in the next reign: if there are any,
// this member receives a copy. A primary that has handed over, and has no such entries, continues with its present
// state.
func (m *Member) depose() {
	if !m.Reign().Closed() || m.Reign().Committed() != m.o.Log.Last() {
		m.Follower().Spoil()
	}
	m.end()
}

// end ends the reign, and with it the connections of clients, which look for the primary.
func (m *Member) end() {
	if m.p != nil {
		m.past.add(&m.p.counts)
		m.p.Close()
		m.p = nil
	}
	m.standing.End()
	clear(m.pieces)
}

func (m *Member) fail(err error) {
	m.failed = err
	if m.Reign() != nil {
		m.end()
	}
	m.Follower().Close()
}

// Err returns why the member can no longer serve, nil while it can.
func (m *Member) Err() error {
	if m.failed == nil && m.p != nil {
		return m.p.failed
	}
	return m.failed
}

// Close frees all memory. It does not close the store.
func (m *Member) Close() error {
	if m.Reign() != nil {
		m.end()
	}
	m.Follower().Close()
	for _, c := range m.guides {
		c.Close()
	}
	return m.o.Log.Close()
}

// Attach adds a client's connection, between two steps. A reign serves the connections that were made in it
// (invariant 9). On other connections it only answers with the map.
func (m *Member) Attach(c Conn, g Greeting) {
	if m.p != nil && g.Term == m.p.term {
		m.p.Attach(c, g)
		return
	}
	m.guides = append(m.guides, &conn{Conn: c, denied: g.Auth, proof: g.Proof})
}

// maxGuides is the most connections that a member keeps of clients that look for the primary: they ask once.
const maxGuides = 64

// guide answers clients with the map.
func (m *Member) guide() (worked bool) {
	list := m.guides
	m.guides = m.guides[:0]
	for i, c := range list {
		msg, ok := c.Receive()
		op := protocol.Op(msg.Op)
		switch {
		case ok && c.denied && op == protocol.OpAuth && protocol.ProofEqual(msg.Body, c.proof[:]):
			c.denied = false
			worked = true
		case ok && !c.denied && op == protocol.OpMap:
			places := m.o.Places()
			if b, err := c.Begin(len(places)); err == nil {
				c.End(&wire.Header{Op: msg.Op, Request: msg.Request}, append(b, places...))
				c.Flush()
			}
			worked = true
		case ok || c.Err() != nil || len(list)-i > maxGuides:
			c.Close()
			continue
		}
		m.guides = append(m.guides, c)
	}
	return worked
}

// Stats returns the counters; while this member reigns, those of its partition.
func (m *Member) Stats() Stats {
	s := Stats{DurableBehind: m.o.Log.Last() - min(m.o.Log.Last(), m.o.Store.Durable())}
	if m.p != nil {
		s = m.p.Stats()
	}
	s.add(&m.past)
	s.Entry, s.Term, s.Set = m.o.Log.Last(), m.standing.Record().Term, m.standing.Record().Set
	switch {
	case m.Reign() != nil && m.Reign().Serving():
		s.Role, s.Members = "primary", m.Reign().Members()
	case m.Reign() != nil:
		s.Role = "primary, not serving yet"
	case !m.Follower().Whole():
		s.Role = "copying"
	default:
		s.Role = "secondary"
	}
	return s
}

// Hear handles a note of another partition.
func (m *Member) Hear(n Note) {
	if m.p != nil {
		m.p.Look()
		m.p.Hear(n)
	}
}

// Connections returns the number of clients' connections.
func (m *Member) Connections() int {
	if m.p == nil {
		return len(m.guides)
	}
	return m.p.Connections() + len(m.guides)
}

// IdleFor returns how long a member that finds nothing to do may sleep, if nothing wakes it.
func (m *Member) IdleFor() time.Duration {
	if m.p == nil {
		return memberLook
	}
	return min(memberLook, m.p.IdleFor())
}

// Term returns the number of the reign, 0 if this member does not reign.
func (m *Member) Term() uint64 {
	if m.Reign() == nil {
		return 0
	}
	return m.Reign().Term()
}

// merged is the member as the state of a secondary, and source as that of a primary.
type (
	merged Member
	source Member
)

var (
	_ replica.State  = (*merged)(nil)
	_ replica.Source = (*source)(nil)
)

// Yield implements replica.State: a later primary has connected before this
// member learned of its record.
func (x *merged) Yield() {
	if m := (*Member)(x); m.Reign() != nil {
		m.depose()
	}
}

// Merge implements replica.State.
func (x *merged) Merge(seq, term uint64, body []byte) bool {
	m := (*Member)(x)
	if m.failed != nil {
		return false
	}
	if m.o.Store.Backlog() > maxBacklog {
		return m.noRoom()
	}
	changes, err := store.ParseChanges(bytes.Clone(body))
	if err != nil {
		m.fail(err)
		return false
	}
	m.stuck = 0
	m.o.Store.Append(store.Entry{Seq: seq, Term: term, Empty: len(changes) == 0, Changes: changes})
	if m.copying {
		for i := range changes {
			m.changed[string(changes[i].Key)] = struct{}{}
		}
	}
	return true
}

func (m *Member) noRoom() bool {
	if m.stuck == 0 {
		m.stuck = m.now
	}
	return false
}

// Forget implements replica.State. All records come in pieces, so the header is empty.
func (x *merged) Forget(seq uint64, terms []replica.Term, _ []byte) error {
	m := (*Member)(x)
	st, err := m.o.Fresh()
	if err != nil {
		return err
	}
	var list []store.Term
	for _, t := range terms {
		list = append(list, store.Term{Term: t.Term, First: t.First})
	}
	st.Begin(seq, list)
	m.o.Store = st
	m.stuck, m.copying, m.changed = 0, true, map[string]struct{}{}
	return nil
}

// Piece implements replica.State. It skips records that an entry has changed since the
// copy began.
func (x *merged) Piece(body []byte) bool {
	m := (*Member)(x)
	if m.o.Store.Backlog() > maxBacklog {
		return m.noRoom()
	}
	list, err := store.ParseChanges(bytes.Clone(body))
	if err != nil {
		m.fail(err)
		return false
	}
	m.stuck = 0
	n := 0
	for _, c := range list {
		if _, newer := m.changed[string(c.Key)]; !newer {
			list[n] = c
			n++
		}
	}
	if n > 0 {
		m.o.Store.Append(store.Entry{Seq: m.o.Log.Last(), Changes: list[:n]})
	}
	return true
}

// Whole implements replica.State.
func (x *merged) Whole(mark uint64) bool {
	m := (*Member)(x)
	if m.o.Store.Durable() < mark {
		return false
	}
	if err := m.o.Keep(); err != nil {
		m.fail(err)
		return false
	}
	m.copying, m.changed = false, nil
	return true
}

// Synced implements replica.State and replica.Source.
func (x *merged) Synced() uint64 { return x.o.Store.Durable() }

// Room implements replica.State.
func (x *merged) Room() (bytes uint64, ok bool) {
	if x.failed != nil || x.stuck != 0 && x.now-x.stuck > stuckAfter {
		return 0, false
	}
	return x.o.Store.RoomLeft(), !x.o.Store.Full()
}

// Header implements replica.Source.
func (x *source) Header() []byte { return nil }

// Piece implements replica.Source: it returns records of the file, once the file has entry behind.
func (x *source) Piece(name string, behind, from uint64) (body []byte, next uint64, last, ok bool) {
	m := (*Member)(x)
	c := m.pieces[name]
	switch {
	case c == nil && m.o.Store.Applied() >= behind:
		m.ids++
		m.pieces[name] = &copyPiece{id: m.ids}
		m.o.Store.Load(m.ids, from, 1<<64-1, copyBytes)
		return nil, 0, false, false
	case c == nil || c.came == nil:
		return nil, 0, false, false
	}
	for n := len(c.came.Records); c.sent < n && (len(body) < copyBytes || n == c.sent); c.sent++ {
		r := &c.came.Records[c.sent]
		one := [1]store.Change{{Key: r.Key, Value: r.Value}}
		if len(body) > 0 && len(body)+store.ChangesSize(one[:]) > maxPiece {
			break
		}
		body = store.AppendChanges(body, one[:])
	}
	if c.sent < len(c.came.Records) {
		return body, from, false, true
	}
	delete(m.pieces, name)
	return body, c.came.Last + 1, c.came.Last == 1<<64-1, true
}

// maxPiece is the most bytes of a piece with several records. A single record is little longer.
const maxPiece = 1 << 20

// takePieces handles the pieces of the file for copies.
func (m *Member) takePieces() {
	if !m.o.Store.Brought() {
		return
	}
	for _, p := range m.o.Store.Pieces() {
		for _, c := range m.pieces {
			if c.id == p.ID {
				c.came = &p
			}
		}
	}
}

// ForgetPieces implements replica.Source.
func (x *source) ForgetPieces(name string) { delete(x.pieces, name) }

// Mark implements replica.Source.
func (x *source) Mark() uint64 { return x.p.entry() }

// Synced implements replica.Source, and so does Applied.
func (x *source) Synced() uint64 { return x.o.Store.Durable() }

// Applied returns the newest entry in the file.
func (x *source) Applied() uint64 { return x.o.Store.Applied() }
