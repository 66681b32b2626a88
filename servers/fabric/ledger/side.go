package ledger

import (
	"sync/atomic"

	"flashdbm/servers/fabric"
)

// DefaultDepth is the most operations of an endpoint under way, and the most Recvs posted, if its options do not say.
// 128 requests of 64 KiB fill a connection of 10 Gbit/s with a round trip of 6 ms.
const DefaultDepth = 128

// A Side is one of the two work queues of an endpoint: that of Read, Write and Send, or that of Recv. Its operations
// complete in the order in which they were posted. Callers hold the endpoint's lock.
//
// An operation holds a place of the side, and a slot of the queue, until its completion has been polled; without
// Signal, until the completion of a later operation has been polled. Verbs count in the same way.
type Side struct {
	queue *Queue
	depth int64
	under atomic.Int64 // places held: incremented while the endpoint's lock is held, decremented without it

	work   []Work // a ring of the operations that were posted and are not complete
	head   int
	open   int
	silent int64 // operations that completed without a completion; their places become free with the next one
}

// Work is a work request under way.
type Work struct {
	fabric.WR
	Inlined []byte // the bytes that Post has copied, for Inline
}

// NewSide returns a side for depth operations (0: DefaultDepth) whose completions go to q.
func NewSide(q *Queue, depth int) *Side {
	if depth <= 0 {
		depth = DefaultDepth
	}
	return &Side{queue: q, depth: int64(depth)}
}

// Queue returns the queue of the side's completions.
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

// Open returns the number of operations that are not complete.
func (s *Side) Open() int { return s.open }

// At returns the i-th operation that is not complete; 0 is the oldest. The pointer is valid until that operation
// completes or another is added.
func (s *Side) At(i int) *Work { return &s.work[s.place(i)] }

func (s *Side) pop() {
	s.work[s.head] = Work{}
	s.head = s.place(1)
	s.open--
}

// Done completes the oldest operation, which has moved n bytes.
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

// End completes all operations: the oldest one with err, the others with ErrFlushed.
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

// free returns n places of the side and n slots of the queue.
func (s *Side) free(n int64) {
	s.under.Add(-n)
	s.queue.taken.Add(-n)
}
