package partition

// A queue has work that is due at given times, in the order of times. It may be long: its blocks are not copied when it
// grows.
type queue[T any] struct {
	blocks []*[queueBlock]queued[T]
	first  int // the first work, in the first block
	last   int // the end of all work, in the last block
}

const queueBlock = 256

type queued[T any] struct {
	at   int64
	what T
}

// add adds work that is due no earlier than all work added before.
func (q *queue[T]) add(at int64, what T) {
	if len(q.blocks) == 0 || q.last == queueBlock {
		q.blocks, q.last = append(q.blocks, new([queueBlock]queued[T])), 0
	}
	q.blocks[len(q.blocks)-1][q.last] = queued[T]{at, what}
	q.last++
}

// empty reports whether there is no work. An empty queue has at most one block.
func (q *queue[T]) empty() bool { return len(q.blocks) == 0 || len(q.blocks) == 1 && q.first == q.last }

// due returns when the first work is due, 0 if there is none.
func (q *queue[T]) due() int64 {
	if q.empty() {
		return 0
	}
	return q.blocks[0][q.first].at
}

// next removes and returns the first work, if it is due.
func (q *queue[T]) next(now int64) (what T, ok bool) {
	if q.empty() || q.blocks[0][q.first].at > now {
		return what, false
	}
	w := &q.blocks[0][q.first]
	what = w.what
	*w = queued[T]{}
	q.first++
	switch {
	case len(q.blocks) == 1 && q.first == q.last:
		q.first, q.last = 0, 0
	case q.first == queueBlock:
		q.blocks[0] = nil
		q.blocks, q.first = q.blocks[1:], 0
	}
	return what, true
}
