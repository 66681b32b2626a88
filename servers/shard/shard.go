package shard

import (
	"bytes"
	"fmt"
	"math"
	"time"

	"flashdbm/servers/arena"
	"flashdbm/servers/circle"
	"flashdbm/servers/fabric"
	"flashdbm/servers/guard"
	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/store"
	"flashdbm/servers/table"
	"flashdbm/servers/wire"
)

// Durability says when a write is answered.
type Durability uint8

const (
	Memory Durability = iota // decided; there is no file
	Async                    // decided; the file is at most a second behind
	Sync                     // synced
)

func (d Durability) String() string {
	switch d {
	case Memory:
		return "memory"
	case Async:
		return "async"
	case Sync:
		return "sync"
	}
	return fmt.Sprintf("durability %d", uint8(d))
}

// Limits.
const (
	pollsPerConn = 16 // messages of one connection in one sweep: other connections wait no longer than for these
	// tenure is the tenure that a shard without secondaries passes on. The lock on its directory excludes other
	// lives.
	tenure = time.Second
	// quietTime is how long a new life serves nothing after its start: the memory of the last life may be readable
	// after its end, and clients rely on it until the tenure passed on has ended. It is tenure, plus the largest
	// difference in rate of two clocks, with a margin.
	quietTime = 1200 * time.Millisecond
	// maxBacklog is the most bytes on their way to the file. Above it, requests stay in their rings until the file
	// has caught up. So memory is bounded, and async mode stays at most a second behind if the device writes 64
	// MiB/s.
	maxBacklog = 64 << 20
	reapAtOnce = 64
	// maxWaiting is the most requests that wait for the file. Above it, further requests stay in their rings, so
	// memory is bounded: each waiting request has a copy of its body.
	maxWaiting  = 10_000
	stalledLook = time.Millisecond
	// idleLook: how often an idle shard checks what has become due. A check takes some 0.3 ms of processor time
	idleLook = 100 * time.Millisecond
)

// Options configure a shard.
type Options struct {
	Shard uint32
	// Term: of this life, from 1, in memory mode; else the file counts terms. After the first term, nothing is served
	// for 1.2 s
	Term       uint64
	Seed       uint64 // of the hash of keys
	Durability Durability
	Arena      arena.Options
	Alloc      func(n int, a fabric.Access) (fabric.Region, error)
	Store      *store.Store // nil in memory mode
	// Clock returns the monotonic clock in nanoseconds and the date in milliseconds since 1970.
	Clock func() (mono int64, wall uint64)
	Owns  func(hash uint64) bool // nil: all hashes are this shard's
	Map   func() (version uint32, body []byte)
	Evict bool // memory mode: a full shard removes items that were not used recently, instead of refusing writes

	Membership
}

// A Shard is used by one thread.
type Shard struct {
	o     Options
	term  uint64
	base  uint64 // version = seq + base
	start uint64 // newest entry of earlier lives
	now   int64  // the clock, as read by this sweep
	wall  uint64
	quiet int64 // nothing is polled before this time

	arena *arena.Arena
	table *table.Table

	conns   []*conn
	first   int // index of the connection that is polled first
	inbox   []message
	bodies  []byte      // of the inbox
	header  wire.Header // of the answer being sent
	batches []*batch    // free batches
	hashes  []uint64    // of the parts being served
	asked   protocol.Request
	polled  bool   // the next phase of the sweep is to serve
	served  uint64 // number of requests
	touched uint64 // results of loads into the cache: keeps the compiler from removing them
	clients map[uint64]*client
	swept   int64 // when clients were last checked

	log
	cache
	member
	moving
	expiring int    // items in the table that have an expiry
	hand     uint64 // the chain at which the search for expired items continues
	failed   error  // the store's error

	lazy    bool        // only requests find expired items; set by the simulator
	between func(entry) // called at moments at which one-sided Reads may observe a half-shown entry; set by the simulator, else nil
}

// New returns a shard. The caller keeps the memory for the arena and the store open until Close.
func New(o Options) (*Shard, error) {
	if (o.Store == nil) != (o.Durability == Memory) {
		return nil, fmt.Errorf("shard: durability %d and a file that is %v", o.Durability, o.Store)
	}
	if o.Map == nil {
		o.Map = func() (uint32, []byte) { return 0, nil }
	}
	a, err := arena.New(o.Alloc, o.Arena)
	if err != nil {
		return nil, err
	}
	s := &Shard{o: o, term: o.Term, arena: a, clients: map[uint64]*client{}, batches: make([]*batch, 0, 64)}
	s.table = table.New((*items)(s))
	s.newest = map[uint64]uint64{}
	s.cache.init()
	s.now, s.wall = o.Clock()
	// Memory mode: above the versions of earlier lives if the date is right, and different from theirs if the date
	// has gone back to the same millisecond.
	s.base = s.wall<<20 + s.term*0x9E3779B97F4A7C15>>44
	s.complete = true
	if o.Store != nil {
		st := o.Store.State()
		s.term, s.base = st.Term, st.Base
		s.start, s.seq, s.shown = st.Seq, st.Seq, st.Seq
		if st.Seq > 0 {
			s.complete, s.toLoad = false, true
		}
	}
	if s.o.Log != nil {
		s.join()
	} else if s.term > 1 {
		s.quiet = s.now + int64(quietTime)
	}
	return s, nil
}

// AloneSince tells the shard since when no earlier life of it has served, because this life held the lock of the
// file: mono is a time of the clock, before New. quietTime is counted from that time. AloneSince is called before
// the first sweep.
func (s *Shard) AloneSince(mono int64) {
	if s.quiet > 0 {
		s.quiet = mono + int64(quietTime)
	}
}

// Term returns the number of the shard's reign.
func (s *Shard) Term() uint64 { return s.term }

// items gives the table access to the items at places.
type items Shard

func (s *items) Hash(p uint64) uint64 {
	return circle.Hash(s.o.Seed, guard.Parse(s.arena.Bytes(arena.Place(p))).Key)
}

func (s *items) Equal(p uint64, key []byte) bool {
	return bytes.Equal(guard.Parse(s.arena.Bytes(arena.Place(p))).Key, key)
}

func (s *Shard) item(p arena.Place) guard.Item { return guard.Parse(s.arena.Bytes(p)) }

// itemAt returns the item at a place of the table, and bytesAt its memory.
func (s *Shard) itemAt(p uint64) guard.Item { return s.item(arena.Place(p)) }
func (s *Shard) bytesAt(p uint64) []byte    { return s.arena.Bytes(arena.Place(p)) }

// Step runs one phase of a sweep: it polls, or it serves the polled requests. worked is false if a whole sweep found
// nothing to do; then the shard has to be called again when a message comes or the store wakes it, and within
// IdleFor.
func (s *Shard) Step(time.Time) (worked bool, next time.Time) {
	if !s.polled {
		s.polled = true
		if s.now >= s.quiet && len(s.stalls) == 0 {
			s.poll()
		}
		return true, time.Time{}
	}
	s.polled = false
	s.now, s.wall = s.o.Clock() // after the poll: a lease counts from no earlier moment than its request
	return s.serve(), time.Time{}
}

// Sweep runs both phases, and reports whether there was anything to do.
func (s *Shard) Sweep() bool {
	s.Step(time.Time{})
	worked, _ := s.Step(time.Time{})
	return worked
}

// IdleFor returns how long a shard that finds nothing to do may sleep, if nothing wakes it.
func (s *Shard) IdleFor() time.Duration {
	if len(s.stalls) > 0 || s.holding() {
		return stalledLook
	}
	if s.o.Log != nil {
		return memberLook
	}
	if s.now < s.quiet {
		return time.Duration(s.quiet - s.now)
	}
	if s.arena.Dead() > 0 || s.expiring > 0 || len(s.tombs) > 0 {
		return idleLook
	}
	return time.Second
}

func (s *Shard) serve() (worked bool) {
	if s.o.Log != nil {
		worked = s.confer()
	}
	worked = s.commit() || worked
	worked = s.arrivals() || worked
	worked = s.retry() || worked
	s.warm()
	for i := range s.inbox {
		m := &s.inbox[i]
		if worked = true; m.parts != nil {
			s.parts(m.c, m.parts)
			continue
		}
		s.request(reply{c: m.c, id: m.id, op: m.op}, m.op, m.flags, m.body, nil)
	}
	clear(s.inbox)
	s.inbox, s.bodies = s.inbox[:0], s.bodies[:0]
	if s.Reign() != nil {
		worked = s.Reign().Flush() || worked
	}
	worked = s.flush() || worked
	worked = s.arena.Reap(s.now, reapAtOnce) > 0 || worked
	worked = s.expire() || worked
	s.forgetRemoves()
	s.forgetClients()
	if s.o.Store != nil && s.failed == nil {
		if err := s.o.Store.Err(); err != nil {
			s.stepDown(err)
		}
	}
	return worked
}

// warm loads what the requests of the inbox will read into the processor's cache: first the buckets of all keys, then
// the items. The processor then waits for many loads at the same time. A request that is served alone waits for its
// bucket and then for its item, and if there are more keys than the cache holds, these waits are most of its time.
func (s *Shard) warm() {
	if len(s.inbox) < 2 {
		return
	}
	for i := range s.inbox {
		m := &s.inbox[i]
		if m.parts != nil {
			continue
		}
		if m.key = protocol.KeyOf(m.op, m.body) != nil; m.key {
			m.hash = s.hash(protocol.KeyOf(m.op, m.body))
			s.touched += s.table.Touch(m.hash)
		}
	}
	for i := range s.inbox {
		if m := &s.inbox[i]; m.key {
			if p, ok := s.table.Likely(m.hash); ok {
				s.touched += uint64(s.arena.Touch(arena.Place(p)))
			}
		}
	}
}

// stepDown answers all waiting requests, and serves nothing from then on. Entries that are not committed may or may
// not be in the file.
func (s *Shard) stepDown(err error) {
	s.failed = err
	s.leave()
	s.refuseAll()
}

// refuseAll answers all waiting requests.
func (s *Shard) refuseAll() {
	for i := range s.pending {
		for _, w := range s.pending[i].waiters {
			if w.written {
				s.answerWritten(w.r, protocol.StatusUnknownOutcome, protocol.Written{})
			} else {
				s.fail(w.r, protocol.StatusUnavailable)
			}
		}
		s.pending[i].waiters = nil
	}
	for _, f := range s.fetches {
		for _, p := range f.parked {
			s.fail(p.r, protocol.StatusUnavailable)
		}
		f.parked = nil
	}
	s.waiting = 0
	clear(s.pieces)
	for _, q := range s.scans {
		s.fail(q.r, protocol.StatusUnavailable)
	}
	s.dropScans(func(*scan) bool { return true })
	for _, w := range s.stalls {
		s.fail(w.r, protocol.StatusUnavailable)
	}
	s.stalls = nil
}

// Err returns why the shard no longer serves, nil while it serves.
func (s *Shard) Err() error { return s.failed }

// Close frees the arena's memory. It does not close the store.
func (s *Shard) Close() error {
	for _, c := range s.conns {
		c.Close()
	}
	s.leave()
	return s.arena.Close()
}

// seqOf returns the entry that gave the version, 0 if it was one of an earlier life.
func (s *Shard) seqOf(version uint64) uint64 {
	if version <= s.base+s.start {
		return 0
	}
	return version - s.base
}

func (s *Shard) isExpired(it *guard.Item) bool { return it.Expiry != 0 && it.Expiry <= s.wall }

// expire removes expired items of one chain of the table. An idle shard calls expire continually, a busy one once
// per sweep.
func (s *Shard) expire() (worked bool) {
	if s.expiring == 0 || s.failed != nil || s.lazy || s.passive() || s.closed() {
		return false
	}
	s.hand = (s.hand + 1) % s.table.Buckets()
	s.places = s.table.Chain(s.hand, s.places[:0])
	for _, p := range s.places {
		it := s.item(arena.Place(p))
		if !s.isExpired(&it) {
			continue
		}
		h := circle.Hash(s.o.Seed, it.Key)
		if s.pendingFor(h, it.Key) == nil && s.serves(h) == protocol.StatusOK {
			s.appendEnd(h, &it)
			worked = true
		}
	}
	s.commit()
	return worked
}

// micros returns a duration in whole microseconds, rounded down, for a message.
func micros(d int64) uint32 { return uint32(min(d/1000, math.MaxUint32)) }
