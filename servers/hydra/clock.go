package hydra

import (
	"sync/atomic"
	"time"
)

// suspendJump is how far wall and monotonic time part between two looks before the machine counts as suspended: the monotonic clock
// stands still then. A correction of the wall clock has the same effect, which costs nothing but messages.
const suspendJump = 100 * time.Millisecond

// slew is how far the two part before a look notes that. Corrections of the wall clock come a little at a time; to note each would have all processors
// write the same word.
const slew = time.Millisecond

// A clock may be read by any goroutine.
type clock struct {
	read  func() (monotonic, wall time.Duration) // since any moments
	skew  atomic.Int64                           // wall less monotonic time, as of the last look that noted it
	jumps atomic.Uint64                          // how often the machine was suspended, at least: of looks at the same time each may count
}

func systemClock() *clock {
	start := time.Now()
	return newClock(func() (time.Duration, time.Duration) {
		t := time.Now()
		return t.Sub(start), time.Duration(t.UnixNano() - start.UnixNano())
	})
}

func newClock(read func() (monotonic, wall time.Duration)) *clock {
	m, w := read()
	c := &clock{read: read}
	c.skew.Store(int64(w - m))
	return c
}

// now returns monotonic nanoseconds. A suspension is counted before its skew is noted: who finds the skew noted finds it counted.
func (c *clock) now() int64 {
	m, w := c.read()
	switch d := (w - m - time.Duration(c.skew.Load())).Abs(); {
	case d > suspendJump:
		c.jumps.Add(1)
		c.skew.Store(int64(w - m))
	case d > slew:
		c.skew.Store(int64(w - m))
	}
	return int64(m)
}

// lasting returns when something ends that a shard has granted for so many microseconds, in answer to a request that was sent at a time.
func lasting(sent int64, micros uint32) int64 {
	d := int64(micros) * 1000
	return sent + d - d/64
}
