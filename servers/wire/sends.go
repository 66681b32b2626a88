package wire

import (
	"fmt"

	"flashdbm/servers/fabric"
)

// sends is the carrier that the papers compare rings with: a frame per Send, which a Recv of the peer takes. Frames are the same as in a
// ring. Credit counts frames that the peer has taken out, hence posted Recvs for.
type sends struct {
	c     *link
	place fabric.Region // of Recvs
	stage fabric.Region // of Sends

	number, head, flushed, completed, credited uint64 // frames
	salt                                       uint64

	inNumber, inSalt uint64
	consumed, told   uint64
	come             []recvDone // in order
	building         uint64
}

type recvDone struct {
	place int
	size  uint32
}

const (
	sendWindow = 32 // messages of a connection and direction under way
	// sendExtra is room for frames that carry nothing but credit: one is sent for each half window that was taken, and before a third
	// one is due the peer has taken the first.
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
	if n == 0 { // there is never more than one per place
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
	s.told = s.consumed
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
	if s.consumed-s.told >= sendWindow/2 && s.beginUpTo(0, sendSlots) != nil {
		s.end(&Header{Op: opCredit}, 0)
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

// sent is called when the oldest post has completed.
func (s *sends) sent() {
	c := s.c
	s.completed = c.posts[0]
	c.posts = c.posts[:copy(c.posts, c.posts[1:])]
	if s.flushed != s.head {
		c.g.mark(c)
	}
}

func (s *sends) received(place int, size uint32) { s.come = append(s.come, recvDone{place, size}) }

func (s *sends) arrived() bool { return len(s.come) > 0 }

func (s *sends) take() (Message, bool) {
	if len(s.come) == 0 {
		return Message{}, false
	}
	r := s.come[0]
	s.come = s.come[:copy(s.come, s.come[1:])]
	if r.size > maxFrame {
		s.c.fail(fmt.Errorf("%w: a frame of %d bytes", ErrProtocol, r.size))
		return Message{}, false
	}
	frame := s.c.g.scratch[:copy(s.c.g.scratch, s.place.Bytes()[r.place*maxFrame:][:r.size])]
	m, credit, ok := unseal(frame, s.inNumber, s.inSalt)
	if !ok {
		s.c.fail(fmt.Errorf("%w: frame %d is damaged", ErrProtocol, s.inNumber))
		return Message{}, false
	}
	s.inNumber++
	s.consumed++
	s.post(r.place)
	s.c.takeCredit(credit)
	if s.consumed-s.told >= sendWindow/2 {
		s.c.g.mark(s.c)
	}
	return m, s.c.Err() == nil
}

func (s *sends) free() {
	s.place.Close()
	s.stage.Close()
}
