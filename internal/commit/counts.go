package commit

import "sync/atomic"

// Remembered is of how many Seqs Counts remembers the number of records.
const Remembered = 1 << 12

// Counts has the number of records at each of the last Seqs that it was told of. Any goroutine may read it.
type Counts struct{ slots [Remembered]count }

// count is the number of records at a Seq. A reader that finds another Seq, or one being replaced, has been overtaken.
type count struct {
	seq     atomic.Uint64
	records atomic.Int64
}

// Store notes the number of records at seq. Leader. A damaged file may say that it has fewer than are deleted then: that counts as none, so
// that nobody takes it for a number that was forgotten.
func (c *Counts) Store(seq uint64, records int64) {
	records = max(records, 0)
	s := &c.slots[seq%Remembered]
	s.seq.Store(0)
	s.records.Store(records)
	s.seq.Store(seq)
}

// At returns the number of records at seq, or -1 if that is forgotten.
func (c *Counts) At(seq uint64) int64 {
	s := &c.slots[seq%Remembered]
	if s.seq.Load() != seq {
		return -1
	}
	n := s.records.Load()
	if s.seq.Load() != seq {
		return -1
	}
	return n
}
