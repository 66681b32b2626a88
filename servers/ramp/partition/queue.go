package partition

// A queue has work that is due at given times, in the order of times.
type queue[T any] struct {
	list []queued[T]
	head int
}

type queued[T any] struct {
	at   int64
	what T
}

// add adds work that is due no earlier than all work added before.
func (q *queue[T]) add(at int64, what T) { q.list = append(q.list, queued[T]{at, what}) }

// due returns when the first work is due, 0 if there is none.
func (q *queue[T]) due() int64 {
	if q.head == len(q.list) {
		return 0
	}
	return q.list[q.head].at
}

// next removes and returns the first work, if it is due.
func (q *queue[T]) next(now int64) (what T, ok bool) {
	if q.head == len(q.list) || q.list[q.head].at > now {
		return what, false
	}
	what = q.list[q.head].what
	q.list[q.head] = queued[T]{}
	if q.head++; q.head == len(q.list) {
		q.list, q.head = q.list[:0], 0
	} else if q.head > 1024 && q.head*2 > len(q.list) {
		q.list = append(q.list[:0:0], q.list[q.head:]...)
		q.head = 0
	}
	return what, true
}
