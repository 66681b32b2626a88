package shard

import (
	"time"

	"flashdbm/servers/hydra/protocol"
)

// forgetAfter is how long a client without a connection is remembered. Its rings are gone with the connection, so
// none of its requests can arrive late; the floor refuses what it sends again later.
const forgetAfter = 10 * time.Minute

// A client is the state with which a client's writes are applied exactly once.
//
//   - A number that has an outcome is answered with it, and never decided again.
//   - An outcome that is an entry (logged) is known to every later primary. An outcome that is no entry, usually a
//     refusal, reports a state that was read, and is known only here: the next primary may apply the write. So it is
//     given only within tenure, for every repetition too, and copies do not include it.
//   - low is the highest "oldest" that the client has named: all numbers below have been answered, so their outcomes
//     are forgotten, and a request with such a number is a late repetition, which is refused.
//   - floor is the next number in the client's hello when this life of the shard met the client: below it the client
//     may have sent writes to an earlier life, or to this one before it forgot the client. If the client first
//     appears in an entry of a primary, floor is the one in the entry: no earlier entry has a number from it on.
//   - high is the highest number in an entry that this life knows.
type client struct {
	id       uint64
	conns    int
	left     int64 // when the last connection ended
	low      uint64
	floor    uint64
	high     uint64
	outcomes map[uint64]outcome
}

// An outcome is the answer to a number. It is valid once entry seq is shown.
type outcome struct {
	seq    uint64
	status protocol.Status
	logged bool // entry seq has the number and this outcome
	body   protocol.Written
}

// meet returns the client of a new connection.
func (s *Shard) meet(id, next uint64) *client {
	cl := s.clients[id]
	if cl == nil {
		cl = &client{id: id, floor: next, outcomes: map[uint64]outcome{}}
		s.clients[id] = cl
	}
	cl.conns++
	return cl
}

func (s *Shard) part(cl *client) {
	cl.conns--
	cl.left = s.now
}

// forgetClients forgets, once a minute, clients that have been away for forgetAfter.
func (s *Shard) forgetClients() {
	if s.now-s.swept < int64(time.Minute) {
		return
	}
	s.swept = s.now
	if s.passive() || s.closed() {
		return // the primary decides which clients to forget
	}
	for id, cl := range s.clients {
		if cl.conns == 0 && s.now-cl.left >= int64(forgetAfter) {
			if s.o.Log != nil {
				s.appendNothing(&change{kind: changeForget, origin: &origin{client: id}})
			}
			delete(s.clients, id)
		}
	}
}

// unused returns a number that is above the numbers of all entries of the client so far. A member whose life begins,
// with its file, after some of the entries does not know their answers: it refuses lower numbers.
func (cl *client) unused() uint64 { return max(cl.floor, cl.low, cl.high+1) }

// answered records that the client has all answers below oldest, and forgets them.
func (cl *client) answered(oldest uint64) {
	if oldest <= cl.low {
		return
	}
	if oldest-cl.low < uint64(len(cl.outcomes)) {
		for n := cl.low; n < oldest; n++ {
			delete(cl.outcomes, n)
		}
	} else {
		for n := range cl.outcomes {
			if n < oldest {
				delete(cl.outcomes, n)
			}
		}
	}
	cl.low = oldest
}
