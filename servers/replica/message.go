package replica

import (
	"errors"
	"fmt"

	"flashdbm/servers/fabric"
)

// Kind is the kind of a message between a primary and a secondary.
type Kind uint8

// The kinds. The direction is in brackets: p is the primary, s the secondary.
const (
	KindOffer Kind = 1 + iota // (p to s) Term: follow this reign. Time: of the ask
	// KindAccept: (s to p) Term; Seq: newest entry, Pos: its term; Synced; Key: of the ring; Time as in the offer: a
	// grant
	KindAccept
	KindRefuse // (s to p) Term: the lowest that would be followed
	// KindStart: (p to s) Seq, Pos: the next entry is Seq+1, at this position; FlagCopy: forget everything else,
	// Body: Header
	KindStart
	KindAsk // (p to s) Term, Time: asks for progress
	// KindAnswer: (s to p) Term; Time: of the ask granted, 0 for none; Seq: merged; Pos: the ring is free before it;
	// Synced; Room; FlagWhole
	KindAnswer
	KindPiece // (p to s) Body: a part of a copy
	KindTaken // (s to p) the piece was taken
	KindMark  // (p to s) Seq: with this entry the copy is whole
)

// Flags of a message.
const (
	FlagCopy  uint8 = 1 << iota // in KindStart
	FlagWhole                   // in KindAnswer and KindAccept: the secondary has more than a part of a copy
)

// A Message is a message between primary and secondary outside the log.
type Message struct {
	Kind   Kind
	Flags  uint8
	Term   uint64
	Seq    uint64
	Pos    uint64
	Synced uint64
	Time   int64
	Room   uint64
	Key    fabric.Key
	Body   []byte
}

const messageHead = 96

// ErrMalformed reports a peer that breaks the protocol, for errors.Is.
var ErrMalformed = errors.New("replica: malformed")

// Size returns the number of bytes that Append appends.
func (m *Message) Size() int { return messageHead + len(m.Body) }

// Append appends the encoded message.
func (m *Message) Append(b []byte) []byte {
	b = append(b, byte(m.Kind), m.Flags, 0, 0, 0, 0, 0, 0)
	for _, w := range [...]uint64{m.Term, m.Seq, m.Pos, m.Synced, uint64(m.Time), m.Room, m.Key.ID, m.Key.Rkey, m.Key.Nonce, m.Key.Base, m.Key.Len} {
		b = le.AppendUint64(b, w)
	}
	return append(b, m.Body...)
}

// Parse decodes a message. Its body is a part of b.
func (m *Message) Parse(b []byte) error {
	if len(b) < messageHead {
		return fmt.Errorf("%w: a message of %d bytes", ErrMalformed, len(b))
	}
	w := func(i int) uint64 { return le.Uint64(b[8+8*i:]) }
	*m = Message{
		Kind: Kind(b[0]), Flags: b[1], Term: w(0), Seq: w(1), Pos: w(2), Synced: w(3), Time: int64(w(4)), Room: w(5),
		Key: fabric.Key{ID: w(6), Rkey: w(7), Nonce: w(8), Base: w(9), Len: w(10)}, Body: b[messageHead:],
	}
	return nil
}

// A Header begins a copy: the terms of all entries up to it, and the header of the state machine.
type Header struct {
	Terms []Term
	State []byte
}

func (h *Header) append(b []byte) []byte {
	b = le.AppendUint64(b, uint64(len(h.Terms)))
	for _, t := range h.Terms {
		b = le.AppendUint64(le.AppendUint64(b, t.Term), t.First)
	}
	return append(b, h.State...)
}

func (h *Header) parse(b []byte) error {
	if len(b) < 8 || le.Uint64(b) > maxTerms || uint64(len(b)-8) < 16*le.Uint64(b) {
		return fmt.Errorf("%w: the head of a copy, of %d bytes", ErrMalformed, len(b))
	}
	n := le.Uint64(b)
	b = b[8:]
	h.Terms = nil
	for range n {
		h.Terms = append(h.Terms, Term{le.Uint64(b), le.Uint64(b[8:])})
		b = b[16:]
	}
	h.State = b
	return nil
}

// A Link is a connection between a primary and a secondary. One thread uses it.
type Link interface {
	// Send sends a message, in order with others. Messages are lost only with the link.
	Send(m *Message)
	// Receive returns the next message, if there is one. Its body is valid until the next call.
	Receive() (m Message, ok bool)
	// Write posts a one-sided Write; fabric.ErrAgain if too many operations are under way. Written returns the number
	// of completions since the last call, in the order of the Writes.
	Write(local fabric.Region, off, n uint64, key fabric.Key, at uint64) error
	Written() (completed int)
	// Err returns why the link has ended, nil if it has not.
	Err() error
	Close()
}
