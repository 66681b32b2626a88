package ledger

import (
	"sync/atomic"

	"flashdbm/servers/fabric"
)

// DefaultDepth is how many operations of an endpoint, and how many Recvs, are under way at most if its options do not say. 128 requests of
// 64 KiB fill a connection of 10 Gbit/s with a round trip of 6 ms.
const DefaultDepth = 128

// A Side is one of the two work queues of an endpoint, that of Read, Write and Send, or that of Recv. Its work completes in the order in
// which it was posted. The methods are called with
// the endpoint's lock held.
//
// An operation takes a place, and a slot of the queue, until its completion has been polled; without Signal, until that of a later one has
// been. This is how verbs count.
type Side struct {
	queue *Queue
	depth int64
	under atomic.Int64 // places taken: more under the endpoint's lock, fewer without

	work   []Work // a ring of what was posted and is not complete
	head   int
	open   int
	silent int64 // operations that are complete and have not told
}

// Work is a work request under way.
type Work struct {
	fabric.WR
	Inlined []byte // taken during Post, for Inline
}

// NewSide returns a side for depth operations, the default if that is 0, whose completions go to a queue.
func NewSide(q *Queue, depth int) *Side {
	if depth <= 0 {
		depth = DefaultDepth
	}
	return &Side{queue: q, depth: int64(depth)}
}

// Queue returns where completions go.
func (s *Side) Queue() *Queue { return s.queue }

// Take adds a work request at the end. It returns ErrAgain if the side or its queue is full.
func (s *Side) Take(w Work) error {
	if s.under.Load() >= s.depth || !s.queue.reserve() {
		return fabric.ErrAgain
	}
	s.under.Add(1)
	if s.open == len(s.work) {
		larger := make([]Work, min(max(8, 2*len(s.work)), int(s.depth)))
		n := copy(larger, s.work[s.head:])
		copy(larger[n:], s.work[:s.head])
		s.work, s.head = larger, 0
	}
	s.work[s.place(s.open)] = w
	s.open++
	return nil
}

func (s *Side) place(i int) int {
	if i += s.head; i >= len(s.work) {
		i -= len(s.work)
	}
	return i
}

// Open returns how many work requests are under way.
func (s *Side) Open() int { return s.open }

// At returns the i-th work request under way; 0 is the oldest. It is valid until that is complete, or one is added.
func (s *Side) At(i int) *Work { return &s.work[s.place(i)] }

func (s *Side) pop() {
	s.work[s.head] = Work{}
	s.head = s.place(1)
	s.open--
}

// Done completes the oldest work request, which has moved n bytes.
func (s *Side) Done(n uint64) {
	w := &s.work[s.head]
	c := completion{wc: fabric.WC{ID: w.ID, Op: w.Op, Len: uint32(n)}, side: s}
	tells := w.Flags&fabric.Signal != 0 || w.Op == fabric.Recv
	s.pop()
	if !tells {
		s.silent++
		return
	}
	c.frees = s.silent + 1
	s.silent = 0
	s.queue.push(c)
}

// End completes all work requests: the oldest one with an error, the others with ErrFlushed.
func (s *Side) End(err error) {
	for s.open > 0 {
		w := &s.work[s.head]
		c := completion{wc: fabric.WC{ID: w.ID, Op: w.Op, Err: err}, side: s, frees: s.silent + 1}
		s.silent = 0
		s.pop()
		s.queue.push(c)
		err = fabric.ErrFlushed
	}
	s.free(s.silent)
	s.silent = 0
}

// free gives back what n operations have taken.
func (s *Side) free(n int64) {
	s.under.Add(-n)
	s.queue.taken.Add(-n)
}
