package wire

import "flashdbm/servers/fabric/words"

// Positions in a ring count bytes from the connection's beginning and never wrap; the place is the position modulo
// RingSize. A frame lies within one lap. If fewer than minFrame bytes are left of a lap, the next frame begins the
// next lap; if more are left, but too few for the frame, a skip frame fills them.

// sender is the sending end of a ring. It builds frames in a mirror, at the same places as in the peer's ring.
type sender struct {
	mirror    []byte
	salt      uint64
	number    uint64 // number of the next frame
	head      uint64 // position of the next frame
	flushed   uint64 // bytes before it have been posted
	completed uint64 // bytes before it have been posted and have completed
	credited  uint64 // bytes before it have been consumed by the peer
	skip      uint64 // bytes left of the lap in front of the frame under construction
}

// begin returns the memory for a frame whose body has at most n bytes, nil if there is no room.
func (s *sender) begin(n int) []byte {
	size := uint64(frameSize(n))
	rem := RingSize - s.head%RingSize
	s.skip = 0
	if rem < size {
		s.skip = rem
	}
	// Invariant 2 of the package: bytes are reused only after they have been both credited and completed.
	free := RingSize - (s.head - min(s.credited, s.completed))
	if s.skip+size > free {
		return nil
	}
	at := (s.head + s.skip) % RingSize
	return s.mirror[at : at+size : at+size]
}

// end makes a frame of the n bytes of body in the memory that begin has returned.
func (s *sender) end(h *Header, n int, credit uint32) {
	if s.skip >= minFrame {
		at := s.head % RingSize
		seal(s.mirror[at:], &Header{Op: opSkip}, 0, s.number, credit, s.salt)
		s.number++
	}
	s.head += s.skip
	at := s.head % RingSize
	s.head += uint64(len(seal(s.mirror[at:], h, n, s.number, credit, s.salt)))
	s.number++
}

// segment returns the place and length of the next Write: from the position from to the end of the lap, or to the
// head.
func (s *sender) segment(from uint64) (at, n uint64) {
	at = from % RingSize
	return at, min(s.head-from, RingSize-at)
}

// credit takes the low bits of the peer's consumed position, from a frame or the control area. An older position has
// no effect; credit returns false for a position that the peer cannot have reached yet.
func (s *sender) credit(low uint32) bool {
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

// receiver is the receiving end: the ring itself, which the peer may write at any time.
type receiver struct {
	ring   []byte
	salt   uint64
	number uint64 // number of the next frame
	tail   uint64 // bytes before it have been consumed
}

// arrived reports whether the next frame's indicator is there.
func (r *receiver) arrived() bool {
	at := r.tail % RingSize
	if RingSize-at < minFrame {
		at = 0
	}
	return words.LoadLE(r.ring, int(at)+8) == r.number
}

// take returns the next frame if it is there, copied to scratch, which has maxFrame bytes. suspect is true if the
// indicator is there and the frame is invalid: the remainder is still on its way, or never comes.
func (r *receiver) take(scratch []byte) (m Message, credit uint32, ok, suspect bool) {
	for {
		at := r.tail % RingSize
		skipped := uint64(0)
		if rem := RingSize - at; rem < minFrame {
			at, skipped = 0, rem
		}
		if words.LoadLE(r.ring, int(at)+8) != r.number {
			return m, 0, false, false
		}
		size := uint64(uint32(words.LoadLE(r.ring, int(at))))
		if size > MaxInline {
			return m, 0, false, true
		}
		n := uint64(frameSize(int(size)))
		if at+n > RingSize {
			return m, 0, false, true
		}
		// From here on only the copy is used: the peer may write to the ring between any two reads of
		// it.
		words.Read(scratch[:n], r.ring[at:at+n])
		m, credit, ok = unseal(scratch[:n], r.number, r.salt)
		if !ok {
			return m, 0, false, true
		}
		r.number++
		r.tail += skipped + n
		if m.Op != opSkip {
			return m, credit, true, false
		}
		r.tail += RingSize - (at + n)
	}
}
