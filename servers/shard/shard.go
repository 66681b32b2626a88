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
	Async                    // decided; the file is a second behind at most
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
	pollsPerConn = 16 // messages of one connection in one sweep: the others wait no longer than for those
	// tenure is what a shard without secondaries passes on. The lock on its directory keeps other lives of it away.
	tenure = time.Second
	// quietTime is how long a new life serves nothing, from its start: memory of the last one may be readable after its end, and its clients
	// rely on it until the tenure that it had passed on ends. It is more than tenure by what clocks may differ in rate, and to spare.
	quietTime = 1200 * time.Millisecond
	// maxBacklog is how many bytes may be on their way to the file. When there are more, requests stay in their rings until the file
	// has caught up: memory is bounded, and async mode stays a second behind at most where the device writes 64 MiB/s.
	maxBacklog = 64 << 20
	reapAtOnce = 64
	// maxWaiting is how many requests may wait for the file. When there are more, the others stay in their rings: memory is bounded. Each
	// takes a copy of its body.
	maxWaiting  = 10_000
	stalledLook = time.Millisecond
	idleLook    = 100 * time.Millisecond // how often an idle shard looks for what has become due. A look takes some 0.3 ms of a processor
)

// Options configure a shard.
type Options struct {
	Shard      uint32
	Term       uint64 // of this life, from 1, in memory mode; else the file's counts. Behind the first one, nothing is served for 1.2 s
	Seed       uint64 // of the hash of keys
	Durability Durability
	Arena      arena.Options
	Alloc      func(n int, a fabric.Access) (fabric.Region, error)
	Store      *store.Store // nil in memory mode
	// Clock returns the monotonic clock in nanoseconds and the date in milliseconds since 1970.
	Clock func() (mono int64, wall uint64)
	Owns  func(hash uint64) bool // nil: all keys are this shard's
	Map   func() (version uint32, body []byte)
	Evict bool // memory mode: a full shard removes what was not used for long, instead of refusing writes

	Membership
}

// A Shard is used by one thread.
type Shard struct {
	o     Options
	term  uint64
	base  uint64 // version = seq + base
	start uint64 // the newest entry of earlier lives
	now   int64  // the clock as the sweep has read it
	wall  uint64
	quiet int64 // nothing is polled before this time

	arena *arena.Arena
	table *table.Table

	conns   []*conn
	first   int // the connection that is polled first
	inbox   []message
	bodies  []byte      // of the inbox
	header  wire.Header // of the answer that is being sent
	batches []*batch    // free ones
	hashes  []uint64    // of the parts that are being served
	asked   protocol.Request
	polled  bool   // the next phase of the sweep is to serve
	served  uint64 // requests
	touched uint64 // what the loads of warm have found: it keeps the compiler from leaving them out
	clients map[uint64]*client
	swept   int64 // when clients were last looked at

	log
	cache
	member
	moving
	expiring int    // items in the table that have an expiry
	hand     uint64 // chain that the search for expired items comes to next
	failed   error  // the store's

	lazy    bool        // only requests find what has expired: the simulator's
	between func(entry) // called where one-sided Reads may see the middle of what shows an entry: the simulator looks, too; nil elsewhere
}

// New returns a shard. The caller keeps the arena's memory and the store until Close.
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
	// Memory mode: above the versions of earlier lives, if the date is right, and others than theirs, if it has gone back to the same millisecond.
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

// AloneSince tells a moment of the clock, before New, from which on no earlier life of the shard has served: this one had the lock of its file. The time
// in which nothing is served begins then. It is called before the first sweep.
func (s *Shard) AloneSince(mono int64) {
	if s.quiet > 0 {
		s.quiet = mono + int64(quietTime)
	}
}

// Term returns the number of the shard's reign.
func (s *Shard) Term() uint64 { return s.term }

// items tells the table what is at a place.
type items Shard

func (s *items) Hash(p uint64) uint64 {
	return circle.Hash(s.o.Seed, guard.Parse(s.arena.Bytes(arena.Place(p))).Key)
}

func (s *items) Equal(p uint64, key []byte) bool {
	return bytes.Equal(guard.Parse(s.arena.Bytes(arena.Place(p))).Key, key)
}

func (s *Shard) item(p arena.Place) guard.Item { return guard.Parse(s.arena.Bytes(p)) }

// itemAt returns the item that the table leads to, and bytesAt its memory.
func (s *Shard) itemAt(p uint64) guard.Item { return s.item(arena.Place(p)) }
func (s *Shard) bytesAt(p uint64) []byte    { return s.arena.Bytes(arena.Place(p)) }

// Step does one phase of a sweep: it polls, or it serves what has been polled. worked is false when a whole sweep found nothing to do;
// then the shard wants to be called again at next at the latest, or when a message comes or the store wakes it.
func (s *Shard) Step(time.Time) (worked bool, next time.Time) {
	if !s.polled {
		s.polled = true
		if s.now >= s.quiet && len(s.stalls) == 0 {
			s.poll()
		}
		return true, time.Time{}
	}
	s.polled = false
	s.now, s.wall = s.o.Clock() // behind the poll: a lease counts from no earlier moment than that of its request
	return s.serve(), time.Time{}
}

// Sweep is both phases: it reports whether there was anything to do.
func (s *Shard) Sweep() bool {
	s.Step(time.Time{})
	worked, _ := s.Step(time.Time{})
	return worked
}

// IdleFor returns how long a shard that finds nothing to do may sleep, if nobody wakes it.
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

// warm loads what the requests of the inbox will look at into the processor's cache: first the buckets of all keys, then the items. The
// processor waits for many of them at the same time, while a request that is served by itself waits for its bucket and then for its
// item: that is most of what a request takes when there are more keys than the cache holds.
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

// stepDown answers everything that waits, and serves nothing from then on. What is not committed may be in the file or not.
func (s *Shard) stepDown(err error) {
	s.failed = err
	s.leave()
	s.refuseAll()
}

// refuseAll answers everything that waits.
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

// Err returns why the shard serves nothing any more, nil while it serves.
func (s *Shard) Err() error { return s.failed }

// Close gives the arena's memory back. The store is the caller's.
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

// expire removes what has expired in one chain of the table. It goes round while nothing else happens, and once per sweep otherwise.
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

// micros is a duration for a message: whole microseconds, fewer rather than more.
func micros(d int64) uint32 { return uint32(min(d/1000, math.MaxUint32)) }
