package mvcc

import (
	"sync"
	"sync/atomic"
)

// line is the commits that wait for room within the bound, in the order in which they came. Whoever gives pages back, or raises the bound, calls the first of
// them: as many as it has room for. Who is called looks for itself, as a commit that has just come may have taken the room; then it stands in front again.
//
// Invariants:
//
//  1. No wakeup is lost: who comes stands in line before it looks for room, and who makes room looks at the line behind that.
//  2. No more are called than there is room for: the pages of those that have been called and have not looked yet count as taken.
//  3. Who leaves without having looked, as its transaction is cancelled, has the room that it was called for offered to the next.
type line struct {
	waiting atomic.Int32 // places
	mu      sync.Mutex   // guards the rest, and the links of places; the store's map of space is looked at below it
	first   *place
	last    *place
	called  int64 // pages, for which places have been called that have not left
}

// place is that of one commit.
type place struct {
	pages      int64
	call       chan struct{} // room for one
	in         bool          // in the line, else it was called
	prev, next *place
}

func newPlace(pages int64) *place { return &place{pages: pages, call: make(chan struct{}, 1)} }

// join has a place stand in line: behind all others, or in front where it was called in vain.
func (l *line) join(p *place, front bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting.Add(1)
	p.in = true
	switch {
	case l.first == nil:
		l.first, l.last = p, p
	case front:
		p.next, l.first.prev, l.first = l.first, p, p
	default:
		p.prev, l.last.next, l.last = l.last, p, p
	}
}

// leave has a place leave the line, and reports whether it was called.
func (l *line) leave(p *place) (called bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.in {
		l.remove(p)
		return false
	}
	l.called -= p.pages
	select {
	case <-p.call:
	default:
	}
	return true
}

// remove takes a place out of the line.
func (l *line) remove(p *place) {
	if p.prev == nil {
		l.first = p.next
	} else {
		p.prev.next = p.next
	}
	if p.next == nil {
		l.last = p.prev
	} else {
		p.next.prev = p.prev
	}
	p.in, p.prev, p.next = false, nil, nil
	l.waiting.Add(-1)
}

// serve calls the first places as long as what they want fits with all that was called before.
func (l *line) serve(fits func(pages int64) bool) {
	if l.waiting.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := l.first; p != nil && fits(l.called+p.pages); p = l.first {
		l.remove(p)
		l.called += p.pages
		p.call <- struct{}{}
	}
}

// wants returns the pages of the first place, 0 if there is none.
func (l *line) wants() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == nil {
		return 0
	}
	return l.first.pages
}
