package hydra

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/wire"
)

// A line carries the calls of a Client to one shard of the same process, and the answers back. There are no messages:
// a call is encoded into the line's memory, and the goroutine that serves the shard, which uses the line as a
// wire.Line, decodes the shard's answer into the call.
//
// Invariants:
//
//  1. The caller encodes a request before the shard can see it. So a caller that gives up may reuse its key and value
//     at once.
//  2. A call is in slots from when it was queued until it is answered or withdrawn. Only the goroutine that removes
//     it, with mu held, writes its results, and then counts it as done for its waiter.
//  3. After Close nothing is queued, and every call that was in slots has been answered with ErrClosed or
//     ErrUnknownOutcome.
//
// A request is sent once, so it has no number for the shard to remember: the answer cannot be lost while the process
// lives.
type line struct {
	serve func() // makes the shard check the line, and may serve it

	mu    sync.Mutex // guards the fields below; no other lock is taken while it is held
	queue requests   // requests that the shard has not taken
	open  []*parts   // parts without an answer
	slots []*call    // by the low half of a request's id
	gens  []uint32   // the high half of a request's id
	free  []uint32

	queued atomic.Int32 // requests in queue; changes while mu is held, is read without
	closed atomic.Bool  // changes while mu is held, is read without

	// The goroutine that serves the shard uses the remaining fields.
	taken  requests
	next   int // index into taken
	answer []byte
	values []byte // the free part of the memory for values of batches
}

// requests are encoded requests, one after another.
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

// lineKeep is the most memory for bodies, in bytes, that an empty line keeps.
const lineKeep = 256 << 10

func (r *requests) reset() {
	clear(r.list)
	r.list, r.text = r.list[:0], r.text[:0]
	if cap(r.text) > lineKeep {
		r.text = nil
	}
}

// hand passes those calls that belong to this line to the shard.
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

// push queues the calls that belong to this line. It returns ErrClosed, and queues nothing, if the line is closed.
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

// onceNumber is the number of every write that is sent once.
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

// take removes the call of a request from slots, and returns it; nil if it was withdrawn.
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

// leave removes a call from slots.
func (l *line) leave(c *call) {
	l.slots[c.slot] = nil
	l.free = append(l.free, uint32(c.slot))
	c.slot = -1
}

// withdraw ends the calls that the shard has not answered. A queued request stays queued, and is served.
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

// expire withdraws calls that have timed out. Their time begins with the first expire that sees them.
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

// Waiting reports whether Receive has a request to return. The goroutine that serves the shard calls it.
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

// Begin returns memory for an answer of at most max bytes.
func (l *line) Begin(max int) ([]byte, error) {
	if cap(l.answer) < max || cap(l.answer) > lineKeep {
		l.answer = make([]byte, 0, max)
	}
	return l.answer[:0], nil
}

// End passes an answer to its call.
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

// valuesSize is the number of bytes that values of batches share, as Client.Batch says.
const valuesSize = 16 << 10

// room returns an empty slice with room for n bytes of a value.
func (l *line) room(n int) []byte {
	if len(l.values) < n {
		l.values = make([]byte, valuesSize)
	}
	b := l.values[:0:n]
	l.values = l.values[n:]
	return b
}

// Flush does nothing: End delivers the answer.
func (l *line) Flush() {}

// Err returns ErrClosed after Close.
func (l *line) Err() error {
	if l.closed.Load() {
		return ErrClosed
	}
	return nil
}

// Close closes the line. Calls without an answer end with ErrClosed, or ErrUnknownOutcome.
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
		if p := l.open[i]; !p.serving { // otherwise Served does it
			p.give(ErrClosed)
		}
	}
	return nil
}
