package wire

import (
	"encoding/binary"

	"flashdbm/servers/fabric/words"
)

// Positions in a ring count bytes from the connection's beginning and never wrap; the place is the position modulo RingSize. A frame
// lies within one lap. Where fewer than minFrame bytes are left of a lap, the next frame begins the next lap; where more are left, but
// not enough, a skip frame says so.

// sender is the sending end of a ring: where its frames are built, in the same places as in the peer's ring.
type sender struct {
	mirror    []byte
	salt      uint64
	number    uint64 // of the next frame
	head      uint64 // where the next frame goes
	flushed   uint64 // what precedes has been posted
	completed uint64 // what precedes has been posted and has completed
	credited  uint64 // what precedes has been consumed by the peer
	skip      uint64 // bytes before the frame that is being built, up to the end of the lap
}

// begin returns the memory for a frame whose body has at most n bytes, nil if there is no room.
func (s *sender) begin(n int) []byte {
	size := uint64(frameSize(n))
	rem := RingSize - s.head%RingSize
	s.skip = 0
	if rem < size {
		s.skip = rem
	}
	// Invariant 2 of the package: both have to be behind the bytes that are written again.
	free := RingSize - (s.head - min(s.credited, s.completed))
	if s.skip+size > free {
		return nil
	}
	at := (s.head + s.skip) % RingSize
	return s.mirror[at : at+size : at+size]
}

// end makes a frame of the n bytes of body that are in the memory that begin has returned.
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

// segment returns the place of the next bytes to post: those from s.flushed to the end of the lap, or to the head.
func (s *sender) segment(from uint64) (at, n uint64) {
	at = from % RingSize
	return at, min(s.head-from, RingSize-at)
}

// credit takes the low bits of the peer's position as a frame or the control area tells it. What is older than what is known changes
// nothing; what the peer cannot have consumed yet is false.
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

// receiver is the receiving end: the ring itself, which the peer writes to whenever it likes.
type receiver struct {
	ring   []byte
	salt   uint64
	number uint64 // of the next frame
	tail   uint64 // what precedes has been consumed
}

// arrived says whether the next frame's indicator is there.
func (r *receiver) arrived() bool {
	at := r.tail % RingSize
	if RingSize-at < minFrame {
		at = 0
	}
	return fromLE(words.Load(r.ring, int(at)+8)) == r.number
}

// take returns the next frame if it is there, copied to scratch, of maxFrame bytes. suspect is true if the indicator is there and the rest
// proves nothing: it is still on its way, or never will be.
func (r *receiver) take(scratch []byte) (m Message, credit uint32, ok, suspect bool) {
	for {
		at := r.tail % RingSize
		skipped := uint64(0)
		if rem := RingSize - at; rem < minFrame {
			at, skipped = 0, rem
		}
		if fromLE(words.Load(r.ring, int(at)+8)) != r.number {
			return m, 0, false, false
		}
		size := uint64(uint32(fromLE(words.Load(r.ring, int(at)))))
		if size > MaxInline {
			return m, 0, false, true
		}
		n := uint64(frameSize(int(size)))
		if at+n > RingSize {
			return m, 0, false, true
		}
		// From here on only the copy counts: the peer may write to the ring between any two looks.
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

// fromLE turns a word of memory into the number that its bytes are.
func fromLE(w uint64) uint64 {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], w)
	return le.Uint64(b[:])
}
