package hydra

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"flashdbm/servers/circle"
	"flashdbm/servers/hydra/protocol"
)

// parts are the requests of a local client's Batch that go to one shard. They are not encoded: the goroutine that
// serves the shard reads keys and values in the memory of Batch's caller, and writes the results into the caller's
// requests. parts is a shard.Parts.
//
// Invariants:
//
//  1. From begin to Served the caller of Batch waits, even if its context ends: the shard uses its keys and values.
//  2. Between begin and Served, the goroutine that serves the shard writes the caller's requests without a lock;
//     before and after, they are written only while the line's mu is held and the parts are in open. The goroutine
//     that removes the parts from open counts them as done for the waiter, so the caller returns only after that.
//  3. Parts that were given up are not reused, because the shard may still send answers
//     for them.
type parts struct {
	line   *line
	list   []Request // the caller's requests
	at     []int32   // indexes of the parts' requests in list
	waiter *waiter

	// Guarded by the line's mu, except as invariant 2 says.
	place    int   // index in open; -1: removed
	left     int   // number of requests without an answer
	serving  bool  // between begin and Served
	deadline int64 // 0 until an expire has seen the parts
	given    bool  // given up
}

var errUnanswered = errors.New("hydra: no answer yet")

// push queues the parts. It returns ErrClosed, and queues nothing, if the line is closed.
func (p *parts) push() error {
	l := p.line
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed.Load() {
		return ErrClosed
	}
	p.left, p.place, p.deadline = len(p.at), len(l.open), 0
	l.open = append(l.open, p)
	l.queue.list = append(l.queue.list, request{parts: p})
	l.queued.Add(1)
	return nil
}

// begun queues the parts, or ends them with ErrClosed and returns false.
func (p *parts) begun() bool {
	err := p.push()
	if err == nil {
		return true
	}
	for _, i := range p.at {
		p.list[i].Err = err
	}
	p.waiter.settle()
	return false
}

// leave removes the parts from open, and counts them off their waiter. The caller holds mu.
func (p *parts) leave() {
	open := p.line.open
	last := open[len(open)-1]
	open[p.place], last.place = last, p.place
	open[len(open)-1] = nil
	p.line.open, p.place = open[:len(open)-1], -1
	p.waiter.settle()
}

// give gives up the requests without an answer. The caller holds mu, and the parts are in open and not being served.
func (p *parts) give(why error) {
	for _, i := range p.at {
		if r := &p.list[i]; r.Err == errUnanswered {
			r.Err = unanswered(kinds[r.Kind].op, why)
		}
	}
	p.given = true
	p.leave()
}

// withdraw gives up the requests that the shard has not answered. While the shard serves the parts, it waits.
func (p *parts) withdraw(why error) {
	for {
		p.line.mu.Lock()
		if p.place < 0 {
			break
		}
		if !p.serving {
			p.give(why)
			break
		}
		p.line.mu.Unlock()
		runtime.Gosched() // serving parts takes microseconds
	}
	p.line.mu.Unlock()
}

// begin reports whether the parts are to be served.
func (p *parts) begin() bool {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	p.serving = !p.given
	return p.serving
}

// Served ends what begin began.
func (p *parts) Served() {
	l := p.line
	l.mu.Lock()
	defer l.mu.Unlock()
	p.serving = false
	switch {
	case p.left == 0:
		p.leave()
	case l.closed.Load():
		p.give(ErrClosed)
	}
}

// Len returns the number of parts.
func (p *parts) Len() int { return len(p.at) }

// Request sets the fields of q for part i.
func (p *parts) Request(i int, q *protocol.Request) {
	r := &p.list[p.at[i]]
	k := &kinds[r.Kind]
	q.Op, q.Flags, q.Expiry, q.Key = k.op, k.flags|r.Expiry.flags, r.Expiry.ms, r.Key
	switch r.Kind {
	case Put, Insert, Update:
		q.Value = r.Value
	case CompareAndSet, CompareAndDelete:
		q.Value, q.Operand = r.Value, r.Old
	case Add:
		q.Operand = uint64(r.N)
	}
}

// take returns the caller's request of part i, nil if the parts were given up. Unless it is nil, the caller calls
// done next.
func (p *parts) take(i int) *Request {
	if !p.serving {
		p.line.mu.Lock()
		if p.given {
			p.line.mu.Unlock()
			return nil
		}
	}
	return &p.list[p.at[i]]
}

func (p *parts) done(r *Request, err error) {
	mu := &p.line.mu // once the last part is counted off, the caller of Batch may reuse p
	r.Err = err
	if p.left--; p.serving {
		return
	}
	if p.left == 0 {
		p.leave()
	}
	mu.Unlock()
}

// Read answers a GET.
func (p *parts) Read(i int, flags protocol.ItemFlags, version, expiry uint64, value []byte) {
	r := p.take(i)
	if r == nil {
		return
	}
	r.Item = Item{Version: version, flags: flags}
	if expiry != 0 {
		r.Item.Expiry = time.UnixMilli(int64(expiry))
	}
	if n := len(value); n <= valuesSize/4 {
		r.Item.Value = append(p.line.room(n), value...)
	} else {
		r.Item.Value = append([]byte(nil), value...)
	}
	p.done(r, nil)
}

// Wrote answers a write.
func (p *parts) Wrote(i int, status protocol.Status, w protocol.Written) {
	if r := p.take(i); r != nil {
		r.Item, r.Sum = Item{Version: w.Version}, w.Sum
		p.done(r, statusError(status))
	}
}

// Answer answers in all other cases: a GET without an item.
func (p *parts) Answer(i int, _ protocol.Flags, status protocol.Status, body []byte) {
	if r := p.take(i); r != nil {
		r.Item = Item{}
		err := statusError(status)
		if err == nil {
			err = fmt.Errorf("%w: an answer of %d bytes", protocol.ErrMalformed, len(body))
		}
		p.done(r, err)
	}
}

// part divides the requests among the shards. It returns how many parts they make.
func (c *Client) part(of *[]*parts, w *waiter, list []Request) (used int) {
	sent := 0
	for i := range list {
		r := &list[i]
		if r.Err = r.wrong(i); r.Err != nil {
			continue
		}
		l := c.only
		if l == nil {
			owner, _ := c.circle.Owner(circle.Hash(c.seed, r.Key))
			l = c.lines[owner]
		}
		n := 0
		for n < used && (*of)[n].line != l {
			n++
		}
		if n == len(*of) {
			*of = append(*of, &parts{place: -1, waiter: w})
		}
		p := (*of)[n]
		if n == used {
			p.line, p.list, p.at = l, list, p.at[:0]
			used++
		}
		p.at = append(p.at, int32(i))
		r.Err = errUnanswered
		sent++
	}
	c.handed.Add(uint64(sent))
	return used
}

// batchLocal is Batch for a local client.
func (c *Client) batchLocal(ctx context.Context, o *batchOp, list []Request) (first error) {
	used := c.part(&o.parts, &o.w, list)
	c.runParts(ctx, &o.w, o.parts[:used])
	for i, p := range o.parts[:used] {
		if p.list = nil; p.given {
			o.parts[i] = &parts{place: -1, waiter: &o.w}
		}
	}
	for i := range list {
		if first = list[i].Err; first != nil {
			break
		}
	}
	if len(list) <= maxPooled {
		c.batches.Put(o)
	}
	return first
}

// runParts passes parts to their shards and returns when all are done.
func (c *Client) runParts(ctx context.Context, w *waiter, list []*parts) {
	w.left.Store(int32(len(list)))
	w.sleeps.Store(false)
	for _, p := range list {
		if p.begun() {
			p.line.serve()
		}
	}
	w.await(ctx, func() {
		for _, p := range list {
			p.withdraw(context.Cause(ctx))
		}
	})
}
