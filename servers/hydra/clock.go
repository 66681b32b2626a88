package hydra

import (
	"sync/atomic"
	"time"
)

// suspendJump is how far wall and monotonic time diverge between two readings before the machine counts as suspended,
// because the monotonic clock stands still then. A correction of the wall clock has the same effect, which costs only
// messages.
const suspendJump = 100 * time.Millisecond

// slew is how far the two must diverge before a reading stores the new difference. The wall clock is corrected
// in small steps; if each were stored, all processors would write the same word.
const slew = time.Millisecond

// Any goroutine may read a clock.
type clock struct {
	read func() (monotonic, wall time.Duration) // since arbitrary moments
	skew atomic.Int64                           // wall minus monotonic time, as last noted
	// jumps: how often the machine was suspended, at least: simultaneous readings may count one suspension several
	// times
	jumps atomic.Uint64
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

// now returns monotonic nanoseconds. It counts a suspension before it stores the new skew: so a goroutine that reads
// the new skew also finds the suspension counted.
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

// lasting returns when a grant of a shard ends: the shard granted it for micros microseconds, in answer to a request
// sent at the given time.
func lasting(sent int64, micros uint32) int64 {
	d := int64(micros) * 1000
	return sent + d - d/64
}
