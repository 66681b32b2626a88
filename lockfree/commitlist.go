package lockfree

import (
	"slices"
	"sync/atomic"
)

// Node is one element of a [List], usually embedded in the object that it stands for. The caller fills in Value
// before Push; a field of Value that changes afterwards must be atomic. A node is pushed at most once, and
// never again after it was drained.
type Node[T any] struct {
	Value T

	// next is the older neighbour. The pusher writes it before the node is reachable; the consumer writes it
	// once more when it cuts the link.
	next atomic.Pointer[Node[T]]

	// number is one more than that of the node pushed before. The pusher writes it before the node is
	// reachable.
	number uint64

	// drained belongs to the consumer.
	drained bool
}

// Next returns the older neighbour of a pushed node, or nil where the list ends
// or was cut. Any goroutine may call it.
func (n *Node[T]) Next() *Node[T] { return n.next.Load() }

// Number returns the place of a pushed node in the order of pushes; the first
// one has 1. Any goroutine may call it.
func (n *Node[T]) Number() uint64 { return n.number }

// List is a push-only list. Any goroutine pushes at the head and walks from the head; one consumer at a time
// drains what was pushed, oldest first. The zero List is empty and ready. It must not be copied.
//
// Invariants:
//
//  1. The head never returns to an earlier value. It starts nil and is never
//     nil again: the newest node stays as sentinel after it was drained; nodes
//     are not pushed twice, and the collector does not reuse the memory of a
//     node that somebody still holds. So a Push that succeeds proves that
//     nothing was pushed since the caller loaded the head.
//  2. The nodes reachable from the head are in the order of their pushes,
//     newest first, up to the end or a cut.
//  3. Only links of drained nodes are cut, so the consumer reaches everything
//     not yet drained.
//
// # Resolving conflicts
//
// The list is made for transactions that must learn of every conflicting transaction ordered before them.
// Beside the list there is a side table, which holds for every key the sequence of its last commit. For each
// batch the consumer does, in this order:
//
//	(a) drains, and gives the nodes ascending sequences in the drained order;
//	(b) writes the sequences into the side table, older before newer;
//	(c) moves the watermark at which new snapshots begin to the batch's last;
//	(d) cuts.
//
// A transaction T with snapshot s repeats until it is aborted or pushed:
//
//	(e) h := Head();
//	(f) walks from h while nodes are newer than s (sequence unset or above s)
//	    and aborts if one of them conflicts;
//	(g) aborts if the side table has a sequence above s for one of its keys;
//	(h) Push(n, h).
//
// No conflict is missed. Let X be newer than s and pushed before T. As (h)
// succeeded, the head was h from (e) to (h) by invariant 1, so X is h or older
// than h. The walk (f) either visits X, or ends earlier, at a node Y newer than
// X, for one of two reasons. Y's sequence is at or below s: but X's is lower
// still, and X would not be newer than s. Or Y's link is nil, although X is
// older: then it was cut, after (b) for Y and all before it, hence for X; T
// saw the cut before (g), so at (g) it finds X's sequence or a later one in the
// table. This is why (g) follows (f), and why both are repeated after a failed
// Push: what the first walk would have found may have moved into the table.
//
// No conflict is invented: the sequences are set before (c), so a transaction
// whose snapshot includes X sees X's sequence and stops there.
//
// What a walk reads of a Value must not change while any goroutine can walk to the node. A resource in the
// Value of a node with sequence q may be reused once the horizon of a [Registry], in which all resolving
// transactions are registered at their snapshots, has reached q: the transactions that could have looked at the
// resource are gone, and later ones stop at q.
type List[T any] struct {
	_    [linePairBytes]byte
	head atomic.Pointer[Node[T]]
	_    [linePairBytes]byte

	// last is the newest drained node, nil before the first. It belongs to the consumer; what makes a goroutine
	// the only consumer also hands last over.
	last *Node[T]
}

// Head returns the newest node, nil if none was ever pushed. It may have been
// drained already. Any goroutine may call it.
func (l *List[T]) Head() *Node[T] { return l.head.Load() }

// Push makes n the newest node if the head is still seen, and reports whether it did. After a failure n is
// unchanged and may be pushed again. Any goroutine may call it; it neither blocks nor allocates.
func (l *List[T]) Push(n, seen *Node[T]) bool {
	if n == seen {
		panic("lockfree: node pushed twice")
	}
	n.next.Store(seen)
	if n.number = 1; seen != nil {
		n.number = seen.number + 1
	}
	return l.head.CompareAndSwap(seen, n)
}

// Drain appends to buf the nodes pushed since the last Drain, oldest first, and
// returns it. It allocates only if buf is too small. Consumer only.
func (l *List[T]) Drain(buf []*Node[T]) []*Node[T] {
	head, kept := l.head.Load(), len(buf)
	for n := head; n != l.last; n = n.next.Load() {
		if n == nil || n.drained {
			panic("lockfree: list broken: node pushed twice")
		}
		n.drained = true
		buf = append(buf, n)
	}
	l.last = head
	if len(buf) > kept+1 {
		slices.Reverse(buf[kept:])
	}
	return buf
}

// Drained returns the newest drained node, nil before the first. If the head is another node, there are nodes
// to drain. Consumer only.
func (l *List[T]) Drained() *Node[T] { return l.last }

// Undrain undoes the last Drain, which returned nodes, except for the given number of oldest nodes; at least
// one is kept. The next Drain returns the others again. Walks from the head see these as never drained, so the
// consumer must not give them sequences before that. Consumer only; nothing was drained or cut since the last
// Drain.
func (l *List[T]) Undrain(nodes []*Node[T], kept int) {
	if kept == 0 || nodes[len(nodes)-1] != l.last {
		panic("lockfree: undrained what was not drained last")
	}
	for _, n := range nodes[kept:] {
		n.drained = false
	}
	l.last = nodes[kept-1]
}

// Cut ends walks at upto: it cuts the links of upto and of all older nodes, so that a node that a caller holds
// keeps no other node in memory. upto must have been drained, and the commits of the cut nodes must be in the
// side table. Consumer only.
func (l *List[T]) Cut(upto *Node[T]) {
	if !upto.drained {
		panic("lockfree: cut of a node that was not drained")
	}
	// Ends where the previous Cut began, so each link is cut once.
	for n := upto; n != nil; {
		older := n.next.Load()
		if older != nil {
			n.next.Store(nil)
		}
		n = older
	}
}
