package hydra

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/wire"
)

// A line carries the calls of a Client to one shard of the same process, and the answers back. There are no messages: a call is encoded into
// the line's memory, and the shard's answer is decoded into the call by whoever serves the shard, who uses the line as a wire.Line.
//
// Invariants:
//
//  1. A request is encoded by its caller, before the shard can see it. So a caller that gives up may use its key and value again at once.
//  2. A call is in slots from when it was queued until it is answered or withdrawn. Who takes it out, under mu, is the only one to
//     write its results, and then counts it off its waiter.
//  3. After Close nothing is queued, and every call that was in slots has been answered with ErrClosed.
//
// A request is sent once, so it has no number that the shard would have to remember: the answer cannot be lost while the process lives.
type line struct {
	serve func() // has the shard look at the line, and perhaps serves it

	mu    sync.Mutex // guards what follows; no other lock is taken while it is held
	queue requests   // that the shard has not taken
	open  []*parts   // that have no answer yet
	slots []*call    // by the low half of a request's id
	gens  []uint32   // the high half
	free  []uint32

	queued atomic.Int32 // requests in queue; it changes under mu and is looked at without
	closed atomic.Bool  // the same

	// The rest is used by whoever serves the shard.
	taken  requests
	next   int // of taken
	answer []byte
	values []byte // what is left of the memory for the values of batches
}

// requests are encoded one behind the other.
type requests struct {
	list []request
	text []byte
}

type request struct {
	id       uint64
	op       protocol.Op
	flags    protocol.Flags
	from, to int // of the body in text
	parts    *parts
}

// lineKeep is how many bytes of bodies a line keeps room for while it has none.
const lineKeep = 256 << 10

func (r *requests) reset() {
	clear(r.list)
	r.list, r.text = r.list[:0], r.text[:0]
	if cap(r.text) > lineKeep {
		r.text = nil
	}
}

// hand gives the shard those of the calls that go to this line.
func (l *line) hand(calls []*call) {
	if err := l.push(calls); err == nil {
		l.serve()
		return
	}
	for _, c := range calls {
		if c.line == l {
			c.settle(ErrClosed)
		}
	}
}

// push queues the calls that go to this line. It returns ErrClosed if there is no shard any more; then nothing was queued.
func (l *line) push(calls []*call) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed.Load() {
		return ErrClosed
	}
	n := int32(0)
	for _, c := range calls {
		if c.line == l {
			l.encode(c)
			n++
		}
	}
	l.queued.Add(n)
	return nil
}

// onceNumber stands where a write that is sent once has its number.
const onceNumber = 1

func (l *line) encode(c *call) {
	if len(l.free) == 0 {
		l.free = append(l.free, uint32(len(l.slots)))
		l.slots, l.gens = append(l.slots, nil), append(l.gens, 0)
	}
	last := len(l.free) - 1
	slot := l.free[last]
	l.free = l.free[:last]
	l.slots[slot] = c
	l.gens[slot]++
	c.slot = int(slot)
	q := &l.queue
	from := len(q.text)
	if c.body != nil {
		q.text = append(q.text, c.body...)
	} else {
		r := protocol.Request{
			Op: c.op, Number: onceNumber, Oldest: onceNumber, Expiry: c.expiry, Operand: c.arg, ItemFlags: c.item, Key: c.key, Value: c.value,
		}
		q.text = r.AppendBody(q.text)
	}
	q.list = append(q.list, request{id: uint64(l.gens[slot])<<32 | uint64(slot), op: c.op, flags: c.flags, from: from, to: len(q.text)})
}

// take takes the call of a request out of slots, nil if it was withdrawn.
func (l *line) take(id uint64) *call {
	l.mu.Lock()
	defer l.mu.Unlock()
	slot := uint32(id)
	c := l.slots[slot]
	if c == nil || l.gens[slot] != uint32(id>>32) {
		return nil
	}
	l.leave(c)
	return c
}

// leave takes a call out of slots.
func (l *line) leave(c *call) {
	l.slots[c.slot] = nil
	l.free = append(l.free, uint32(c.slot))
	c.slot = -1
}

// withdraw answers the calls that the shard has not answered. A request that is queued stays there, and is served.
func (l *line) withdraw(calls []*call, why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range calls {
		if c.line == l && c.slot >= 0 {
			l.leave(c)
			c.settle(c.unanswered(why))
		}
	}
}

// expire withdraws the calls whose time is over. It begins with the first expire that sees the call.
func (l *line) expire(now time.Time, timeout time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.slots {
		switch at := now.UnixNano(); {
		case c == nil:
		case c.deadline == 0:
			c.deadline = at + int64(timeout)
		case at > c.deadline:
			l.leave(c)
			c.settle(c.unanswered(context.DeadlineExceeded))
		}
	}
	for i := len(l.open) - 1; i >= 0; i-- {
		switch p, at := l.open[i], now.UnixNano(); {
		case p.deadline == 0:
			p.deadline = at + int64(timeout)
		case at > p.deadline && !p.serving:
			p.give(context.DeadlineExceeded)
		}
	}
}

// Waiting reports whether there is a request that Receive has not returned. Whoever serves the shard calls it.
func (l *line) Waiting() bool {
	return (l.next < len(l.taken.list) || l.queued.Load() > 0) && !l.closed.Load()
}

// Receive returns the next request. Its body is valid until the next Receive.
func (l *line) Receive() (wire.Message, bool) {
	var r *request
	for {
		if l.next == len(l.taken.list) {
			if l.queued.Load() == 0 {
				return wire.Message{}, false
			}
			l.next = 0
			l.taken.reset()
			l.mu.Lock()
			l.queue, l.taken = l.taken, l.queue
			l.queued.Store(0)
			l.mu.Unlock()
		}
		r = &l.taken.list[l.next]
		l.next++
		if r.parts == nil {
			break
		}
		if r.parts.begin() {
			return wire.Message{Local: r.parts}, true
		}
	}
	h := wire.Header{Op: uint8(r.op), Flags: uint8(r.flags), Request: r.id}
	return wire.Message{Header: h, Body: l.taken.text[r.from:r.to:r.to]}, true
}

// Begin returns memory for an answer of max bytes at most.
func (l *line) Begin(max int) ([]byte, error) {
	if cap(l.answer) < max || cap(l.answer) > lineKeep {
		l.answer = make([]byte, 0, max)
	}
	return l.answer[:0], nil
}

// End gives a call its answer.
func (l *line) End(h *wire.Header, body []byte) {
	c := l.take(h.Request)
	if c == nil {
		return
	}
	status := protocol.Status(h.Status)
	_, err := c.decode(status, protocol.Flags(h.Flags), body, false)
	if err == nil {
		err = statusError(status)
	}
	c.settle(err)
}

// valuesSize is how many bytes the values of batches share, as Client.Batch says.
const valuesSize = 16 << 10

// room returns an empty slice for n bytes of a value.
func (l *line) room(n int) []byte {
	if len(l.values) < n {
		l.values = make([]byte, valuesSize)
	}
	b := l.values[:0:n]
	l.values = l.values[n:]
	return b
}

// Flush does nothing: an answer is there once End has returned.
func (l *line) Flush() {}

// Err returns ErrClosed after Close.
func (l *line) Err() error {
	if l.closed.Load() {
		return ErrClosed
	}
	return nil
}

// Close ends the line. Calls that have no answer end with ErrClosed, or ErrUnknownOutcome.
func (l *line) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed.Store(true)
	for _, c := range l.slots {
		if c != nil {
			l.leave(c)
			c.settle(c.unanswered(ErrClosed))
		}
	}
	for i := len(l.open) - 1; i >= 0; i-- {
		if p := l.open[i]; !p.serving { // else Served does it
			p.give(ErrClosed)
		}
	}
	return nil
}
