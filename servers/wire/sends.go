package wire

import (
	"fmt"

	"flashdbm/servers/fabric"
)

// sends is the carrier with which the papers compare rings: each Send has one frame, which a Recv of the peer
// takes. Frames are the same as in a ring. Credit counts the frames that the peer has taken out, and so the Recvs
// that it has posted again. There is no control area, so control frames carry credit and the numbers of Read
// bodies; the receiving end takes them out on arrival, whether or not the caller receives (invariant 6 of the
// package).
type sends struct {
	c     *link
	place fabric.Region // for Recvs
	stage fabric.Region // for Sends

	number, head, flushed, completed, credited uint64 // count frames
	salt                                       uint64

	inNumber, inSalt uint64
	consumed, told   uint64
	controls         int        // control frames that were taken out since the peer was last told
	come             []recvDone // received messages, in order
}

type recvDone struct {
	place   int
	message Message // its body is in the place
}

const (
	sendWindow = 32 // most messages of a connection and direction under way
	// sendExtra is room for control frames. The peer takes them out on arrival and says so after half of them.
	sendExtra = 4
	sendSlots = sendWindow + sendExtra
)

func newSends(c *link) (*sends, error) {
	place, err := c.g.d.Alloc(sendSlots*maxFrame, 0)
	if err != nil {
		return nil, err
	}
	stage, err := c.g.d.Alloc(sendSlots*maxFrame, 0)
	if err != nil {
		place.Close()
		return nil, err
	}
	return &sends{c: c, place: place, stage: stage, number: 1, inNumber: 1}, nil
}

// start posts all Recvs.
func (s *sends) start() {
	for i := range sendSlots {
		s.post(i)
	}
}

func (s *sends) post(place int) {
	n, err := s.c.ep.Post([]fabric.WR{{
		ID: s.c.id | kindRecv | uint64(place), Op: fabric.Recv, Local: s.place, LOff: uint64(place * maxFrame), LLen: maxFrame,
	}})
	if n == 0 { // not because of a lack of room: there is one Recv for each place
		s.c.fail(fmt.Errorf("wire: a Recv: %w", err))
	}
}

func (s *sends) begin(n int) []byte { return s.beginUpTo(n, sendWindow) }

func (s *sends) beginUpTo(n int, window uint64) []byte {
	if s.head-s.credited >= window || s.head-s.completed >= sendSlots {
		return nil
	}
	at := int(s.head%sendSlots) * maxFrame
	return s.stage.Bytes()[at : at+frameSize(n)]
}

func (s *sends) end(h *Header, n int) {
	s.told, s.controls = s.consumed, 0
	at := int(s.head%sendSlots) * maxFrame
	seal(s.stage.Bytes()[at:], h, n, s.number, uint32(s.told), s.salt)
	s.number++
	s.head++
}

func (s *sends) credit(low uint32) bool {
	by := low - uint32(s.credited)
	if by == 0 || int32(by) < 0 {
		return true
	}
	if uint64(by) > s.flushed-s.credited {
		return false
	}
	s.credited += uint64(by)
	return true
}

func (s *sends) flush() {
	c := s.c
	if s.owes() && s.beginUpTo(0, sendSlots) != nil {
		c.bulk.told = c.bulk.landedLast
		s.end(&Header{Op: opCredit, Request: c.bulk.told}, 0)
	}
	if s.flushed == s.head || len(c.posts) == cap(c.posts) {
		return
	}
	var w [16]fabric.WR
	n := 0
	for f := s.flushed; f < s.head && n < len(w); f++ {
		at := int(f%sendSlots) * maxFrame
		size := frameSize(int(le.Uint32(s.stage.Bytes()[at:])))
		w[n] = fabric.WR{ID: c.id | kindFrames, Op: fabric.Send, Local: s.stage, LOff: uint64(at), LLen: uint64(size)}
		n++
	}
	w[n-1].Flags = fabric.Signal
	c.stats.Posts++
	taken, err := c.ep.Post(w[:n])
	s.flushed += uint64(taken)
	if taken == n {
		c.posts = append(c.posts, s.flushed)
		c.under++
	}
	if s.flushed < s.head {
		c.g.mark(c)
	}
	c.postError(err)
}

// sent handles the completion of the oldest post.
func (s *sends) sent() {
	c := s.c
	s.completed = c.posts[0]
	c.posts = c.posts[:copy(c.posts, c.posts[1:])]
	if s.flushed != s.head {
		c.g.mark(c)
	}
}

// owes reports whether this end has credit or numbers of Read bodies to send for which the
// peer may wait.
func (s *sends) owes() bool {
	return s.consumed-s.told >= sendWindow/2 || s.controls >= sendExtra/2 || s.c.bulk.landedLast != s.c.bulk.told
}

// received handles the frame of a completed Recv. Its memory is private until the Recv is posted again.
func (s *sends) received(place int, size uint32) {
	c := s.c
	if c.Err() != nil {
		return
	}
	if size > maxFrame {
		c.fail(fmt.Errorf("%w: a frame of %d bytes", ErrProtocol, size))
		return
	}
	m, credit, ok := unseal(s.place.Bytes()[place*maxFrame:][:size], s.inNumber, s.inSalt)
	if !ok {
		c.fail(fmt.Errorf("%w: frame %d is damaged", ErrProtocol, s.inNumber))
		return
	}
	s.inNumber++
	c.takeCredit(credit)
	if m.Op != opCredit {
		s.come = append(s.come, recvDone{place, m})
		return
	}
	c.bulk.release(c, m.Request)
	s.controls++
	s.taken(place)
}

// taken makes a place free for another frame.
func (s *sends) taken(place int) {
	s.consumed++
	s.post(place)
	if s.owes() {
		s.c.g.mark(s.c)
	}
}

func (s *sends) arrived() bool { return len(s.come) > 0 }

func (s *sends) take() (Message, bool) {
	if len(s.come) == 0 {
		return Message{}, false
	}
	r := s.come[0]
	s.come = s.come[:copy(s.come, s.come[1:])]
	m := r.message
	m.Body = s.c.g.scratch[:copy(s.c.g.scratch, m.Body)]
	s.taken(r.place)
	return m, s.c.Err() == nil
}

func (s *sends) free() {
	s.place.Close()
	s.stage.Close()
}
