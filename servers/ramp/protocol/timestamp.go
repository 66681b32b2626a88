package protocol

import (
	"cmp"
	"fmt"
	"slices"
)

// A Timestamp orders the versions of a key. All versions that a transaction writes have the transaction's timestamp.
// No two transactions of a client share one, and no two versions of a key; transactions of two clients without a
// common key may:
//
//	bits   field
//	22-63  milliseconds since 1970 of the client's hybrid clock
//	10-21 a number that the client has drawn, so that other clients seldom have the same timestamps
//	0-9    count of the transactions of the client within the millisecond
//
// 0 stands for no version.
type Timestamp uint64

const (
	countBits  = 10
	clientBits = 12
	milliShift = countBits + clientBits
	maxCount   = 1<<countBits - 1
)

// MakeTimestamp joins the parts of a timestamp.
func MakeTimestamp(milli uint64, client, count uint16) Timestamp {
	return Timestamp(milli<<milliShift | uint64(client)<<countBits&(1<<milliShift-1) | uint64(count)&maxCount)
}

// Milli returns the milliseconds since 1970.
func (t Timestamp) Milli() uint64 { return uint64(t) >> milliShift }

// Client returns the number of the client.
func (t Timestamp) Client() uint16 { return uint16(t >> countBits & (1<<clientBits - 1)) }

// Count returns the count within the millisecond.
func (t Timestamp) Count() uint16 { return uint16(t & maxCount) }

func (t Timestamp) String() string { return fmt.Sprintf("%d.%d.%d", t.Milli(), t.Client(), t.Count()) }

// A Clock is the hybrid clock of a client. Its timestamps increase even if the wall clock is set back, until a server
// says that they are too far off; no timestamp is ever returned twice. One goroutine uses it.
type Clock struct {
	client uint16
	milli  uint64
	count  uint16 // of the next timestamp within milli; above maxCount when milli is used up
	offset int64  // milliseconds to add to the wall clock, which a server has found to be wrong
	run    span   // the span in use; first is 0 if it is empty
	used   []span // earlier spans, in ascending order, more than setBack apart
}

// A span is a range of milliseconds, both ends included.
type span struct{ first, last uint64 }

const (
	// setBack is how many milliseconds a clock must be ahead of a server's clock to be set back. A smaller lead is
	// corrected by the offset only: the server accepts it, and time catches up. It is also the least gap between two
	// spans.
	setBack = 1000
	// maxSpans is the most spans that are remembered. When there are more, the two nearest to each other are joined,
	// including the gap between them.
	maxSpans = 64
)

// NewClock returns the clock of a client with the given number.
func NewClock(number uint16) *Clock { return &Clock{client: number % MaxClients} }

// Next returns a new timestamp. wall is the date in milliseconds since 1970.
func (c *Clock) Next(wall uint64) Timestamp {
	if now := uint64(int64(wall) + c.offset); now > c.milli {
		c.milli, c.count = now, 0
	}
	if c.count > maxCount {
		c.milli, c.count = c.milli+1, 0
	}
	for _, s := range c.used {
		if s.first <= c.milli && c.milli <= s.last {
			c.milli, c.count = s.last+1, 0
		}
	}
	if c.milli > c.run.last+setBack {
		c.endRun()
	}
	if c.run.first == 0 {
		c.run.first = c.milli
	}
	c.run.last = c.milli
	t := MakeTimestamp(c.milli, c.client, c.count)
	c.count++
	return t
}

// endRun records the span in use, so that it is not used again if the clock is set back.
func (c *Clock) endRun() {
	if c.run.first == 0 {
		return
	}
	i, _ := slices.BinarySearchFunc(c.used, c.run.first, func(s span, first uint64) int { return cmp.Compare(s.first, first) })
	c.used = slices.Insert(c.used, i, c.run)
	c.run = span{}
	for i := max(i, 1); i < len(c.used); {
		if c.used[i].first <= c.used[i-1].last+setBack {
			c.join(i)
		} else {
			i++
		}
	}
	if len(c.used) > maxSpans {
		nearest := 1
		for i := 2; i < len(c.used); i++ {
			if c.used[i].first-c.used[i-1].last < c.used[nearest].first-c.used[nearest-1].last {
				nearest = i
			}
		}
		c.join(nearest)
	}
}

// join joins span i and the one before it.
func (c *Clock) join(i int) {
	c.used[i-1].last = max(c.used[i-1].last, c.used[i].last)
	c.used = slices.Delete(c.used, i, i+1)
}

// Seen makes all later timestamps greater than t, until the clock is set back.
func (c *Clock) Seen(t Timestamp) {
	if t.Milli() >= c.milli {
		c.milli, c.count = t.Milli(), maxCount+1
	}
}

// Correct sets the clock by a server's clock, after the server has refused a timestamp as too far off. now is the
// server's time.
func (c *Clock) Correct(wall uint64, now Timestamp) {
	c.offset = int64(now.Milli()) - int64(wall)
	if now.Milli()+setBack >= c.milli {
		c.Seen(now)
		return
	}
	c.endRun()
	c.milli, c.count = now.Milli(), maxCount+1
}

// Renumber gives the clock another number, because another client has its timestamps. step should be specific to the
// client. Timestamps used under any number stay used.
func (c *Clock) Renumber(step uint16) {
	c.client = (c.client + step) % MaxClients
	c.count = maxCount + 1
}
