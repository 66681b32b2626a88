package store

import (
	"sync/atomic"
	"time"
)

// A round is the set of entries that one sync covers, if clients wait for the file.
//
// A client that waits for one write at a time sends its next write when the last one is durable. A sync that begins
// with the first of these writes leaves the others to the next sync: two groups of clients take turns, and each waits
// for two syncs. A sync that waits for all of them leaves the device idle while the clients are answered. Which of
// the two is faster depends on whether the sync or the answers take longer.
//
// So a round is complete when it has as many entries as were under way at the end of the last sync, including the
// entries that the sync answered. It waits at most roundPatience syncs, as long as rounds become complete. A round
// that does not become complete halves the limit for the next one, down to one sync: then a round takes at most
// twice what the better choice would have taken. A single waiting client waits for no other.
type round struct {
	expects  atomic.Int64  // number of entries
	ends     time.Time     // when the round stops waiting
	sync     time.Duration // duration of a sync: a moving mean
	patience int           // most syncs that a round waits; 0: not set yet
	late     int           // consecutive rounds that did not become complete
}

const (
	// roundMost is the longest wait, for slow syncs: the time that 50 clients need to send their next request on two
	// processors that are otherwise busy. Larger: a round waits longer, once, for a client that has stopped writing.
	// Smaller: rounds have fewer entries.
	roundMost = 2 * time.Millisecond
	// roundShare: one sync changes the mean by 1/roundShare of the difference, so that a single very long sync
	// changes little.
	roundShare = 8
	// roundPatience is for clients that need longer than one sync to send their next request. Measured with 50
	// clients of redis-benchmark on two processors with other work, syncs of 0.1 to 0.2 ms, by turns. With one sync:
	// 29,200 SETs a second, 28 in a round, 29 µs of processor time and 900 bytes written for each; with four: 36,200,
	// 46, 24 µs and 320 bytes; with ten the same.
	roundPatience = 4
	// roundProbe: after this many late rounds, one waits roundPatience syncs again.
	roundProbe = 64
)

// begin starts a round that expects n entries, at the end of a sync of duration took.
func (r *round) begin(n uint64, now time.Time, took time.Duration) {
	r.sync += (min(took, roundMost) - r.sync) / roundShare
	r.ends = now.Add(min(r.sync*time.Duration(r.waits()), roundMost))
	r.expects.Store(int64(n))
}

// waits returns how many syncs the present round may wait.
func (r *round) waits() int {
	if r.patience == 0 || r.late > 0 && r.late%roundProbe == 0 {
		return roundPatience
	}
	return r.patience
}

// complete reports whether a round of n entries stops waiting, and until when it waits at most.
func (r *round) complete(n uint64, now time.Time) (bool, time.Time) {
	switch {
	case int64(n) >= r.expects.Load():
		r.patience, r.late = roundPatience, 0
	case !now.Before(r.ends):
		r.patience, r.late = max(1, r.patience/2), r.late+1
	default:
		return false, r.ends
	}
	return true, r.ends
}
