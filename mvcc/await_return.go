package mvcc

import (
	"runtime"
	"time"

	"flashdbm/lockfree"
)

// A leader waits a little before it drains the list. Those whose commits the last group had are about to commit again: they were woken at the end
// of its sync, as the leader was. Without the wait the first of them would go with a group of few, and the others would wait for its sync
// and then for their own: two groups that take turns, each of which has the device to itself. So the leader lets others run until as many have
// committed as the last group had. Syncs of 300 µs, thousand commits a second, two yields and the wait: 8 committers 15 and 19, 16 26 and 34,
// 32 47 and 56, 64 70 and 87; with syncs of 100 µs 33 and 40, 54 and 67. Where groups are synced beside the next one, it is not done.
//
// The wait is bounded, as they need not come back:
//
//   - It ends when nobody has come for returnPatience. With less, a committer that runs on another processor is missed; with more, those who do
//     come wait longer for others that do not.
//   - It takes no longer than a sync does: by more than that nobody can gain.
//   - A yield returns late where other goroutines have the processors for themselves. Then it was the last one.
const returnPatience = 20 * time.Microsecond

// spins is how often a leader lets others run at least: 1.7 times the throughput of Buffered commits at 16 and 64 goroutines.
const spins = 2

// awaitReturn lets others run until the list has as many commits that were not drained as are expected back, or nobody has come for patience, or most
// has passed. Token held.
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
	for came < enough {
		runtime.Gosched()
		now, head := time.Now(), numbered(list.Head())
		if head > came {
			came, last = head, now
		}
		if now.Sub(last) >= patience || now.Sub(begun) >= most {
			return
		}
	}
}
