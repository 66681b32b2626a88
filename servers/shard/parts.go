package shard

import (
	"slices"

	"flashdbm/servers/arena"
	"flashdbm/servers/hydra/protocol"
)

// Parts is a request for several keys, from within the shard's process, that is not encoded: the shard reads keys and
// values in the caller's memory, and answers go where the caller wants them. A Line returns one as a Message's Local.
// Each part is a separate request, as in a BATCH; parts are served in order.
//
// The shard calls Request, Read, Wrote or Answer for each part, and then Served. Answers that have to wait for the
// file come after Served: by then the shard has copies of what it needs.
type Parts interface {
	Len() int
	// Request sets the fields of q for part i. Key and value do not change until Served.
	Request(i int, q *protocol.Request)
	// Read answers a GET. value is valid during the call. expiry is in milliseconds since 1970; 0: never.
	Read(i int, flags protocol.ItemFlags, version, expiry uint64, value []byte)
	// Wrote answers a write.
	Wrote(i int, status protocol.Status, w protocol.Written)
	// Answer answers in all other cases.
	Answer(i int, flags protocol.Flags, status protocol.Status, body []byte)
	Served()
}

// parts serves all parts. First it loads their buckets and items into the cache, as warm does.
func (s *Shard) parts(c *conn, p Parts) {
	n := p.Len()
	s.hashes = slices.Grow(s.hashes[:0], n)[:n]
	for i := range n {
		p.Request(i, &s.asked)
		s.hashes[i] = s.hash(s.asked.Key)
		s.touched += s.table.Touch(s.hashes[i])
	}
	for _, h := range s.hashes {
		if at, ok := s.table.Likely(h); ok {
			s.touched += uint64(s.arena.Touch(arena.Place(at)))
		}
	}
	q := &s.asked // requests that wait keep a copy
	for i := range n {
		*q = protocol.Request{Number: onceNumber, Oldest: onceNumber}
		p.Request(i, q)
		s.onePart(reply{c: c, op: q.Op, parts: p, part: i}, s.hashes[i], q)
	}
	s.asked = protocol.Request{}
	p.Served()
}

// onceNumber is the number of every write that is sent once.
const onceNumber = 1

func (s *Shard) onePart(r reply, h uint64, q *protocol.Request) {
	switch again := (request{op: q.Op, flags: q.Flags, part: q}); {
	case r.c.denied:
		s.fail(r, protocol.StatusDenied)
	case s.failed != nil || s.passive():
		s.fail(r, protocol.StatusUnavailable)
	case q.Op.IsWrite():
		s.served++
		s.write(r, h, q, again, nil)
	case q.Op == protocol.OpGet:
		s.served++
		s.get(r, h, q, again, nil)
	default:
		s.fail(r, protocol.StatusUnknownOp)
	}
}
