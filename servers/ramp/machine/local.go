package machine

import (
	"flashdbm/servers/ramp/partition"
	"flashdbm/servers/ramp/protocol"
)

// Goroutines of the node's process call partitions without messages (ramp.Local). The goroutine that serves the
// partition calls done and each; they take no lock that is held during a call.

// Prepare serves a PREPARE; see partition.Partition.
func (n *Node) Prepare(number uint32, q *protocol.Prepare, flags protocol.Flags, done func(protocol.Status, protocol.Timestamp)) {
	if !n.partitions[number].call(func(p *partition.Partition) { p.Prepare(q, flags, done) }) {
		done(protocol.StatusUnavailable, 0)
	}
}

// Commit serves a COMMIT.
func (n *Node) Commit(number uint32, d protocol.Transaction, done func(protocol.Status)) {
	if !n.partitions[number].call(func(p *partition.Partition) { p.Commit(d, done) }) {
		done(protocol.StatusUnavailable)
	}
}

// Finished says that all partitions of a transaction have answered COMMIT.
func (n *Node) Finished(number uint32, d protocol.Transaction) {
	if n.o.Durability != partition.Memory {
		return // the partitions tell each other, once their files have it
	}
	r := n.partitions[number]
	r.own.Lock()
	defer r.own.Unlock()
	if !r.stopped.Load() && r.alone != nil {
		r.alone.Finished(d)
	}
}

// Abort serves an ABORT.
func (n *Node) Abort(number uint32, d protocol.Transaction, done func(protocol.Status)) {
	if !n.partitions[number].call(func(p *partition.Partition) { p.Abort(d, done) }) {
		done(protocol.StatusUnavailable)
	}
}

// Get serves a GET.
func (n *Node) Get(number uint32, q *protocol.Get, flags protocol.Flags, each func(i int, v *protocol.Version), done func(protocol.Status)) {
	if !n.partitions[number].call(func(p *partition.Partition) { p.Get(q, flags, each, done) }) {
		done(protocol.StatusUnavailable)
	}
}
