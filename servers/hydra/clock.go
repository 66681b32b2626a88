package hydra

import "time"

// suspendJump is how far wall and monotonic time part between two looks before the machine counts as suspended: the monotonic clock
// stands still then. A correction of the wall clock has the same effect, which costs nothing but messages.
const suspendJump = 100 * time.Millisecond

// A clock is read by one goroutine at a time.
type clock struct {
	read  func() (monotonic, wall time.Duration) // since any moments
	skew  time.Duration
	jumps uint64 // how often the machine was suspended
}

func systemClock() clock {
	start := time.Now()
	return newClock(func() (time.Duration, time.Duration) {
		t := time.Now()
		return t.Sub(start), time.Duration(t.UnixNano() - start.UnixNano())
	})
}

func newClock(read func() (monotonic, wall time.Duration)) clock {
	m, w := read()
	return clock{read: read, skew: w - m}
}

// now returns monotonic nanoseconds.
func (c *clock) now() int64 {
	m, w := c.read()
	if d := w - m - c.skew; d > suspendJump || d < -suspendJump {
		c.jumps++
	}
	c.skew = w - m
	return int64(m)
}

// lasting returns when something ends that a shard has granted for so many microseconds, in answer to a request that was sent at a time.
func lasting(sent int64, micros uint32) int64 {
	d := int64(micros) * 1000
	return sent + d - d/64
}
