package partition

import (
	"math"

	"flashdbm/servers/replica"
	"flashdbm/servers/store"
)

// A seat is a reigning partition's access to its replicas: the log that carries its entries to them, and the reign,
// which knows the members that have them.
type seat struct {
	log    *replica.Log
	reign  *replica.Reign
	life   uint64 // of the table; it ends when all partitions restart from the content of files
	least  int    // with fewer members nothing is prepared
	places func() []byte
	// look reads the clock, and reports whether the machine was suspended since the last call: its monotonic clock
	// stood still.
	look func() (mono int64, suspended bool)
	buf  []byte
}

// changesRoom is an upper bound of the bytes of a change in an entry besides the version's item.
const changesRoom = 64

// append appends the entry that has just been numbered to the log.
func (s *seat) append(seq, term uint64, changes []store.Change) {
	s.buf = store.AppendChanges(s.buf[:0], changes)
	if got := s.log.Append(term, s.buf); got != seq {
		panic("partition: the log has another entry")
	}
}

// committed returns the newest entry that all members have, as the table's mode defines it.
func (s *seat) committed() uint64 {
	s.reign.Advance()
	return s.reign.Committed()
}

// durable returns the newest entry that all members have synced.
func (s *seat) durable() uint64 { return s.reign.Durable() }

// life returns the number of the table's life.
func (p *Partition) life() uint64 {
	if p.seat == nil {
		return 0
	}
	return p.seat.life
}

// busy reports whether requests have to wait: for room at the members, for the reign to begin, or because it is being
// handed over.
func (s *seat) busy() bool { return s.log.Waits() || s.reign.Closed() || !s.reign.Serving() }

// lacks reports whether there are fewer members than writes need.
func (s *seat) lacks() bool { return s.reign.InSync() < s.least }

// mayTell reports whether the partition may answer from its state: no other member serves. It reads the clock, which
// may have stood still since the last reading.
func (p *Partition) mayTell() bool {
	if p.seat == nil {
		return true
	}
	now, suspended := p.seat.look()
	p.now = max(p.now, now)
	return !suspended && p.now < p.seat.reign.TenureEnd()
}

// tenureLeft returns the number of microseconds from now for which Reads of this life's memory are valid.
func (p *Partition) tenureLeft() uint32 {
	switch {
	case p.seat == nil:
		return uint32(tenure.Microseconds())
	case p.seat.reign.Yields():
		return 0
	}
	return uint32(min(max(0, p.seat.reign.TenureEnd()-p.now)/1000, math.MaxUint32))
}

// still reports whether no request is waiting or unanswered.
func (p *Partition) still() bool {
	return p.waitHead == len(p.waits) && p.waiting == 0 && len(p.brought) == 0 && !p.holding() && len(p.locks.keys) == 0
}
