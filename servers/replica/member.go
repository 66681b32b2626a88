package replica

import (
	"errors"

	"flashdbm/servers/fabric"
)

// memberState is the state of the connection to a member.
type memberState uint8

const (
	apart   memberState = iota // no link
	offered                    // KindOffer has been sent
	blocked                    // the member needs a copy, and is still counted
	follows                    // entries go to the member's ring
)

// A member is a secondary, as its primary sees it.
type member struct {
	name      string
	link      Link
	state     memberState
	dialling  bool
	dialAfter int64
	since     int64 // when the primary first considered it

	key    fabric.Key // of its ring
	next   uint64     // the entry to post next
	head   uint64     // position of that entry
	posted []span     // Writes that have not completed
	begun  bool       // the member has answered since KindStart: it knows where entries begin in this ring
	placed uint64     // the newest entry of completed Writes
	merged uint64     // the newest entry that the member has merged, as reported
	synced uint64
	whole  bool
	room   uint64

	completed uint64 // position: Writes before it have completed
	credited  uint64 // position: the ring is free before it

	granted   int64 // the newest ask that it has granted, by the primary's clock; 0: none
	heard     int64 // when its last message arrived
	askedAt   int64
	askedSeq  uint64
	askedHead uint64
	leaves    bool // it needs a copy, and has to leave the set first
	copies    *copying
}

type span struct{ seq, end uint64 }

// copying is the state of a copy under way to a member.
type copying struct {
	behind uint64 // the entry at which the copy began
	from   uint64 // hash of the next piece
	under  bool   // a piece has been sent and not taken yet
	last   bool   // all pieces have been sent
	mark   uint64
}

// has returns the newest entry that the member has, as the mode defines it.
func (m *member) has(mode Mode) uint64 {
	switch mode {
	case Strict:
		return m.merged
	case Synced:
		return m.synced
	}
	if !m.begun {
		return m.merged // placed entries would not be found if the member were stopped now
	}
	return max(m.placed, m.merged)
}

// kept returns the newest entry that the member can no longer lose.
func (m *member) kept(mode Mode) uint64 {
	if mode == Synced {
		return m.synced
	}
	return m.merged
}

// Dial returns a member to which a link is needed, "" if there is none. The driver connects, and calls Attach or
// NoLink.
func (r *Reign) Dial() string {
	for _, m := range r.members {
		if m.link == nil && !m.dialling && r.now >= m.dialAfter && !r.over {
			m.dialling = true
			return m.name
		}
	}
	return ""
}

// NoLink says that the member cannot be reached now.
func (r *Reign) NoLink(name string) {
	if m := r.member(name); m != nil && m.link == nil {
		m.dialling, m.dialAfter = false, r.now+redialEvery
	}
}

// Attach gives the reign a link to a member.
func (r *Reign) Attach(name string, l Link) {
	m := r.member(name)
	if m == nil || r.over || m.link != nil {
		l.Close()
		return
	}
	m.dialling, m.link, m.state = false, l, offered
	l.Send(&Message{Kind: KindOffer, Term: r.term, Time: r.now})
}

func (r *Reign) disconnect(m *member) {
	if m.link != nil {
		m.link.Close()
	}
	if m.copies != nil {
		r.o.Source.ForgetPieces(m.name)
	}
	m.placed = 0 // later only the merged entries that it reports count, because it will have drained its ring
	m.link, m.state, m.copies, m.posted = nil, apart, nil, nil
	m.dialling, m.dialAfter = false, r.now+redialEvery
}

// listen handles the member's messages, and completed Writes.
func (r *Reign) listen(m *member) (worked bool) {
	if m.link == nil {
		return false
	}
	if m.state == follows {
		for range m.link.Written() {
			m.placed, m.completed = max(m.placed, m.posted[0].seq), m.posted[0].end
			m.posted = m.posted[1:]
			worked = true
		}
	}
	if m.link.Err() != nil {
		r.disconnect(m)
		return true
	}
	for m.link != nil {
		msg, ok := m.link.Receive()
		if !ok {
			break
		}
		worked = true
		r.hear(m, &msg)
	}
	if m.state == blocked && !r.counted(m.name) {
		worked = r.begin(m) || worked
	}
	return worked
}

func (r *Reign) hear(m *member, msg *Message) {
	m.heard = r.now
	switch {
	case msg.Kind == KindRefuse:
		// There is a later term, or a stop is in force. The record will show which.
		r.disconnect(m)
	case msg.Kind == KindAccept && m.state == offered && msg.Term == r.term:
		r.grant(m, msg.Time)
		r.accepted(m, msg)
	case msg.Kind == KindAnswer && msg.Term == r.term && m.state == follows:
		r.grant(m, msg.Time)
		if msg.Seq > r.log.Last() || msg.Seq < m.merged || msg.Pos < m.credited || msg.Pos >= m.head+minFrame {
			r.disconnect(m) // it breaks the protocol
			return
		}
		m.begun = true
		m.merged, m.credited = msg.Seq, min(msg.Pos, m.head) // the reader's position may be in the next lap already
		m.synced, m.room = max(m.synced, msg.Synced), msg.Room
		m.whole = msg.Flags&FlagWhole != 0
		if m.whole && m.copies != nil && m.copies.mark != 0 {
			r.o.Source.ForgetPieces(m.name)
			m.copies = nil
		}
	case msg.Kind == KindTaken && m.copies != nil && m.copies.under:
		m.copies.under = false
	default:
		r.disconnect(m)
	}
}

func (r *Reign) grant(m *member, asked int64) {
	if asked > r.ignore {
		m.granted = max(m.granted, asked)
	}
}

// accepted decides how the member is brought up to date: from the log, or by a copy (invariants 9 and 10).
func (r *Reign) accepted(m *member, msg *Message) {
	m.key = msg.Key
	if msg.Key.Len != uint64(len(r.log.mem)) {
		r.disconnect(m)
		return
	}
	m.whole = msg.Flags&FlagWhole != 0
	prefix := m.whole && msg.Seq <= r.log.seq && (msg.Seq == 0 || r.log.TermAt(msg.Seq) == msg.Pos && msg.Pos != 0)
	if at, ok := r.log.start(msg.Seq); prefix && ok {
		m.leaves = false
		m.merged, m.placed, m.synced = msg.Seq, msg.Seq, msg.Synced
		r.follow(m, msg.Seq, at)
		m.link.Send(&Message{Kind: KindStart, Seq: msg.Seq, Pos: at})
		return
	}
	m.leaves, m.state = true, blocked
}

// begin begins a copy, once the reign serves and the log has room. The member is not counted.
func (r *Reign) begin(m *member) bool {
	if r.log.Waits() || !r.serving {
		return false
	}
	seq := r.log.seq
	m.leaves = false
	m.merged, m.placed, m.synced, m.whole = seq, seq, 0, false
	m.copies = &copying{behind: seq}
	r.follow(m, seq, r.log.head)
	h := Header{Terms: r.log.terms, State: r.o.Source.Header()}
	m.link.Send(&Message{Kind: KindStart, Flags: FlagCopy, Seq: seq, Pos: r.log.head, Body: h.append(nil)})
	return true
}

// follow starts sending the entries after seq, from position at on.
func (r *Reign) follow(m *member, seq, at uint64) {
	m.state, m.next, m.head, m.posted, m.begun = follows, seq+1, at, nil, false
	m.completed, m.credited = at, at
	m.askedAt, m.askedSeq, m.askedHead = 0, seq, at
}

// postsAtOnce is the most Writes of entries under way to a member.
const postsAtOnce = 16

// post Writes entries to the member's ring, several with one Write.
func (r *Reign) post(m *member) (worked bool) {
	lap := uint64(len(r.log.mem))
	for m.state == follows && m.next <= r.log.seq && len(m.posted) < postsAtOnce {
		free := lap - (m.head - min(m.credited, m.completed))
		seq, size := m.next-1, uint64(0)
		for n := m.next; n <= r.log.seq; n++ { // as many as fit, up to the end of the lap
			end, ok := r.log.start(n)
			if !ok {
				r.disconnect(m) // the log no longer has the entries that the member needs
				return true
			}
			if (end-1)/lap != m.head/lap || end-m.head > free || size >= writeBytes {
				break
			}
			seq, size = n, end-m.head
		}
		rest := lap - m.head%lap
		if size == 0 {
			end, _ := r.log.start(m.next)
			if (end-1)/lap == m.head/lap || end-m.head > free {
				return worked // wait for credit
			}
			// The entry begins the next lap. A skip frame says so, if there is room for one.
			if rest < minFrame {
				m.head += rest
				continue
			}
			size = minFrame
		} else {
			rest = size
		}
		at := m.head % lap
		if err := m.link.Write(r.log.region, at, size, m.key, at); err != nil {
			if !errors.Is(err, fabric.ErrAgain) {
				r.disconnect(m)
			}
			return worked
		}
		m.posted = append(m.posted, span{seq, m.head + rest})
		m.next, m.head = seq+1, m.head+rest
		worked = true
	}
	return worked
}

// writeBytes is about the longest Write of several entries. Several Writes are under way at the same time.
const writeBytes = 256 << 10

// ask asks the member for its progress, if that is due.
func (r *Reign) ask(m *member) {
	if m.state != follows {
		return
	}
	least := uint64(askEntries)
	if r.o.Mode != Relaxed {
		least = 1 // a client waits for the answer
	}
	if r.now-m.askedAt < askEvery && m.next-1-m.askedSeq < least && m.head-m.askedHead < askBytes {
		return
	}
	m.askedAt, m.askedSeq, m.askedHead = r.now, m.next-1, m.head
	m.link.Send(&Message{Kind: KindAsk, Term: r.term, Time: r.now})
}

// copy sends the next piece of a copy.
func (r *Reign) copy(m *member) (worked bool) {
	c := m.copies
	if c == nil || c.under || c.mark != 0 || r.committed < c.behind || r.Closed() {
		return false
	}
	if c.last {
		c.mark = r.o.Source.Mark()
		m.link.Send(&Message{Kind: KindMark, Seq: c.mark})
		return true
	}
	body, next, last, ok := r.o.Source.Piece(m.name, c.behind, c.from)
	if !ok {
		return false
	}
	c.from, c.last, c.under = next, last, true
	m.link.Send(&Message{Kind: KindPiece, Body: body})
	return true
}
