package wire

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

var le = binary.LittleEndian

// Header is what a message says beside its body. Request relates an answer to its request; it means nothing to this package.
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
	// Local is a request that did not travel: of a Line only, which says what it is.
	Local any
}

// OpReserved is the first op code that belongs to this package, FlagReserved the flag that does.
const (
	OpReserved   = 0xF0
	FlagReserved = 0x80
)

const (
	opSkip   = 0xFF // the rest of the ring up to its end is not used
	opCredit = 0xFE // has credit, and the number of the last body that was Read, and nothing else (Send carrier)
	flagBulk = 0x80 // the body is a bulk reference: the message's own is Read from the sender
)

// The frame of a message.
const (
	headSize  = 32
	tailSize  = 8
	minFrame  = headSize + tailSize
	maxFrame  = headSize + MaxInline + tailSize
	frameUnit = 8
)

// frameSize returns the bytes of a frame whose body has n.
func frameSize(n int) int { return headSize + (n+frameUnit-1)&^(frameUnit-1) + tailSize }

// seal makes a frame of the n bytes of body that are at b[headSize:]. It returns the frame.
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

// unseal checks a private copy of a frame, and returns what it carries. The copy has exactly the bytes that its size asks for, as far as
// the reader has looked; the frame's own words say it again, under the hash.
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
