package store

import (
	"sync/atomic"
	"time"
)

// A round is what one sync covers, if clients wait for the file.
//
// A client that waits for one write at a time sends its next one when the last one is durable. A sync that begins with the first of these
// writes leaves the others to the next sync: two groups of clients take turns, and each waits for two syncs. A sync that waits for all of them
// leaves the device idle while the clients are answered. Which of the two is faster depends on what takes longer, the sync or the answers.
// So a round is complete when it has as many entries as there were under way at the end of the last sync, those included that it
// answered; and it waits no longer than the clients are worth it: roundPatience syncs, as long as rounds become complete. One that does not halves
// that for the next, down to one sync: then it takes at most twice what it would have taken with the better choice. Who waits alone
// waits for nobody.
type round struct {
	expects  atomic.Int64  // entries
	ends     time.Time     // when the round waits no longer
	sync     time.Duration // what a sync takes: a moving mean
	patience int           // how many syncs a round waits at most
	late     int           // rounds in a row that did not become complete
}

const (
	// roundMost is the longest wait, where syncs take long: as long as 50 clients take to send their next request on two processors that
	// are busy otherwise. When it is larger, a round waits longer for a client that has stopped to write, once; when it is smaller, rounds
	// have fewer entries.
	roundMost = 2 * time.Millisecond
	// roundShare is how much a sync changes the mean: one part of so many. One sync that takes very long changes little.
	roundShare = 8
	// roundPatience is for clients that take longer to come back than a sync takes. With one sync, 50 clients of redis-benchmark on two processors
	// that had other work, syncs of 0.1 to 0.2 ms, by turns: 29,200 SETs a second, 28 in a round, 29 µs of processor and 900 bytes written for
	// each; with four 36,200, 46, 24 µs and 320 bytes; with ten the same.
	roundPatience = 4
	// roundProbe is after how many late rounds one waits that long again.
	roundProbe = 64
)

// begin expects n entries, at the end of a sync that took so long.
func (r *round) begin(n uint64, now time.Time, took time.Duration) {
	r.sync += (min(took, roundMost) - r.sync) / roundShare
	r.ends = now.Add(min(r.sync*time.Duration(r.waits()), roundMost))
	r.expects.Store(int64(n))
}

// waits returns how many syncs the round at hand may wait.
func (r *round) waits() int {
	if r.patience == 0 || r.late > 0 && r.late%roundProbe == 0 {
		return roundPatience
	}
	return r.patience
}

// complete reports whether a round that has n entries waits for no more; if it does, until when at most.
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
