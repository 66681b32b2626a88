package space

import "sync/atomic"

// credit is pages that are reserved ahead for small reservations, as those of commits of a few records: such a reservation takes pages from the
// credit by one atomic operation in 19 ns, where Reserve without it takes the mutex and a look at the whole file in 70 ns.
//
// Invariants:
//
//  1. Whatever is in the credit is promised: Reservations.reserved contains it. So the pages are there, as they were when the credit got them.
//  2. Only a file that may grow, on a device with room, has a credit, and only of pages that it has beside all that a put leaves.
//  3. Nothing is decided by the credit: whoever looks at what is promised empties the credit first, and so does whoever finds that the device
//     has run short.
//
// Any goroutine takes pages from the credit. Everything else happens under the mutex.
type credit struct{ pages atomic.Int64 }

const (
	creditPages = 256 // for some 32 commits
	creditShare = 32  // divisor of the credit: a reservation of more than this share of it takes nothing from it
)

// take reports whether it took the pages: their promise is the caller's now. A reservation of no pages asks whether all that is promised is
// there, which the credit cannot tell.
func (c *credit) take(pages int64) bool {
	for have := c.pages.Load(); 0 < pages && pages <= min(have, creditPages/creditShare); have = c.pages.Load() {
		if c.pages.CompareAndSwap(have, have-pages) {
			return true
		}
	}
	return false
}

// lend fills the empty credit, if the file has the pages to spare.
func (sp *Reservations) lend() {
	if !sp.limited && !sp.short && sp.missing(creditPages, 0, ForWrites) <= 0 {
		sp.reserved += creditPages
		sp.credit.pages.Store(creditPages)
	}
}

// takeBack empties the credit.
func (sp *Reservations) takeBack() { sp.reserved -= sp.credit.pages.Swap(0) }

// promised takes the credit back and returns the pages that are promised to somebody.
func (sp *Reservations) promised() int64 {
	sp.takeBack()
	return sp.reserved
}
