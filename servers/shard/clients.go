package shard

import (
	"time"

	"flashdbm/servers/hydra/protocol"
)

// forgetAfter is how long a client without a connection is remembered. Its rings are gone with the connection, so nothing of it can
// arrive late; what it sends again later is refused by the floor.
const forgetAfter = 10 * time.Minute

// A client is what makes its writes happen once.
//
//   - A number that has an outcome is answered with it, never decided again.
//   - An outcome that is an entry (logged) is known to all who may ever reign. One that is not, a refusal as a rule, tells what was read, and nobody
//     else knows it: who reigns next may apply the write. So it is answered within tenure only, however often it is asked for, and no copy brings it.
//   - low is the highest "oldest" that the client has named: all below has been answered, so the outcomes are forgotten, and what comes
//     with such a number is a try that came late, which is refused.
//   - floor is what the client's hello named as its next number when this life of the shard met the client: below it the client may have sent
//     writes to an earlier life, or to this one before it had forgotten the client. Where an entry comes first, of a primary, it is what the
//     entry says: no earlier entry has a number from it on.
//   - high is the highest number of an entry that this life knows of.
type client struct {
	id       uint64
	conns    int
	left     int64 // when the last connection ended
	low      uint64
	floor    uint64
	high     uint64
	outcomes map[uint64]outcome
}

// An outcome is the answer to a number. It counts once the entry that it rests on is shown.
type outcome struct {
	seq    uint64
	status protocol.Status
	logged bool // the entry seq says it, with the number
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

// forgetClients drops, once a minute, those that have been away for long.
func (s *Shard) forgetClients() {
	if s.now-s.swept < int64(time.Minute) {
		return
	}
	s.swept = s.now
	if s.passive() || s.closed() {
		return // the primary says whom to forget
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

// unused returns a number that neither the client's entries so far have, nor any above it. A member whose life begins behind some of them, with its
// file, does not know their answers: it refuses what is below.
func (cl *client) unused() uint64 { return max(cl.floor, cl.low, cl.high+1) }

// answered notes what the client has, and forgets what it will not ask for again.
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
