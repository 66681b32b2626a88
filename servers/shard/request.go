package shard

import (
	"bytes"
	"crypto/subtle"

	"flashdbm/servers/hydra/protocol"
)

// A request is one that is served more than once: it waits for the file, or for an entry. It owns its body.
type request struct {
	op    protocol.Op
	flags protocol.Flags
	body  []byte
	own   bool              // the body is not part of the inbox
	part  *protocol.Request // one of Parts; it has no body yet
}

// keep returns the request with a body of its own.
func (q request) keep() *request {
	switch {
	case q.part != nil:
		q.body, q.own, q.part = q.part.AppendBody(make([]byte, 0, q.part.BodySize())), true, nil
	case !q.own:
		q.body, q.own = bytes.Clone(q.body), true
	}
	return &q
}

// request serves one request, or one part of a batch. h, if not nil, is the file's record of its key.
func (s *Shard) request(r reply, op protocol.Op, flags protocol.Flags, body []byte, h *hint) {
	if r.c.denied && op != protocol.OpAuth {
		s.fail(r, protocol.StatusDenied)
		return
	}
	if s.failed != nil || s.passive() && op != protocol.OpMap && op != protocol.OpAuth {
		s.fail(r, protocol.StatusUnavailable)
		return
	}
	if op != protocol.OpBatch {
		s.served++
	}
	again := request{op: op, flags: flags, body: body, own: h != nil}
	switch op {
	case protocol.OpBatch:
		s.batch(r, body)
	case protocol.OpRenew:
		s.renew(r, body)
	case protocol.OpScan:
		s.scan(r, flags, body)
	default:
		var q protocol.Request
		if op == 0 || op > protocol.OpAuth {
			s.fail(r, protocol.StatusUnknownOp)
		} else if err := q.Parse(op, flags, body); err != nil {
			s.fail(r, protocol.StatusMalformed)
		} else {
			s.serveOne(r, &q, again, h)
		}
	}
}

// fail answers a request that was not handled.
func (s *Shard) fail(r reply, status protocol.Status) {
	if r.op.IsWrite() {
		s.answerWritten(r, status, protocol.Written{})
		return
	}
	s.refuse(r, status)
}

func (s *Shard) serveOne(r reply, q *protocol.Request, again request, h *hint) {
	switch {
	case q.Op.IsWrite():
		s.write(r, s.hash(q.Key), q, again, h)
	case q.Op == protocol.OpGet:
		s.get(r, s.hash(q.Key), q, again, h)
	case q.Op == protocol.OpExtent:
		key, ok := s.arena.Key(q.Extent)
		if !ok {
			s.refuse(r, protocol.StatusNotFound)
			return
		}
		e := protocol.Extent{Term: s.term, Key: [5]uint64{key.ID, key.Rkey, key.Nonce, key.Base, key.Len}}
		s.end(r, 0, protocol.StatusOK, e.AppendBody(s.begin(r, 64)))
	case q.Op == protocol.OpMap:
		_, body := s.o.Map()
		s.end(r, 0, protocol.StatusOK, append(s.begin(r, len(body)), body...))
	default: // AUTH
		if subtle.ConstantTimeCompare(q.Key, r.c.proof[:]) != 1 && r.c.denied {
			s.refuse(r, protocol.StatusDenied)
			return
		}
		r.c.denied = false
		s.refuse(r, protocol.StatusOK)
	}
}

func (s *Shard) batch(r reply, body []byte) {
	n, err := protocol.CheckBatch(body)
	if err != nil || r.batch != nil {
		s.fail(r, protocol.StatusMalformed)
		return
	}
	if n == 0 {
		s.refuse(r, protocol.StatusOK)
		return
	}
	b := s.newBatch(r, n)
	i := 0
	for p := range protocol.Parts(body) {
		s.request(reply{c: r.c, op: p.Op, batch: b, part: i}, p.Op, p.Flags, p.Body, nil)
		i++
	}
}
