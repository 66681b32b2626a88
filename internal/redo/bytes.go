package redo

import "sync/atomic"

// Bytes counts the bytes of record groups. One goroutine at a time may use it, except for Since, which any
// goroutine may call.
type Bytes struct {
	total int64
	bases []base       // base groups of flushes, oldest first: redo starts at bases[0], and may later start at one of the others
	begun int64        // value of total when the last flush began
	since atomic.Int64 // total less the bytes of bases[0]; stored whenever one of the two changes
}

// base is a group, with the bytes of all groups up to it.
type base struct {
	group uint64
	bytes int64
}

// Recovered notes that redo starts after the given group; bytes added from now on come after it.
func (r *Bytes) Recovered(group uint64) {
	r.total, r.begun, r.bases = 0, 0, []base{{group: group}}
	r.since.Store(0)
}

// Add adds the bytes of the next group.
func (r *Bytes) Add(bytes int64) {
	r.total += bytes
	r.since.Store(r.total - r.bases[0].bytes)
}

// Base notes the beginning of a flush with the given base group. bytes was Total at that group.
func (r *Bytes) Base(group uint64, bytes int64) {
	r.bases = append(r.bases, base{group, max(bytes, r.bases[len(r.bases)-1].bytes)})
	r.begun = r.total
}

// Start notes that redo now starts after the given group, which is the base of a flush.
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

// Since returns the bytes that an open would have to redo. Any goroutine may call it.
func (r *Bytes) Since() int64 { return r.since.Load() }

// SinceBase returns the bytes after the base of the last flush that began.
func (r *Bytes) SinceBase() int64 { return r.total - r.bases[len(r.bases)-1].bytes }

// SinceFlush returns the bytes added since that flush began. Unlike SinceBase it does not count the bytes that were
// after its base at that moment.
func (r *Bytes) SinceFlush() int64 { return r.total - r.begun }
