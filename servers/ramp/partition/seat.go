package partition

import (
	"math"

	"flashdbm/servers/replica"
	"flashdbm/servers/store"
)

// A seat is what a partition has of its replicas while it reigns: the log that carries its entries to them, and the reign that says which of them count.
type seat struct {
	log    *replica.Log
	reign  *replica.Reign
	life   uint64 // of the table; it ends when all partitions go on with what files had
	least  int    // members without which nothing is prepared
	places func() []byte
	// look reads the clock, and reports whether the machine was suspended since the last look: its monotonic clock has stood still.
	look func() (mono int64, suspended bool)
	buf  []byte
}

// changesRoom is more than what a change takes in an entry beside the version's item.
const changesRoom = 64

// append gives the log the entry that has just been numbered.
func (s *seat) append(seq, term uint64, changes []store.Change) {
	s.buf = store.AppendChanges(s.buf[:0], changes)
	if got := s.log.Append(term, s.buf); got != seq {
		panic("partition: the log has another entry")
	}
}

// committed returns the newest entry that all members have, in the sense of the table's mode.
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

// busy reports whether requests wait: for room at the members, for the reign to begin, or since it is being handed over.
func (s *seat) busy() bool { return s.log.Waits() || s.reign.Closed() || !s.reign.Serving() }

// lacks reports whether there are fewer members than writes need.
func (s *seat) lacks() bool { return s.reign.InSync() < s.least }

// mayTell reports whether the partition may tell what it has: nobody else serves it. It reads the clock, as it may have stood still since the last look.
func (p *Partition) mayTell() bool {
	if p.seat == nil {
		return true
	}
	now, suspended := p.seat.look()
	p.now = max(p.now, now)
	return !suspended && p.now < p.seat.reign.TenureEnd()
}

// tenureLeft returns for how many microseconds Reads of this life's memory count, from now on.
func (p *Partition) tenureLeft() uint32 {
	switch {
	case p.seat == nil:
		return uint32(tenure.Microseconds())
	case p.seat.reign.Yields():
		return 0
	}
	return uint32(min(max(0, p.seat.reign.TenureEnd()-p.now)/1000, math.MaxUint32))
}

// still reports whether nothing is left of what was asked for.
func (p *Partition) still() bool {
	return p.waitHead == len(p.waits) && p.waiting == 0 && len(p.brought) == 0 && !p.holding() && len(p.locks.keys) == 0
}
