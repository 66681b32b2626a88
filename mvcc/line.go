package mvcc

import (
	"sync"
	"sync/atomic"
)

// line has the commits that wait for room within the bound, in the order in which they came. A goroutine that gives
// pages back or raises the bound calls the first commits, as many as there is room for. A called commit looks for
// room itself, since a commit that has just come may have taken it; then it stands in front again.
//
// Invariants:
//
//  1. No wakeup is lost: a commit joins the line before it looks for room, and a goroutine that makes room looks at
//     the line after that.
//  2. No more commits are called than there is room for: the pages of commits that were called and have not looked
//     yet count as taken.
//  3. If a called commit leaves without having looked, because its transaction is cancelled, its room is offered to
//     the next one.
type line struct {
	waiting atomic.Int32 // number of places in the line
	mu      sync.Mutex   // guards the fields below, and the links of places; taken before the lock of the store's space map
	first   *place
	last    *place
	called  int64 // pages of the places that were called and have not left
}

// place is the place of one commit.
type place struct {
	pages      int64
	call       chan struct{} // tells the commit that it is called; room for one
	in         bool          // it is in the line; otherwise it was called
	prev, next *place
}

func newPlace(pages int64) *place { return &place{pages: pages, call: make(chan struct{}, 1)} }

// join adds a place to the line: at the end, or in front if it was called in vain.
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

// leave makes a place leave the line, and reports whether it was called.
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

// remove takes a place out of the line. The caller holds mu.
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

// serve calls the first places, as long as their pages fit together with all that were called before.
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
