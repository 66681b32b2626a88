package hydra

import (
	"bytes"
	"fmt"

	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/wire"
)

// Calls of one caller to one shard travel as one BATCH: one frame with one hash, and one answer.
//
// Invariants:
//
//  1. All calls of a BATCH have the same waiter. The answer comes when the slowest part is done; that costs no
//     time only if the caller waits for all parts anyway.
//  2. Each part is in the table of calls under way on its own, with its connection. So timeouts, a caller that gives
//     up, and a lost connection affect a part as they affect a call that was sent alone. The call of the BATCH itself
//     has the parts' ids, and nothing else.
//  3. The parts of an answer are those of the request, in order. Otherwise the connection is ended, and the parts are
//     sent again.
const (
	batchParts = 128            // the most parts
	batchBytes = wire.MaxInline // the longest body: it has to fit into the ring
	partExtra  = 16             // the most bytes of a part besides its own body: head and padding
)

// joins reports whether the call may be a part of a BATCH.
func (c *call) joins() bool { return c.many }

// sendQueue sends the calls in the shard's queue, from its head, until there is no room.
func (e *engine) sendQueue(s *shard) (worked bool) {
	for len(s.queue) > 0 {
		n := e.gather(s.queue)
		if n > 1 {
			ok := false
			if n, ok = e.sendBatch(s, n); !ok {
				return worked
			}
		} else {
			if n = 1; !e.send(s.queue[0]) { // also a call that is too long for a BATCH
				return worked
			}
		}
		clear(s.queue[:n])
		if n == len(s.queue) {
			s.queue = s.queue[:0]
		} else {
			s.queue = s.queue[n:]
		}
		worked = true
	}
	return worked
}

// gather returns how many calls at the head of the queue may form a BATCH.
func (e *engine) gather(queue []*call) (n int) {
	size := 0
	for _, c := range queue[:min(len(queue), batchParts)] {
		if !c.joins() || c.waiter != queue[0].waiter {
			break
		}
		r := c.request(0)
		if size += r.BodySize() + partExtra; size > batchBytes {
			break
		}
		n++
	}
	return n
}

// sendBatch sends the first n calls of the queue, fewer if the window has no number for a write; it returns how many
// have left the queue. false means that there is no room.
func (e *engine) sendBatch(s *shard, n int) (int, bool) {
	list := s.queue[:n]
	size := 0
	for i, c := range list {
		if c.op.IsWrite() && c.number == 0 {
			number, ok := e.numbers.take()
			if !ok {
				list = list[:i]
				break
			}
			c.number = number
		}
		r := c.request(0)
		size += r.BodySize() + partExtra
	}
	if len(list) < 2 {
		return 1, e.send(s.queue[0])
	}
	b, err := s.conn.Begin(size)
	if err != nil {
		return 0, false
	}
	x := e.carrier(s)
	pointers := s.sided != nil && !e.noPointer
	if pointers {
		e.look() // rule 4: before the requests are sent
	}
	for _, c := range list {
		flags := c.flags
		if c.op == protocol.OpGet {
			if flags &^= protocol.FlagPointer; pointers {
				flags |= protocol.FlagPointer
				c.sent, c.sentWall = e.now, e.wall
			}
		}
		start := len(b)
		b = protocol.AppendPart(b, c.op, flags, 0)
		r := c.request(e.numbers.oldest)
		b = protocol.EndPart(r.AppendBody(b), start)
		x.parts = append(x.parts, e.enter(c))
		c.conn, c.posted = s.conn, e.now
		c.tries++
	}
	h := wire.Header{Op: uint8(protocol.OpBatch), Request: e.enter(x)}
	s.conn.End(&h, b)
	x.conn = s.conn
	e.messages++
	return len(list), true
}

// carrier returns a call for a BATCH.
func (e *engine) carrier(s *shard) *call {
	var x *call
	if n := len(e.carriers); n > 0 {
		x, e.carriers = e.carriers[n-1], e.carriers[:n-1]
	} else {
		x = &call{op: protocol.OpBatch, slot: -1, internal: (*engine).batchAnswered}
	}
	x.shard, x.parts = s, x.parts[:0]
	return x
}

// batchAnswered passes the answers to the parts. After the loss of a connection there are none: lost handles each
// part.
func (e *engine) batchAnswered(x *call, m wire.Message) {
	s := x.shard
	defer func() {
		x.shard = nil
		e.carriers = append(e.carriers, x)
	}()
	if s.conn == nil {
		return
	}
	part := wire.Message{Header: wire.Header{Status: m.Status, MapVersion: m.MapVersion}}
	if protocol.Status(m.Status) != protocol.StatusOK { // the status is that of all parts
		for _, id := range x.parts {
			if c := e.slots[uint32(id)]; c != nil && s.conn != nil {
				part.Op, part.Request = uint8(c.op), id
				e.answered(s, part)
			}
		}
		return
	}
	if n, err := protocol.CheckBatch(m.Body); err != nil || n != len(x.parts) {
		e.broken(s, fmt.Errorf("%w: the answer to a BATCH of %d has %d parts", protocol.ErrMalformed, len(x.parts), n))
		return
	}
	body := m.Body
	if len(body) <= batchBytes { // the values share one piece of memory
		body = bytes.Clone(body)
		e.lasting = true
		defer func() { e.lasting = false }()
	}
	i := 0
	for p := range protocol.Parts(body) {
		part.Op, part.Flags, part.Status, part.Request, part.Body = uint8(p.Op), uint8(p.Flags), uint16(p.Status), x.parts[i], p.Body
		if e.answered(s, part); s.conn == nil {
			return
		}
		i++
	}
}
