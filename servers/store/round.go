package store

import (
	"sync/atomic"
	"time"
)

// A round is what one sync covers, if clients wait for the file.
//
// A client that waits for one write at a time sends its next one when the last one is durable. A sync that began with the first of these writes
// would leave the others to the next sync: two groups of clients would take turns, and each would wait for two syncs. So a round waits
// for as many entries as there were under way at the end of the last sync, those that it answered included, but no longer than these
// clients may take. Who waits alone waits for nobody.
type round struct {
	expects atomic.Int64 // entries
	ends    atomic.Int64 // when the round waits no longer, in nanoseconds of the clock of the steps; 0 if nobody has looked yet
}

const (
	// roundEach is how long a round waits for each entry: about what it takes to answer a client and to receive its next request. When it is
	// smaller, rounds have fewer entries; when it is larger, a round waits longer for clients that have stopped to write, once.
	roundEach = 20 * time.Microsecond
	roundMost = 2 * time.Millisecond // for all
)

// begin expects n entries.
func (r *round) begin(n uint64) {
	r.expects.Store(int64(n))
	r.ends.Store(0)
}

// complete reports whether a round that has n entries waits for no more; if it does, until when at most.
func (r *round) complete(n uint64, now time.Time) (bool, time.Time) {
	expects := r.expects.Load()
	if int64(n) >= expects {
		return true, time.Time{}
	}
	r.ends.CompareAndSwap(0, now.Add(min(time.Duration(expects)*roundEach, roundMost)).UnixNano())
	ends := time.Unix(0, r.ends.Load())
	return !now.Before(ends), ends
}
