package hydra

import "flashdbm/servers/hydra/protocol"

// numbers assigns numbers to writes, and tracks the oldest number that is not settled: neither answered, nor given up
// for ever.
//
// Invariant: every unsettled number from oldest up to next is less than Window above oldest, and no number below
// oldest is ever sent again.
type numbers struct {
	next, oldest uint64
	settled      [protocol.Window]bool // by number % Window, for oldest <= number < next
}

func newNumbers() numbers { return numbers{next: 1, oldest: 1} }

// take returns a new number, false if the oldest has to be settled first.
func (n *numbers) take() (uint64, bool) {
	if n.next-n.oldest >= protocol.Window {
		return 0, false
	}
	n.settled[n.next%protocol.Window] = false
	n.next++
	return n.next - 1, true
}

// settle records that a number will not be sent again.
func (n *numbers) settle(number uint64) {
	if number < n.oldest {
		return
	}
	n.settled[number%protocol.Window] = true
	for n.oldest < n.next && n.settled[n.oldest%protocol.Window] {
		n.oldest++
	}
}
