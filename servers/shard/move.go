package shard

import (
	"time"

	"flashdbm/servers/circle"
	"flashdbm/servers/guard"
	"flashdbm/servers/replica"
)

// moving is the shard's state of moves of parts of the circle. See doc.go for the rules.
type moving struct {
	view    *View  // nil: the shard owns all hashes
	reignAt uint64 // revision of the record with which this reign began
	out     *mover // the move from this shard; nil: none
	hidden  bool   // current items may have a guardian of 0

	arriving []replica.Link      // of old owners that have not announced a part yet
	in       map[uint32]*arrival // arrivals at this shard, by old owner

	tidy   *walk // over the hashes of other shards, which are dropped
	tidied uint64

	drops []drop // during the load or copy under way
}

// The progress of the old owner with a move.
type movePhase uint8

const (
	moveApart  movePhase = iota // no link to the new owner
	moveBegins                  // the new owner drops its content of the part
	moveCopies                  // items are sent, and then the keys that have changed since
	moveHides                   // no pointer into the part is given any more, and the guardians become 0
	moveSyncs                   // everything has been sent except present changes; the new owner's members sync it
	moveCloses                  // nothing of the part is read or decided. Decided entries are shown, and sent
	moveAsks                    // the assignment in which the part belongs to the new owner is proposed
)

func (p movePhase) String() string {
	return [...]string{"connects", "begins", "copies", "hides", "syncs", "closes", "hands over"}[p]
}

// The messages between the two primaries of a move. They have the form of package replica's messages.
const (
	// moveBegin: (old to new) Seq: the old owner, Term: its primary's, Pos: above all versions that it will assign,
	// Synced: Assignment.Change
	moveBegin  replica.Kind = 32 + iota
	moveReady               // (new to old) nothing of the part is left
	moveItems               // (old to new) Seq: number of the message; Body: items
	moveTaken               // (new to old) Seq
	moveMark                // (old to new) Seq: number of the mark; with moveDurable in Flags
	moveMarked              // (new to old) Seq; Term: of the new owner's primary. All items before the mark are committed
)

// moveDurable asks for a mark that all members have synced.
const moveDurable uint8 = 1

const (
	// moveWindow is the most messages of items under way. 1: each message waits for the answer to the last one. More:
	// the new owner's clients wait longer for their turn.
	moveWindow = 4
	// moveAgain is the pause before a link is retried, and moveLater the pause before a part is closed again that
	// could not be handed over in time.
	moveAgain = int64(100 * time.Millisecond)
	moveLater = int64(time.Second)
	// moveClosed is how long a part may be closed before the change of its owner is proposed. Longer: clients notice
	// the pause. Shorter: a slow sync causes a retry.
	moveClosed = int64(300 * time.Millisecond)
	// moveSynced is how old the newest state that all members have synced may be when the part is closed: as much as
	// async mode may lose anyway.
	moveSynced = int64(time.Second)
	// movePropose is the interval at which a change with unknown outcome is proposed again.
	movePropose = int64(100 * time.Millisecond)
	// moveFew is the number of changed keys not sent yet below which the next phase begins.
	moveFew = 64
	// moveMany is the most changes that are kept while items are copied; then changed keys are sent first. More: more
	// memory, some 50 bytes and the key for each. Fewer: keys that change often are sent more often.
	moveMany = 1 << 14
)

// A mover is a move from this shard to another one, as the old owner's primary sees it.
type mover struct {
	circle.Move
	change uint64 // of the assignment
	phase  movePhase
	link   replica.Link
	dials  bool
	again  int64 // the next attempt begins no earlier

	copy    *walk
	hide    uint64            // hashes below it are hidden
	hideAt  int               // index of the range in which it lies
	changed map[string]uint64 // keys that have changed and were not sent since, and the number of their last change
	order   []changedKey      // of changes, the oldest first; only the last change of a key counts
	changes uint64
	bodies  [][]byte // bodies to be sent; the last one may be under construction
	items   uint64   // sent so far
	sent    uint64   // messages sent
	taken   uint64   // messages taken
	mark    uint64   // number of the last mark
	wants   uint64   // the mark whose answer is awaited; 0: none
	markAt  int64
	closed  int64  // when the part was closed
	behind  uint64 // newest entry at that time
	term    uint64 // of the new owner's reign that has everything
	asked   int64  // when the assignment was last proposed
	askedOf uint64 // revision of the view from which it was proposed
}

type changedKey struct {
	key    string
	number uint64
}

// endMoves abandons the primary's moves. The next primary knows the outcome of proposals: by the revision of its
// record, this reign's proposals have failed or taken effect.
func (s *Shard) endMoves() {
	if s.out != nil {
		s.out.disconnect()
		s.out = nil
	}
	for _, a := range s.in {
		a.link.Close()
	}
	for _, l := range s.arriving {
		l.Close()
	}
	s.in, s.arriving, s.tidy, s.tidied = nil, nil, nil, 0
}

func (m *mover) disconnect() {
	if m.link != nil {
		m.link.Close()
	}
	m.link, m.dials = nil, false
	m.copy, m.changed, m.order, m.bodies = nil, nil, nil, nil
	m.phase = moveApart
}

// move advances all moves of a primary that serves.
func (s *Shard) move() (worked bool) {
	if !s.fresh() {
		return false
	}
	worked = s.moveOut()
	worked = s.moveIn() || worked
	return s.tidyUp() || worked
}

// moveOut advances the move from this shard.
func (s *Shard) moveOut() (worked bool) {
	if s.out == nil {
		for _, m := range s.view.moves {
			if m.From == s.o.Shard && !m.Moved {
				s.out = &mover{Move: m, change: s.view.Circle.Change}
				return true
			}
		}
		return false
	}
	m := s.out
	switch now := s.view.move(m.Pair); {
	// the part belongs to the other shard by now; or it stays here, and no proposal was made from this
	// assignment (invariant 16)
	case now == nil || now.Moved || s.view.Circle.Change != m.change:
		m.disconnect()
		s.out = nil
		return true
	case m.phase == moveAsks:
		if s.view.Records[m.To].Term > m.term { // no proposal can succeed any more
			m.disconnect()
		}
		return false
	}
	if m.link != nil {
		worked = s.hearMove(m)
	}
	if m.link == nil || s.closed() {
		return worked
	}
	switch m.phase {
	case moveCopies:
		worked = s.copyMove(m) || worked
	case moveHides:
		worked = s.hideMove(m) || worked
	case moveSyncs, moveCloses:
		s.gatherChanged(m)
	}
	worked = m.send() || worked
	switch {
	case m.phase == moveCloses && s.now-m.closed > moveClosed: // nothing was proposed, so the part may be served again
		m.phase, m.again, m.wants, worked = moveSyncs, s.now+moveLater, 0, true
	case m.wants != 0 || len(m.bodies) > 0:
	case m.phase == moveSyncs && s.now >= m.again:
		m.sendMark(moveDurable, s.now)
	case m.phase == moveCloses && s.shown >= m.behind && len(m.changed) == 0:
		m.sendMark(0, s.now)
	}
	return worked
}

// send sends as many messages as the window allows.
func (m *mover) send() (worked bool) {
	for len(m.bodies) > 0 && m.sent-m.taken < moveWindow {
		m.sent++
		m.link.Send(&replica.Message{Kind: moveItems, Seq: m.sent, Body: m.bodies[0]})
		m.bodies[0] = nil
		m.bodies, worked = m.bodies[1:], true
	}
	return worked
}

// MoveDial returns the shard to whose primary a link is needed, and the function that takes the link; nil says that
// there is no connection now.
func (s *Shard) MoveDial() (to uint32, linked func(replica.Link)) {
	m := s.out
	if m == nil || m.phase != moveApart || m.dials || s.now < m.again || s.Reign() == nil || !s.fresh() || s.passive() {
		return 0, nil
	}
	m.dials = true
	return m.To, func(l replica.Link) {
		switch {
		case s.out != m || m.phase != moveApart || s.passive():
			if l != nil {
				l.Close()
			}
		case l == nil:
			m.dials, m.again = false, s.now+moveAgain
		default:
			s.beginMove(m, l)
		}
	}
}

// beginMove begins to send the part to the new owner's primary, from the first item on.
func (s *Shard) beginMove(m *mover, l replica.Link) {
	*m = mover{Move: m.Move, change: m.change, link: l, phase: moveBegins, changed: map[string]uint64{}}
	l.Send(&replica.Message{Kind: moveBegin, Seq: uint64(s.o.Shard), Term: s.Reign().Term(), Pos: s.base + s.seq + reignGap, Synced: m.change})
}

// hearMove handles the new owner's messages.
func (s *Shard) hearMove(m *mover) (worked bool) {
	for {
		msg, ok := m.link.Receive()
		if !ok {
			break
		}
		worked = true
		switch {
		case msg.Kind == moveReady && m.phase == moveBegins:
			m.phase, m.copy = moveCopies, s.newWalk(m.Ranges)
		case msg.Kind == moveTaken && msg.Seq > m.taken && msg.Seq <= m.sent:
			m.taken = msg.Seq
		case msg.Kind == moveMarked && msg.Seq <= m.mark:
			if msg.Seq == m.wants { // otherwise the answer is for a mark sent before the part was opened again
				m.wants = 0
				s.heardMark(m, msg.Term)
			}
		default:
			m.link.Close()
		}
	}
	if m.link.Err() != nil {
		m.disconnect()
		m.again = s.now + moveAgain
		worked = true
	}
	return worked
}

// heardMark begins the next phase once the new owner has all items before the
// last mark.
func (s *Shard) heardMark(m *mover, term uint64) {
	switch m.phase {
	case moveSyncs:
		if s.now-m.markAt <= moveSynced && len(m.changed) < moveFew {
			m.phase, m.closed, m.behind = moveCloses, s.now, s.seq
		}
	case moveCloses:
		m.phase, m.term, m.asked = moveAsks, term, 0
	}
}

func (m *mover) sendMark(flags uint8, now int64) {
	m.mark++
	m.wants, m.markAt = m.mark, now
	m.link.Send(&replica.Message{Kind: moveMark, Flags: flags, Seq: m.mark})
}

// copyMove sends the next items.
func (s *Shard) copyMove(m *mover) (worked bool) {
	if m.sent-m.taken >= moveWindow || len(m.bodies) > 0 {
		return false
	}
	if !m.copy.done() && len(m.order) < moveMany {
		list, _, ok := s.next(m.copy)
		for i := range list {
			m.add(&list[i].Item, 0)
		}
		m.cut()
		return ok
	}
	if s.gatherChanged(m); m.copy.done() && len(m.changed) < moveFew {
		m.phase, m.hide, m.hideAt, s.hidden = moveHides, m.Ranges[0].First, 0, true
	}
	return true
}

// note records that a key has changed. It is called when the entry is shown. Keys are sent in the order of their last
// changes: if a crash of all members loses the end of the new owner's log, no later write of the last second survives
// without the earlier ones.
func (m *mover) note(key []byte) {
	if m.changed == nil {
		return
	}
	m.changes++
	k := string(key)
	m.changed[k] = m.changes
	m.order = append(m.order, changedKey{k, m.changes})
}

// gatherChanged makes messages of the present state of changed keys.
func (s *Shard) gatherChanged(m *mover) {
	for len(m.order) > 0 && len(m.bodies) < moveWindow {
		k := m.order[0]
		m.order[0] = changedKey{}
		if m.order = m.order[1:]; len(m.order) == 0 {
			m.order = nil
		}
		if m.changed[k.key] != k.number {
			continue
		}
		delete(m.changed, k.key)
		key := []byte(k.key)
		if p, ok := s.table.Find(s.hash(key), key); ok { // a changed key is not evicted before it is sent
			it := s.itemAt(p)
			m.add(&it, 0)
		} else {
			m.add(&guard.Item{Key: key}, copyRemoved)
		}
	}
	m.cut()
}

// copyRemoved is the flag of a copied item that says that its key has no value.
const copyRemoved = 1 << 16

// add adds an item to the body under construction: the last one, unless it is cut.
func (m *mover) add(it *guard.Item, flags uint64) {
	n := len(m.bodies)
	size := copyItemHead + len(it.Key) + len(it.Value)
	if n == 0 || cap(m.bodies[n-1]) == len(m.bodies[n-1]) || len(m.bodies[n-1]) >= copyBytes || len(m.bodies[n-1])+size > copyMost {
		m.cut()
		m.bodies = append(m.bodies, make([]byte, 0, max(copyBytes, size+1)))
		n++
	}
	b := m.bodies[n-1]
	at := len(b)
	b = appendCopied(b, it)
	le.PutUint64(b[at+8:], uint64(it.Flags)|flags)
	m.bodies[n-1] = b
	m.items++
}

// cut ends the body under construction.
func (m *mover) cut() {
	if n := len(m.bodies); n > 0 {
		b := m.bodies[n-1]
		m.bodies[n-1] = b[:len(b):len(b)]
	}
}

// hideMove sets some guardians to 0. After the last one, no Read of the part that begins later is accepted.
func (s *Shard) hideMove(m *mover) bool {
	for range walkChains {
		r := m.Ranges[m.hideAt]
		places, last := s.table.Scan(m.hide, s.places[:0])
		s.places = places
		for _, p := range places {
			it := s.itemAt(p)
			if h := s.hash(it.Key); r.First <= h && h <= r.Last {
				guard.Hide(guard.Bytes(s.bytesAt(p)))
			}
		}
		if last < r.Last {
			m.hide = last + 1
			continue
		}
		if m.hideAt++; m.hideAt == len(m.Ranges) {
			m.phase = moveSyncs
			return true
		}
		m.hide = m.Ranges[m.hideAt].First
	}
	return true
}

// hides reports whether no pointer to the hash may be given, and no guardian shown.
func (s *Shard) hides(h uint64) bool {
	return s.out != nil && s.out.phase >= moveHides && circle.In(s.out.Ranges, h)
}

// points reports whether a pointer to the item, which is current, may be given. It shows an item again that an
// abandoned move has hidden.
func (s *Shard) points(h uint64, place uint64) bool {
	if !s.hidden {
		return true
	}
	if s.hides(h) {
		return false
	}
	if b := guard.Bytes(s.bytesAt(place)); !guard.Shown(b) {
		guard.Show(b, guard.Of(b))
	}
	return true
}

// A CircleProposal is the assignment in which the pair's part belongs to its new owner. It takes effect only while
// the records of both shards are those of the view.
type CircleProposal struct {
	View *View
	Pair circle.Pair
}

// CircleProposal returns a change that the node should make now. The shard learns the outcome from its view; a change
// whose outcome it does not learn is proposed again.
func (s *Shard) CircleProposal() (p CircleProposal, ok bool) {
	m := s.out
	if m == nil || m.phase != moveAsks || s.passive() || !s.fresh() {
		return p, false
	}
	if now := s.view.move(m.Pair); now == nil || now.Moved || s.view.Circle.Change != m.change || s.view.Records[s.o.Shard].Term != s.Reign().Term() || s.view.Records[m.To].Term != m.term {
		return p, false // the view is older or newer than the proposal's
	}
	if m.asked != 0 && s.now-m.asked < movePropose && m.askedOf == s.view.Revision {
		return p, false
	}
	m.asked, m.askedOf = s.now, s.view.Revision
	return CircleProposal{s.view, m.Pair}, true
}

// tidyUp drops the content that belongs to other shards.
func (s *Shard) tidyUp() bool {
	if s.tidy == nil {
		if s.tidied == s.view.Changed+1 {
			return false
		}
		s.tidied = s.view.Changed + 1
		s.tidy = s.newWalk(s.unowned())
	}
	if s.tidy.done() || s.o.Log.Waits() || s.closed() || s.o.Store != nil && s.o.Store.Backlog() > maxBacklog {
		return false
	}
	return s.dropNext(s.tidy)
}
