package wire

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

var le = binary.LittleEndian

// Header has the fields of a message besides its body. Request relates an answer to its request; this package does
// not interpret it.
type Header struct {
	Op         uint8 // below OpReserved
	Flags      uint8 // below FlagReserved
	Status     uint16
	Request    uint64
	MapVersion uint32
}

// Message is what Receive returns.
type Message struct {
	Header
	Body []byte
	// Local is a request that was not encoded. Only a Line sets it, and defines its type.
	Local any
}

// OpReserved is the first op code reserved for this package, FlagReserved the reserved flag.
const (
	OpReserved   = 0xF0
	FlagReserved = 0x80
)

const (
	opSkip   = 0xFF // the remainder of the lap is not used
	opCredit = 0xFE // carries only credit and the number of the last body Read (Send carrier)
	flagBulk = 0x80 // the body is a bulk reference: the receiver Reads the message's body from the sender
)

// The frame of a message.
const (
	headSize  = 32
	tailSize  = 8
	minFrame  = headSize + tailSize
	maxFrame  = headSize + MaxInline + tailSize
	frameUnit = 8
)

// frameSize returns the size of a frame with a body of n bytes.
func frameSize(n int) int { return headSize + (n+frameUnit-1)&^(frameUnit-1) + tailSize }

// seal makes a frame around the n bytes of body at b[headSize:], and returns the frame.
func seal(b []byte, h *Header, n int, number uint64, credit uint32, salt uint64) []byte {
	size := frameSize(n)
	b = b[:size:size]
	le.PutUint32(b[0:], uint32(n))
	b[4], b[5] = h.Op, h.Flags
	le.PutUint16(b[6:], h.Status)
	le.PutUint64(b[8:], number)
	le.PutUint64(b[16:], h.Request)
	le.PutUint32(b[24:], credit)
	le.PutUint32(b[28:], h.MapVersion)
	clear(b[headSize+n : size-tailSize])
	le.PutUint64(b[size-tailSize:], xxh3.HashSeed(b[:size-tailSize], number^salt))
	return b
}

// unseal checks a private copy of a frame, and returns its message. The copy has the length that the reader computed
// from the size it read in the ring; the copy's own size, covered by the hash, has to give the same length.
func unseal(b []byte, number, salt uint64) (m Message, credit uint32, ok bool) {
	if len(b) < minFrame || le.Uint64(b[8:]) != number {
		return m, 0, false
	}
	n := le.Uint32(b)
	if n > MaxInline || frameSize(int(n)) != len(b) {
		return m, 0, false
	}
	end := len(b) - tailSize
	if le.Uint64(b[end:]) != xxh3.HashSeed(b[:end], number^salt) {
		return m, 0, false
	}
	m.Op, m.Flags, m.Status = b[4], b[5], le.Uint16(b[6:])
	m.Request, m.MapVersion = le.Uint64(b[16:]), le.Uint32(b[28:])
	m.Body = b[headSize : headSize+n : headSize+n]
	return m, le.Uint32(b[24:]), true
}
