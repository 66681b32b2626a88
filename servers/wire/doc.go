// Package wire carries messages between two processes over a fabric: framing, rings, credits, large bodies, and how a thread that has
// nothing to do sleeps without missing a message. The layouts are in servers/docs/wire.md.
//
// A Group is what one thread has: a fabric queue, and the connections whose completions it reports. A Conn carries messages both ways,
// many under way at a time. It uses one of two carriers: rings that the peer Writes to (CarrierRing), or Sends (CarrierSend), which the
// papers compare rings with; over package tcp a Send is a message on a plain socket.
//
// # Invariants
//
//  1. What Receive returns is a message that the peer has sent, whole, once, and in order. A ring is memory that the peer may change at any
//     time, so Receive looks at the indicator, checks the size, copies the frame out, and only then compares the hash and parses the
//     copy. The hash is seeded with the message's number and with the ring's salt, which only the two ends know: neither an old
//     message, nor half of a new one, nor bytes of a user that look like a message pass for one.
//  2. A sender writes a place of the peer's ring again only when the peer has consumed what was there (the credit) and its own last Write
//     to the place has completed. The credit alone is not enough: a provider may repeat the words of a Write until it completes.
//  3. A word of the peer's control area is written again only when its last Write has completed.
//  4. No wake-up is lost. Before a thread sleeps, each peer has an armed number from it that the peer has not used; where one is used
//     up, the thread writes the next. It sleeps while these Writes are under way: their completions end the sleep, and it polls once more
//     behind them. A sender looks at the armed
//     number after its message's Write has completed, and for each new number notifies once, by a Write of the number. So either the
//     receiver's last look finds the message, or the sender's look finds the number. Whether the number is used up is told by the
//     peer's Write alone: a message that was received since tells nothing, as the peer may have looked late. A thread that looked again
//     and again until the Writes had completed would take the processor from the peer that they wait for.
//  5. What a hostile peer writes costs this end no more than the rings, one body, and its connection.
//  6. What a sender waits for never stands behind messages that its caller does not receive. Credit, and which large bodies have been Read, are
//     told in the control area (CarrierRing), or by frames that are taken out when they come (CarrierSend). So a caller may receive
//     nothing until it can send, which is how a server keeps what it owes bounded, and both ends get on if the other one receives.
package wire

import "errors"

// Sizes in bytes.
const (
	RingSize  = 64 << 10 // of a ring; one per connection and direction
	MaxInline = 16 << 10 // of a body that travels in the ring; longer ones are Read from the sender
	MaxBody   = 4<<20 + 128<<10
)

// The errors of connections, for errors.Is. Those of the fabric come too.
var (
	ErrAgain    = errors.New("wire: no room until the peer has taken what it has")
	ErrTooLong  = errors.New("wire: body too long")
	ErrProtocol = errors.New("wire: the peer breaks the protocol")
	ErrClosed   = errors.New("wire: connection is closed")
)
