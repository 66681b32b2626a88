package shard

import (
	"slices"

	"flashdbm/servers/arena"
	"flashdbm/servers/circle"
	"flashdbm/servers/guard"
	"flashdbm/servers/replica"
	"flashdbm/servers/store"
)

// An arrival is a part of the circle that comes to this shard from another one, as the new owner's primary sees it.
type arrival struct {
	from   uint32
	term   uint64 // of the old owner's reign
	change uint64 // of the assignment
	link   replica.Link
	clear  *walk // over the shard's present content of the part, which is dropped first; nil: that is done
	seq    uint64
	held   []byte // received items for which there was no room
	full   int64  // takeHeld does not look for room before this time
	owed   []owedAnswer
}

// An owedAnswer is sent once the entries up to behind are committed, or, if durable is set, synced by all members.
type owedAnswer struct {
	replica.Message
	behind  uint64
	durable bool
}

// Arrive gives the shard a link of another shard's primary, which brings a part of the circle.
func (s *Shard) Arrive(l replica.Link) {
	if s.passive() || s.view == nil {
		l.Close()
		return
	}
	s.arriving = append(s.arriving, l)
}

// takesFrom reports whether this shard accepts a part from the primary of that term: the one in the old owner's
// record (invariant 17).
func (s *Shard) takesFrom(from uint32, term, change uint64) (*circle.Move, bool) {
	m := s.view.move(circle.Pair{From: from, To: s.o.Shard})
	return m, s.view.Circle.Change == change && m != nil && !m.Moved && s.view.Records[from].Term == term
}

// moveIn advances the arrivals at this shard.
func (s *Shard) moveIn() (worked bool) {
	for i := 0; i < len(s.arriving); i++ {
		l := s.arriving[i]
		msg, ok := l.Receive()
		if !ok && l.Err() == nil {
			continue
		}
		s.arriving = slices.Delete(s.arriving, i, i+1)
		i--
		if worked = true; !ok || msg.Kind != moveBegin || !s.beginArrival(l, &msg) {
			l.Close()
		}
	}
	for from, a := range s.in {
		if _, ok := s.takesFrom(from, a.term, a.change); !ok || a.link.Err() != nil {
			a.link.Close()
			delete(s.in, from)
			worked = true
			continue
		}
		worked = s.takeArrival(a) || worked
	}
	return worked
}

// beginArrival begins to accept a part. The shard first drops its content of the part: it is from an earlier attempt,
// or from a time when the part was this shard's.
func (s *Shard) beginArrival(l replica.Link, msg *replica.Message) bool {
	from := uint32(msg.Seq)
	m, ok := s.takesFrom(from, msg.Term, msg.Synced)
	if !ok || s.loading || s.toLoad || s.closed() {
		return false
	}
	if last := s.in[from]; last != nil {
		last.link.Close()
	}
	if s.base < msg.Pos { // invariant 18
		s.setBase(msg.Pos)
		s.start, s.settles = s.seq, s.seq
		s.appendNothing(&change{kind: changeNothing}) // makes the members raise theirs, even if no item comes
	}
	if s.in == nil {
		s.in = map[uint32]*arrival{}
	}
	s.in[from] = &arrival{from: from, term: msg.Term, change: msg.Synced, link: l, clear: s.newWalk(m.Ranges)}
	return true
}

// takeArrival handles the old owner's messages, as far as there is room.
func (s *Shard) takeArrival(a *arrival) (worked bool) {
	if s.closed() {
		return false
	}
	if a.clear != nil {
		if s.o.Log.Waits() || !s.dropNext(a.clear) {
			return false
		}
		if a.clear.done() {
			a.clear = nil
			a.link.Send(&replica.Message{Kind: moveReady})
		}
		return true
	}
	for s.takeHeld(a) {
		msg, ok := a.link.Receive()
		if !ok {
			break
		}
		worked = true
		if msg.Kind == moveMark {
			a.owe(&replica.Message{Kind: moveMarked, Seq: msg.Seq, Term: s.Reign().Term()}, s.seq, msg.Flags&moveDurable != 0)
			continue
		}
		if msg.Kind != moveItems || len(msg.Body) == 0 {
			a.link.Close()
			break
		}
		a.seq, a.held = msg.Seq, slices.Clone(msg.Body)
		s.takeHeld(a)
		break // the other messages are taken in the next sweep, because clients wait
	}
	for len(a.owed) > 0 {
		o := &a.owed[0]
		if s.shown < o.behind || o.durable && s.Reign().Durable() < o.behind {
			break
		}
		a.link.Send(&o.Message)
		a.owed, worked = a.owed[1:], true
	}
	return worked
}

func (a *arrival) owe(msg *replica.Message, behind uint64, durable bool) {
	a.owed = append(a.owed, owedAnswer{*msg, behind, durable})
}

// takeHeld installs the items of a message. It reports whether none is left.
func (s *Shard) takeHeld(a *arrival) bool {
	if len(a.held) == 0 {
		return true
	}
	if s.now < a.full {
		return false
	}
	for len(a.held) > 0 {
		if s.o.Log.Waits() || s.o.Store != nil && s.o.Store.Backlog() > maxBacklog {
			return false
		}
		it, flags, rest, err := cutCopied(a.held)
		if err != nil {
			a.link.Close()
			return false
		}
		h := s.hash(it.Key)
		if flags&copyRemoved != 0 {
			s.appendRemove(h, slices.Clone(it.Key), nil)
		} else if err := s.appendMoved(h, &it); err != nil {
			a.full = s.now + moveAgain // items have to be synced before they can be evicted
			return false
		}
		a.held = rest
	}
	// so the old owner's window also bounds the items on their way to the
	// members
	a.owe(&replica.Message{Kind: moveTaken, Seq: a.seq}, s.seq, false)
	return true
}

// appendMoved decides that a key of an arriving part has its old owner's item, with the item's version.
func (s *Shard) appendMoved(h uint64, it *guard.Item) error {
	n := guard.Size(len(it.Key), len(it.Value))
	if s.o.Store != nil && !s.o.Store.Fits(n) || !s.Reign().Fits(n) {
		return arena.ErrFull
	}
	if !s.o.Log.Fits(changeHead + len(it.Key) + len(it.Value)) {
		return arena.ErrTooLarge
	}
	e := entry{hash: h}
	p, err := s.room(n)
	switch {
	case err == nil:
		e.place, e.guardian = p, guard.Build(s.arena.Bytes(p)[:n], it)
	case s.o.Store == nil || s.pinned(h) || s.pendingFor(h, it.Key) != nil:
		return err
	default: // the file has the item, where requests find it
		s.toFile(h, it.Key)
		e.empty = true
	}
	seq := s.append(e)
	s.settles = seq // the version does not show which entry brought the item
	s.replicate(seq, &change{kind: changeMoved, Item: *it, entry: s.base + seq})
	if s.o.Store != nil {
		s.o.Store.Append(store.Entry{Seq: seq, Term: s.reignTerm(), Hash: h, Record: store.Record{
			Version: it.Version, Expiry: it.Expiry, Flags: it.Flags, Key: it.Key, Value: it.Value,
		}})
	}
	return nil
}

// MoveStats describe the progress of a move, as the old owner's primary sees it.
type MoveStats struct {
	To      uint32 `json:"to"`
	Phase   string `json:"phase"`
	Items   uint64 `json:"items"`   // sent so far; an item sent twice counts twice
	Changed int    `json:"changed"` // keys that have changed since they were sent
}

// moveStats returns the progress of the move from this shard, nil if there is none.
func (s *Shard) moveStats() *MoveStats {
	if s.out == nil {
		return nil
	}
	return &MoveStats{To: s.out.To, Phase: s.out.phase.String(), Items: s.out.items, Changed: len(s.out.changed)}
}
