package shard

import (
	"bytes"
	"errors"

	"flashdbm/servers/arena"
	"flashdbm/servers/circle"
	"flashdbm/servers/guard"
	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/store"
)

// log has the entries that have been decided and are not shown yet, and the numbers of entries.
type log struct {
	seq     uint64 // newest entry
	shown   uint64 // newest entry shown
	pending []entry
	spare   []entry           // memory for pending, once pending is empty
	newest  map[uint64]uint64 // by hash of the key: the newest pending entry
	showing bool              // commit is running, further up the stack
}

// An entry is one change that is not shown yet.
type entry struct {
	seq      uint64
	before   uint64 // the newest older pending entry of the same hash, 0: none
	hash     uint64
	remove   bool
	empty    bool        // it changes no key
	drops    bool        // the shard drops all hashes from hash to guardian
	key      []byte      // in a remove
	place    arena.Place // of the item; unused in a remove
	guardian uint64      // with which the item is shown
	waiters  []waiter
}

// A waiter is an answer that depends on an entry, or a request that is served again once the entry is shown.
type waiter struct {
	r       reply
	again   *request
	status  protocol.Status
	written bool // the answer has a body
	body    protocol.Written
}

func (s *Shard) entry(seq uint64) *entry { return &s.pending[seq-s.pending[0].seq] }

func (s *Shard) keyOf(e *entry) []byte {
	if e.remove {
		return e.key
	}
	return s.item(e.place).Key
}

// pendingFor returns the newest pending entry of the key, nil if there is none.
func (s *Shard) pendingFor(h uint64, key []byte) *entry {
	for seq := s.newest[h]; seq != 0 && len(s.pending) > 0 && seq >= s.pending[0].seq; {
		e := s.entry(seq)
		if !e.empty && bytes.Equal(s.keyOf(e), key) {
			return e
		}
		seq = e.before
	}
	return nil
}

func (s *Shard) append(e entry) uint64 {
	s.seq++
	e.seq, e.before = s.seq, s.newest[e.hash]
	if len(s.pending) == 0 || e.before < s.pending[0].seq {
		e.before = 0
	}
	s.newest[e.hash] = e.seq
	if len(s.pending) == 0 {
		s.pending = s.spare[:0]
	}
	if s.pending = append(s.pending, e); len(s.pending) == 1 {
		s.spare = s.pending[:0]
	}
	return e.seq
}

// appendPut decides that the key has the value from now on. It builds the item without showing it. If it returns an
// error, nothing was decided.
func (s *Shard) appendPut(h uint64, it *guard.Item, from *origin) (seq uint64, err error) {
	n := guard.Size(len(it.Key), len(it.Value))
	if s.o.Store != nil && !s.o.Store.Fits(n) || s.Reign() != nil && !s.Reign().Fits(n) {
		return 0, arena.ErrFull
	}
	if s.o.Log != nil && !s.o.Log.Fits(changeHead+len(it.Key)+len(it.Value)) {
		return 0, arena.ErrTooLarge
	}
	p, err := s.room(n)
	if err != nil {
		return 0, err
	}
	it.Version = s.base + s.seq + 1
	e := entry{hash: h, place: p, guardian: guard.Build(s.arena.Bytes(p)[:n], it)}
	atOnce := s.o.Durability != Sync && len(s.pending) == 0 && s.o.Log == nil
	if atOnce {
		s.seq++
		e.seq = s.seq
	} else {
		e.seq = s.append(e)
	}
	if s.o.Log != nil {
		s.replicate(e.seq, &change{kind: changePut, Item: *it, origin: from})
	}
	if s.o.Store != nil {
		s.o.Store.Append(store.Entry{Seq: e.seq, Term: s.reignTerm(), Hash: h, Record: store.Record{
			Version: it.Version, Expiry: it.Expiry, Flags: it.Flags, Key: it.Key, Value: it.Value,
		}})
	}
	if atOnce { // committed, and no entry is before it
		s.show(&e)
		s.shown = e.seq
		s.completed()
	}
	return e.seq, nil
}

// appendRemove decides that the key has no value from now on. It keeps key.
func (s *Shard) appendRemove(h uint64, key []byte, from *origin) (seq uint64) {
	seq = s.append(entry{hash: h, remove: true, key: key})
	if s.o.Log != nil {
		s.replicate(seq, &change{kind: changeRemove, Item: guard.Item{Version: s.base + seq, Key: key}, origin: from})
	}
	if s.o.Store != nil {
		s.o.Store.Append(store.Entry{Seq: seq, Term: s.reignTerm(), Hash: h, Remove: true, Record: store.Record{Key: key}})
	}
	return seq
}

// appendNothing appends an entry that changes nothing in the table.
func (s *Shard) appendNothing(c *change) (seq uint64) {
	seq = s.append(entry{empty: true})
	c.Version = s.base + seq
	s.replicate(seq, c)
	if s.o.Store != nil {
		s.o.Store.Append(store.Entry{Seq: seq, Term: s.reignTerm(), Empty: true})
	}
	return seq
}

// committed returns the newest committed entry.
func (s *Shard) committed() uint64 {
	if s.o.Log != nil {
		return s.agreed()
	}
	if s.o.Durability == Sync {
		return min(s.seq, s.o.Store.Durable())
	}
	return s.seq
}

// commit shows committed entries and sends the answers that waited for them.
func (s *Shard) commit() (worked bool) {
	if s.showing || s.failed != nil {
		return false // the running loop also handles entries appended in the meantime
	}
	s.showing = true
	for len(s.pending) > 0 && s.pending[0].seq <= s.committed() {
		e := s.pending[0]
		s.pending[0] = entry{}
		if s.pending = s.pending[1:]; len(s.pending) == 0 {
			s.pending = nil
		}
		if s.newest[e.hash] == e.seq {
			delete(s.newest, e.hash)
		}
		switch {
		case e.drops:
			s.drop(drop{circle.Range{First: e.hash, Last: e.guardian}, e.seq})
		case !e.empty:
			s.show(&e)
		}
		s.shown = e.seq
		for _, w := range e.waiters {
			s.release(&w)
		}
		worked = true
	}
	s.showing = false
	if worked {
		s.completed()
	}
	return worked
}

// show makes the entry visible in the table and the guardians. The order is that of invariant 3: a Read that finds
// the new item current begins or continues after the old one has ceased to be.
func (s *Shard) show(e *entry) {
	var b []byte // the new item
	key := e.key
	if !e.remove {
		b = guard.Bytes(s.arena.Bytes(e.place))
		it := guard.Parse(b)
		if key = it.Key; it.Expiry != 0 {
			s.expiring++
		}
	}
	old, ok := s.table.Find(e.hash, key)
	if ok {
		was := guard.Bytes(s.arena.Bytes(arena.Place(old)))
		if guard.Parse(was).Expiry != 0 {
			s.expiring--
		}
		guard.Hide(was)
	}
	if s.out != nil && circle.In(s.out.Ranges, e.hash) {
		s.out.note(key)
	}
	s.shows(e)
	switch {
	case e.remove:
		if ok {
			s.table.Remove(e.hash, old)
		}
		s.remember(e)
	default:
		if !s.hides(e.hash) {
			guard.Show(b, e.guardian)
		}
		s.shows(e)
		if ok {
			s.table.Replace(e.hash, old, uint64(e.place))
		} else {
			s.table.Insert(e.hash, uint64(e.place))
		}
		if len(s.tombs) > 0 {
			delete(s.tombs, string(key))
		}
	}
	if ok {
		s.arena.Retire(arena.Place(old), s.now)
	}
}

// shows is called at moments at which one-sided Reads may observe a half-shown entry.
func (s *Shard) shows(e *entry) {
	if s.between != nil {
		s.between(*e) // a copy: a pointer would make each entry escape to the heap
	}
}

func (s *Shard) release(w *waiter) {
	switch {
	case w.again != nil:
		s.request(w.r, w.again.op, w.again.flags, w.again.body, nil)
	case w.written:
		s.answerWritten(w.r, w.status, w.body)
	default:
		s.refuse(w.r, w.status)
	}
}

// wait keeps an answer, or a request, until the entry is shown.
func (s *Shard) wait(seq uint64, w waiter) {
	if seq <= s.shown {
		s.release(&w)
		return
	}
	e := s.entry(seq)
	e.waiters = append(e.waiters, w)
}

// room returns a block for an item of n bytes. If none is free, it evicts items.
func (s *Shard) room(n int) (arena.Place, error) {
	p, err := s.arena.Alloc(n)
	if err == nil || !errors.Is(err, arena.ErrFull) {
		return p, err
	}
	s.arena.Reap(s.now, 1<<20)
	for range 3 { // the hand has to return to items that it has marked, and it may take several evictions to free a block of the right size
		if p, err = s.arena.Alloc(n); err == nil {
			return p, nil
		}
		if !s.evict(n) {
			break
		}
	}
	return s.arena.Alloc(n)
}

func (s *Shard) hash(key []byte) uint64 { return circle.Hash(s.o.Seed, key) }
