package redo

import "sync/atomic"

// Bytes counts the bytes of record groups, which are numbered as they are written. One goroutine at a time uses it, but for Since, which any
// goroutine may call.
type Bytes struct {
	total int64
	bases []base       // of flushes, oldest first: where redo starts, and what it may start behind later
	begun int64        // total when the last flush began
	since atomic.Int64 // total less the bytes of bases[0]; stored by every change of one of the two
}

// base is a group, and the bytes up to it.
type base struct {
	group uint64
	bytes int64
}

// Recovered notes that redo starts behind the given group; what is added from now on comes after it.
func (r *Bytes) Recovered(group uint64) {
	r.total, r.begun, r.bases = 0, 0, []base{{group: group}}
	r.since.Store(0)
}

// Add notes bytes of the group that comes next.
func (r *Bytes) Add(bytes int64) {
	r.total += bytes
	r.since.Store(r.total - r.bases[0].bytes)
}

// Base notes that a flush begins whose base is a group, up to which there were the given bytes of Total.
func (r *Bytes) Base(group uint64, bytes int64) {
	r.bases = append(r.bases, base{group, max(bytes, r.bases[len(r.bases)-1].bytes)})
	r.begun = r.total
}

// Start notes that redo starts behind the given group, a base.
func (r *Bytes) Start(group uint64) {
	n := 0
	for n+1 < len(r.bases) && r.bases[n+1].group <= group {
		n++
	}
	r.bases = append(r.bases[:0], r.bases[n:]...)
	r.since.Store(r.total - r.bases[0].bytes)
}

// Total returns the bytes added since Recovered.
func (r *Bytes) Total() int64 { return r.total }

// Since returns the bytes that an open would redo. Any goroutine may call it.
func (r *Bytes) Since() int64 { return r.since.Load() }

// SinceBase returns the bytes behind the base of the last flush that began.
func (r *Bytes) SinceBase() int64 { return r.total - r.bases[len(r.bases)-1].bytes }

// SinceFlush returns the bytes since that flush began: those behind its base that were there by then are not among them.
func (r *Bytes) SinceFlush() int64 { return r.total - r.begun }
