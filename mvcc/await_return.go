package mvcc

import (
	"runtime"
	"time"

	"flashdbm/lockfree"
)

// A leader waits a little before it drains the list. The committers of the last group are about to commit again: they
// were woken at the end of its sync, as the leader was. Without the wait the first of them would form a small group,
// and the others would wait for its sync and then for their own: two groups that take turns, each with the device to
// itself. So the leader yields until as many have pushed commits as the last group had. Thousand commits per second
// with two yields only, and with the wait: syncs of 300 µs: 8 committers 15 and 19; 16: 26 and 34; 32: 47 and 56; 64:
// 70 and 87. Syncs of 100 µs: 33 and 40, 54 and 67. There is no such wait if groups are synced beside the next one.
//
// The wait is bounded, because those committers need not come back:
//
//   - It ends when no commit has been pushed for returnPatience. Shorter: a committer that runs on another processor
//     is missed. Longer: the commits that were pushed wait longer for others that do not come.
//   - It takes no longer than a sync, because no more than that can be gained.
//   - If other goroutines keep the processors busy, a yield returns late, and was the last one.
//   - If the clock stands still for stillYields yields, the wait ends: in a synctest bubble the clock moves only
//     while all goroutines wait, so the wait would not end while another commit wants the token.
const (
	returnPatience = 20 * time.Microsecond
	stillYields    = 1000
)

// spins is how often a leader yields at least: with it, Buffered commits at 16 and 64 goroutines have 1.7 times the
// throughput.
const spins = 2

// awaitReturn yields until the list has back commits that were not drained, or no commit has been pushed for
// patience, or most has passed. Token held.
func awaitReturn(list *lockfree.List[pushedCommit], back int, most, patience time.Duration) {
	for range spins {
		runtime.Gosched()
	}
	if back <= 1 || most <= 0 {
		return
	}
	numbered := func(n *commitNode) int64 {
		if n == nil {
			return 0
		}
		return int64(n.Number())
	}
	enough := numbered(list.Drained()) + int64(back)
	begun := time.Now()
	came, last := numbered(list.Head()), begun
	before, still := begun, 0
	for came < enough && still < stillYields {
		runtime.Gosched()
		now, head := time.Now(), numbered(list.Head())
		if still++; now.After(before) {
			before, still = now, 0
		}
		if head > came {
			came, last = head, now
		}
		if now.Sub(last) >= patience || now.Sub(begun) >= most {
			return
		}
	}
}
