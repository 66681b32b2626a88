package shard

import (
	"bytes"
	"errors"
	"math"
	"strconv"

	"flashdbm/servers/arena"
	"flashdbm/servers/guard"
	"flashdbm/servers/hydra/protocol"
)

// A state is the state of a key.
type state struct {
	known   bool // false: the key has to be looked up in the file
	found   bool // the key has a value that has not expired
	expired bool
	item    guard.Item
	place   arena.Place
	placed  bool   // the item is in memory, at place
	seq     uint64 // the pending entry with this state, 0 if it is shown
}

// shownState returns the committed and shown state of the key.
func (s *Shard) shownState(h uint64, key []byte, hi *hint) (st state) {
	if _, gone := s.tombs[string(key)]; gone {
		st.known = true
		return st
	}
	if p, ok := s.table.Find(h, key); ok {
		st = state{known: true, found: true, item: s.item(arena.Place(p)), place: arena.Place(p), placed: true}
	} else if hi != nil {
		st.known, st.found = true, hi.found
		st.item = guard.Item{Flags: hi.rec.Flags, Version: hi.rec.Version, Expiry: hi.rec.Expiry, Key: key, Value: hi.rec.Value}
	} else {
		st.known = s.complete
	}
	s.lookAtExpiry(&st)
	return st
}

func (s *Shard) lookAtExpiry(st *state) {
	if st.found && s.isExpired(&st.item) {
		st.found, st.expired = false, true
	}
}

// newestState returns the state after the newest entry of the key, committed or not.
func (s *Shard) newestState(h uint64, key []byte, hi *hint) (st state) {
	e := s.pendingFor(h, key)
	switch {
	case e == nil:
		return s.shownState(h, key, hi)
	case e.remove:
		return state{known: true, seq: e.seq}
	}
	st = state{known: true, found: true, item: s.item(e.place), place: e.place, placed: true, seq: e.seq}
	s.lookAtExpiry(&st)
	return st
}

// write serves a write, each number once.
func (s *Shard) write(r reply, h uint64, q *protocol.Request, again request, hi *hint) {
	if !r.c.once && s.repeated(r, q) {
		return
	}
	if status := s.serves(h); status != protocol.StatusOK {
		if status == protocol.StatusMoved && !r.c.once {
			// remembered, because an earlier try may still arrive when the key
			// belongs to this shard again
			r.c.client.outcomes[q.Number] = outcome{status: status}
		}
		s.fail(r, status)
		return
	}
	if s.lacksMembers() {
		s.fail(r, protocol.StatusUnavailable)
		return
	}
	st := s.newestState(h, q.Key, hi)
	if !st.known && (q.Op != protocol.OpPut || q.Flags&protocol.FlagKeepExpiry != 0) {
		s.park(h, q.Key, r, again)
		return
	}
	o := s.decide(h, q, &st, s.originOf(&r, q))
	if !o.logged && s.unsure() { // the answer would report a state that was read
		s.fail(r, protocol.StatusUnavailable)
		return
	}
	if o.status == protocol.StatusFull && s.stall(r, again) {
		return
	}
	if !r.c.once {
		r.c.client.outcomes[q.Number] = o
		if o.logged {
			r.c.client.high = max(r.c.client.high, q.Number)
		}
	}
	if s.commit(); o.seq <= s.shown {
		s.answerWritten(r, o.status, o.body)
		return
	}
	s.wait(o.seq, waiter{r: r, status: o.status, written: true, body: o.body})
}

// repeated answers a write that was decided before, or may have been.
func (s *Shard) repeated(r reply, q *protocol.Request) bool {
	cl := r.c.client
	cl.answered(q.Oldest)
	if o, ok := cl.outcomes[q.Number]; ok {
		if !o.logged && s.unsure() {
			s.fail(r, protocol.StatusUnavailable)
			return true
		}
		s.wait(o.seq, waiter{r: r, status: o.status, written: true, body: o.body})
		return true
	}
	switch {
	case q.Number < cl.low:
		s.fail(r, protocol.StatusForgotten)
	case q.Number < cl.floor:
		s.fail(r, protocol.StatusUnknownOutcome)
	default:
		return false
	}
	return true
}

// decide applies the write to the newest state and returns its outcome.
func (s *Shard) decide(h uint64, q *protocol.Request, st *state, from *origin) outcome {
	version := uint64(0)
	if st.found {
		version = st.item.Version
	}
	o := outcome{seq: st.seq}
	large := chunksOf(&st.item)
	it := guard.Item{Flags: uint16(q.ItemFlags) << itemFlagShift, Expiry: s.expiry(q, st), Key: q.Key, Value: q.Value}
	remove := q.Op == protocol.OpRemove
	switch {
	case q.Op == protocol.OpInsert && st.found:
		o.status, o.body.Version = protocol.StatusExists, version
	case (q.Op == protocol.OpUpdate || remove) && !st.found:
		o.status = protocol.StatusNotFound
	case q.Op == protocol.OpCompareAndSet && version != q.Operand:
		o.status, o.body.Version = protocol.StatusVersion, version
	case q.Op == protocol.OpCompareAndSet && q.Flags&protocol.FlagRemove != 0:
		if remove = st.found; !remove { // the key was expected to be absent, and is absent
			if st.expired {
				o.seq = s.appendEnd(h, &st.item)
			}
			return o
		}
	case q.Op == protocol.OpAdd:
		if o.status = add(q, st, &it, &o.body.Sum); o.status != protocol.StatusOK {
			o.body.Version = version
		}
	}
	switch {
	case o.status != protocol.StatusOK:
		if st.expired { // the answer reports the expiry, so it is decided now
			o.seq = s.appendEnd(h, &st.item)
		}
		return o
	case remove:
		o.seq, o.logged = s.appendRemove(h, bytes.Clone(q.Key), from), true
		s.removeChunks(large, q.Key)
		return o
	}
	if from != nil {
		from.sum = o.body.Sum
	}
	seq, err := s.appendPut(h, &it, from)
	switch {
	case errors.Is(err, arena.ErrTooLarge):
		return outcome{seq: st.seq, status: protocol.StatusTooLarge}
	case err != nil:
		return outcome{seq: st.seq, status: protocol.StatusFull}
	}
	o.seq, o.logged, o.body.Version = seq, true, it.Version
	s.removeChunks(large, q.Key)
	return o
}

// itemFlagShift is the position of the protocol's item flags among those of package guard.
const itemFlagShift = 1

// expiry returns the expiry of the item that the request writes.
func (s *Shard) expiry(q *protocol.Request, st *state) uint64 {
	switch {
	case q.Flags&protocol.FlagKeepExpiry != 0:
		if !st.found {
			return 0
		}
		return st.item.Expiry
	case q.Flags&protocol.FlagRelative != 0 && q.Expiry != 0:
		if q.Expiry > math.MaxUint64-s.wall {
			return math.MaxUint64
		}
		return s.wall + q.Expiry
	}
	return q.Expiry
}

// add makes the item that an ADD writes.
func add(q *protocol.Request, st *state, it *guard.Item, sum *int64) protocol.Status {
	old := int64(0)
	if st.found {
		n, err := strconv.ParseInt(string(st.item.Value), 10, 64)
		// only the form that ADD itself writes: no sign +, no leading zeros
		if err != nil || string(strconv.AppendInt(nil, n, 10)) != string(st.item.Value) {
			return protocol.StatusNotNumber
		}
		old = n
	}
	d := int64(q.Operand)
	*sum = old + d
	if (d > 0) != (*sum > old) && d != 0 {
		*sum = 0
		return protocol.StatusOverflow
	}
	it.Value = strconv.AppendInt(nil, *sum, 10)
	return protocol.StatusOK
}
