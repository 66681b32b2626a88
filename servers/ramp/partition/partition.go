package partition

import (
	"bytes"
	"fmt"
	"time"

	"flashdbm/servers/arena"
	"flashdbm/servers/circle"
	"flashdbm/servers/fabric"
	"flashdbm/servers/guard"
	"flashdbm/servers/ramp/protocol"
	"flashdbm/servers/replica"
	"flashdbm/servers/store"
	"flashdbm/servers/table"
)

// Timestamp is protocol.Timestamp.
type Timestamp = protocol.Timestamp

// Durability says which events acknowledged transactions survive.
type Durability uint8

const (
	Memory Durability = iota // none; there is no file
	Async                    // the end of the process, except for the last second; no transaction in part
	Sync                     // a power cut
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

// Times and limits.
const (
	// MaxSlot is the most bytes of a slot that clients may Read. Longer items are read by message. Larger: a client
	// needs more memory for each Read. Smaller: more values are read by message.
	MaxSlot = 16 << 10
	// tenure is how long clients may rely on Reads of this life's memory. A new life waits quietTime: tenure, plus
	// the largest difference in rate of two clocks, with a margin.
	tenure    = time.Second
	quietTime = 1200 * time.Millisecond
	// clockWindow is how far a timestamp may be from the partition's time. Larger: a client with a fast clock makes
	// all others count their timestamps from its time for longer. Smaller: clients without a good clock need two
	// tries.
	clockWindow = 10_000 // milliseconds
	// versionTime is how long an overtaken version is kept. Larger: overwriting takes more memory. Smaller: readers
	// that were stopped for that long have to start again.
	versionTime = int64(4 * time.Second)
	// refusalTime is how long each refused timestamp is remembered: longer than a PREPARE may be under way.
	refusalTime = int64(20 * time.Second)
	// askAfter is how long a transaction is left to its client, and the interval at which other partitions are asked
	// about it.
	askAfter = int64(time.Second)
	// dueTogether is the least time that a partition without other work sleeps before it does work that is due by
	// time. Smaller: a busy table wakes its threads for such work a thousand times a second.
	dueTogether = int64(10 * time.Millisecond)
	// dueBeside replaces dueTogether while callers within the process do such work with each call. Smaller: the thread
	// wakes for the little work that they leave, and each time the scheduler takes the processor from it, which keeps
	// a thread of the runtime busy. Larger: calls with very many keys leave more memory to be freed.
	dueBeside = int64(100 * time.Millisecond)
	// fullTime is how long a fetched version waits for room before requests for several keys are failed: longer than
	// evictions wait for the file.
	fullTime     = int64(100 * time.Millisecond)
	pollsPerConn = 16
	maxBacklog   = 64 << 20 // bytes on their way to the file; above it nothing is received
	maxWaiting   = 10_000   // requests that wait for the file or for a transaction; above it nothing is received
	workPerStep  = 64       // most pieces of work due by time, of each kind, in one step
	// workPerCall is the same for a call from within the process. Smaller than the number of keys in a call: the work is
	// left to the thread. Larger: a single call may take longer.
	workPerCall = 16
)

// Options configure a partition.
type Options struct {
	Partition  uint32
	Term       uint64 // of this life, in memory mode; else the file counts terms. After the first term, nothing is served for 1.2 s
	Seed       uint64 // of the hash of keys
	Durability Durability
	Arena      arena.Options
	Alloc      func(n int, a fabric.Access) (fabric.Region, error)
	Store      *store.Store // nil in memory mode
	Inherited  store.Inherited
	// Clock returns the monotonic clock in nanoseconds and the date in milliseconds since 1970. From then on, the
	// date is not below least for any partition of the node: an earlier life wrote at that date, so the clock must
	// have been set back since. With different dates a transaction of two partitions would be too old for one, or too
	// new for the other.
	Clock func(least uint64) (mono int64, wall uint64)
	Owner func(hash uint64) uint32 // the partition of a hash
	// Tell sends a note to another partition, which calls Hear with it. The note may be lost, late, or arrive twice.
	// Tell does not call this partition.
	Tell func(to uint32, n Note)
	// Shown, unless nil, is called when a version is in its slot. It is for checks.
	Shown func(key []byte, ts Timestamp)
}

// A Partition is used by one goroutine at a time.
type Partition struct {
	o    Options
	term uint64
	now  int64
	wall uint64
	// time is the partition's date in milliseconds, as of timeAt by the monotonic clock: the greatest date that the
	// clock has returned, plus the time passed since. Timestamps of clients do not move it, or clients could move it
	// arbitrarily.
	time   uint64
	timeAt int64
	quiet  int64 // nothing is received before this time
	floor  Timestamp
	// horizon is the greatest timestamp of a version that was dropped as overtaken.
	horizon Timestamp

	arena  *arena.Arena
	table  *table.Table // hash of a key to its slot
	active active
	txns   map[Timestamp]*txn
	conns  []*conn
	first  int
	owes   bool // an answer was given since the last flush

	seq      uint64
	waits    []wait // for entries to become durable, in order
	waitHead int
	waiting  int  // number of parked requests
	complete bool // keys that are not in the table do not exist
	hand     uint64
	places   []uint64
	scratch  []byte
	hashes   []uint64      // of the keys of a PREPARE
	touched  uint64        // results of loads into the cache: keeps the compiler from removing them
	written  []*versions   // of these keys; nil: not active
	rooms    []arena.Place // the places of their new versions
	out      []byte        // the answer to a GET
	get      protocol.Get
	prepare  protocol.Prepare
	lock     protocol.Lock
	locks    lockTable
	brought  []store.Fetched // fetched from the file, waiting for room in memory
	// fullSince is since when the first of brought finds no room; 0: there was room.
	fullSince int64

	overtaken queue[overtakenVersion]
	removed   queue[removedKey]
	refused   queue[Timestamp]
	asks      queue[Timestamp]
	failed    error
	counts    Stats

	seat  *seat // nil: no replicas
	hides bool
}

// A wait is a function to call once answers may depend on an entry.
type wait struct {
	seq uint64
	do  func()
}

// New returns a partition. The caller keeps the memory for the arena and the store open until Close.
func New(o Options) (*Partition, error) { return open(o, nil) }

func open(o Options, s *seat) (*Partition, error) {
	if (o.Store == nil) != (o.Durability == Memory) {
		return nil, fmt.Errorf("partition: durability %v and a file that is %v", o.Durability, o.Store)
	}
	a, err := arena.New(o.Alloc, o.Arena)
	if err != nil {
		return nil, err
	}
	p := &Partition{o: o, term: o.Term, arena: a, txns: map[Timestamp]*txn{}, complete: true, seat: s}
	p.active.lists = map[uint64]*versions{}
	p.table = table.New((*items)(p))
	p.locks.init()
	p.now, p.wall = o.Clock(0)
	p.time, p.timeAt = p.wall, p.now
	switch {
	case s != nil:
		p.seq = s.log.Last()
		p.complete = p.seq == 0
	case o.Store != nil:
		st := o.Store.State()
		p.term, p.seq = st.Term, st.Seq
		p.complete = st.Seq == 0
	}
	if p.term > 1 && s == nil { // a reign begins only when no client relies on the last one
		p.quiet = p.now + int64(quietTime)
	}
	if err := p.inherit(&o.Inherited); err != nil {
		return nil, err
	}
	return p, nil
}

// HidePending makes a slot invalid while a version of its key is prepared, as in the paper, for comparison: correct
// reads do not need this.
func (p *Partition) HidePending() { p.hides = true }

// items gives the table access to the items in slots.
type items Partition

func (p *items) Hash(place uint64) uint64 {
	return circle.Hash(p.o.Seed, guard.Parse(p.arena.Bytes(arena.Place(place))).Key)
}

func (p *items) Equal(place uint64, key []byte) bool {
	return bytes.Equal(guard.Parse(p.arena.Bytes(arena.Place(place))).Key, key)
}

func (p *Partition) item(at arena.Place) guard.Item { return guard.Parse(p.arena.Bytes(at)) }
func (p *Partition) hash(key []byte) uint64         { return circle.Hash(p.o.Seed, key) }

// Term returns the number of the partition's life.
func (p *Partition) Term() uint64 { return p.term }

// Err returns why the partition no longer serves, nil while it serves.
func (p *Partition) Err() error { return p.failed }

// Close frees the arena's memory. It does not close the store.
func (p *Partition) Close() error {
	for _, c := range p.conns {
		c.Close()
	}
	return p.arena.Close()
}

// Step receives, serves and answers. It reports whether there was anything to do.
func (p *Partition) Step() (worked bool) {
	p.Look()
	worked = p.release()
	worked = p.arrivals() || worked
	if p.now >= p.quiet && !p.Busy() {
		worked = p.receive() || worked
	}
	if p.seat == nil || !p.seat.reign.Closed() {
		worked = p.passing(workPerStep) || worked
	}
	worked = p.flush() || worked
	return worked
}

// Look reads the clock, and the state of the store. A caller within the process calls it before Get, Prepare or
// Commit.
func (p *Partition) Look() {
	p.now, p.wall = p.o.Clock(0)
	passed := max(p.now-p.timeAt, 0) / 1e6
	p.time, p.timeAt = p.time+uint64(passed), p.timeAt+passed*1e6
	if p.wall > p.time {
		p.time, p.timeAt = p.wall, p.now
	}
	if p.o.Store != nil && p.failed == nil {
		if err := p.o.Store.Err(); err != nil {
			p.failed = err
		}
	}
}

// inFile takes account of the date of a timestamp in the file. Later timestamps must be possible.
func (p *Partition) inFile(ts Timestamp) {
	if date := ts.Milli(); date > p.time+clockWindow {
		p.time = date - clockWindow
		p.o.Clock(p.time)
	}
}

// Busy reports whether requests have to wait until the file has caught up.
func (p *Partition) Busy() bool {
	return p.failed == nil && (p.seat != nil && p.seat.busy() || p.o.Store != nil && (p.o.Store.Backlog() > maxBacklog || p.waiting > maxWaiting))
}

// Quiet reports whether this life serves nothing yet.
func (p *Partition) Quiet() bool { return p.now < p.quiet }

// IdleFor returns how long a partition that finds nothing to do may sleep, if nothing wakes it.
func (p *Partition) IdleFor() time.Duration { return p.idleFor(dueTogether) }

// IdleBeside is IdleFor for a partition that callers within the process keep busy: they tidy up.
func (p *Partition) IdleBeside() time.Duration { return p.idleFor(dueBeside) }

func (p *Partition) idleFor(together int64) time.Duration {
	d := int64(time.Second)
	if p.now < p.quiet {
		d = p.quiet - p.now
	}
	if p.holding() || p.Busy() {
		d = min(d, int64(time.Millisecond))
	}
	for _, at := range []int64{p.overtaken.due(), p.removed.due(), p.refused.due(), p.asks.due()} {
		if at > 0 {
			d = min(d, max(at-p.now, together))
		}
	}
	return time.Duration(d)
}

// entry appends changes to the log and returns the entry's number.
func (p *Partition) entry(changes ...store.Change) uint64 {
	p.seq++
	term := uint64(0)
	if p.seat != nil {
		term = p.term
		p.seat.append(p.seq, term, changes)
	}
	if p.o.Store != nil {
		p.o.Store.Append(store.Entry{Seq: p.seq, Term: term, Empty: len(changes) == 0, Changes: changes})
	}
	return p.seq
}

// durable returns the newest entry that survives the end of the process.
func (p *Partition) durable() uint64 {
	if p.seat != nil {
		return min(p.seq, p.seat.durable())
	}
	if p.o.Store == nil {
		return p.seq
	}
	return min(p.seq, p.o.Store.Durable())
}

// tellable returns the newest entry on which answers may depend.
func (p *Partition) tellable() uint64 {
	switch {
	case p.seat != nil:
		return min(p.seq, p.seat.committed())
	case p.o.Durability == Sync:
		return p.durable()
	}
	return p.seq
}

// after calls do once answers may depend on the entry: at once, or from a later Step.
func (p *Partition) after(seq uint64, do func()) {
	if seq <= p.tellable() {
		do()
		return
	}
	p.waits = append(p.waits, wait{seq, do})
}

// release calls the functions that waited for entries on which answers may depend now.
func (p *Partition) release() (worked bool) {
	for p.waitHead < len(p.waits) && p.waits[p.waitHead].seq <= p.tellable() && p.failed == nil {
		do := p.waits[p.waitHead].do
		p.waits[p.waitHead] = wait{}
		p.waitHead++
		do()
		worked = true
	}
	if p.waitHead > 0 && p.waitHead == len(p.waits) {
		p.waits, p.waitHead = p.waits[:0], 0
	} else if p.waitHead > 1024 && p.waitHead*2 > len(p.waits) {
		p.waits = append(p.waits[:0:0], p.waits[p.waitHead:]...)
		p.waitHead = 0
	}
	return worked
}

// Stats are the state and the counters of a partition.
type Stats struct {
	Keys          int    `json:"keys"` // in memory
	Bytes         int64  `json:"bytes"`
	Transactions  int    `json:"transactions"` // prepared, or remembered because a client or a partition may still ask
	Messages      uint64 `json:"messages"`
	Prepares      uint64 `json:"prepares"`
	Refusals      uint64 `json:"refusals"`
	Commits       uint64 `json:"commits"`
	Aborts        uint64 `json:"aborts"`
	Terminated    uint64 `json:"terminated"` // finished without their client
	Gets          uint64 `json:"gets"`       // keys
	Repairs       uint64 `json:"repairs"`    // keys requested by timestamp
	Fetches       uint64 `json:"fetches"`    // keys read from the file
	Evictions     uint64 `json:"evictions"`
	Dropped       uint64 `json:"dropped"`       // versions
	Prepared      int    `json:"prepared"`      // versions
	Held          int    `json:"held"`          // keys with versions besides the one in the slot
	DurableBehind uint64 `json:"durableBehind"` // entries

	// Only with replicas.
	Role    string                `json:"role,omitempty"`
	Term    uint64                `json:"term,omitempty"`
	Entry   uint64                `json:"entry,omitempty"` // the newest entry
	Set     []string              `json:"set,omitempty"`   // members in sync
	Members []replica.MemberStats `json:"members,omitempty"`
}

// add adds the counters of another reign.
func (s *Stats) add(o *Stats) {
	for _, x := range [][2]*uint64{
		{&s.Messages, &o.Messages}, {&s.Prepares, &o.Prepares}, {&s.Refusals, &o.Refusals}, {&s.Commits, &o.Commits}, {&s.Aborts, &o.Aborts},
		{&s.Terminated, &o.Terminated}, {&s.Gets, &o.Gets}, {&s.Repairs, &o.Repairs}, {&s.Fetches, &o.Fetches}, {&s.Evictions, &o.Evictions}, {&s.Dropped, &o.Dropped},
	} {
		*x[0] += *x[1]
	}
}

// Stats returns the counters.
func (p *Partition) Stats() Stats {
	s := p.counts
	s.Keys, s.Bytes, s.Transactions, s.Held = p.table.Len(), p.arena.Live(), len(p.txns), p.active.count
	s.DurableBehind = p.seq - p.durable()
	return s
}
