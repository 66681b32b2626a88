package hydra

import "flashdbm/servers/hydra/protocol"

// numbers gives writes their numbers, and knows the oldest one that is not settled: answered, or given up for ever.
//
// Invariant: every number from oldest up to next that is not settled is less than Window above oldest, and nothing below oldest is ever
// sent again.
type numbers struct {
	next, oldest uint64
	settled      [protocol.Window]bool // of number n at n % Window, for oldest <= n < next
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

// settle says that a number will not be sent again.
func (n *numbers) settle(number uint64) {
	if number < n.oldest {
		return
	}
	n.settled[number%protocol.Window] = true
	for n.oldest < n.next && n.settled[n.oldest%protocol.Window] {
		n.oldest++
	}
}
