// Package wire carries messages between two processes over a fabric: framing, rings, credits, large bodies, and how
// an idle thread sleeps without missing a message. The layouts are in servers/docs/wire.md.
//
// A Group belongs to one thread: a fabric queue, and the connections that report completions to it. A Conn carries
// messages both ways, many under way at a time. It uses one of two carriers: rings that the peer Writes to
// (CarrierRing), or Sends (CarrierSend), with which the papers compare rings. Over package tcp a Send is a message on
// a plain socket.
//
// # Invariants
//
//  1. Receive returns messages that the peer has sent: whole, once each, and in order. A ring is memory that the peer
//     may change at any time, so Receive reads the indicator, checks the size, copies the frame out, and only then
//     compares the hash and parses the copy. The hash is seeded with the message's number and with the ring's salt,
//     which only the two ends know. So neither an old message, nor half of a new one, nor a user's bytes that look
//     like a message are taken for a message.
//  2. A sender overwrites a place of the peer's ring only when the peer has consumed the old frame (the credit) and
//     the sender's own last Write to the place has completed. The credit alone is not enough: a provider may repeat
//     the words of a Write until it completes.
//  3. A word of the peer's control area is overwritten only when its last Write has completed.
//  4. No wake-up is lost. Before a thread sleeps, it has given each peer an armed number that the peer has not used;
//     when a peer has used its number, the thread writes the next one. The thread sleeps while these Writes are under
//     way: their completions end the sleep, and the thread polls once more after them. A sender reads the armed
//     number after its message's Write has completed, and notifies once for each new number, by a Write of the
//     number. So either the receiver's last poll finds the message, or the sender finds the number. Only the peer's
//     Write shows that a number has been used: a message received since does not show it, because the peer may read
//     the number late. A thread that polled until its Writes had completed would take the processor from the peer
//     that has to complete them.
//  5. Data that a hostile peer writes costs this end no more than the rings, one body, and the connection.
//  6. Information that a sender waits for never queues behind messages that its caller does not receive. Credit,
//     and the numbers of large bodies that have been Read, travel in the control area (CarrierRing), or in frames
//     that the receiving end takes out on arrival (CarrierSend). So a caller may refrain from receiving until it
//     can send, which is how a server bounds what it owes, and both ends make progress if the other end receives.
package wire

import "errors"

// Sizes in bytes.
const (
	RingSize  = 64 << 10 // a ring; there is one for each connection and direction
	MaxInline = 16 << 10 // the longest body that travels in the ring; longer ones are Read from the sender
	MaxBody   = 4<<20 + 128<<10
)

// The errors of connections, for errors.Is. Errors of package fabric occur, too.
var (
	ErrAgain    = errors.New("wire: no room until the peer has taken what it has")
	ErrTooLong  = errors.New("wire: body too long")
	ErrProtocol = errors.New("wire: the peer breaks the protocol")
	ErrClosed   = errors.New("wire: connection is closed")
)
