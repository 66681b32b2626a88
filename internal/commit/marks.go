package commit

import (
	"sync"
	"sync/atomic"

	"flashdbm/internal/invariants"
)

// Marks remembers the group of each batch until the group is durable. Any number of goroutines may use it.
type Marks struct {
	mu      sync.Mutex
	pending []mark
}

type mark struct{ group, seq uint64 }

// Note records that all batches up to seq are in groups up to group. Groups and Seqs must ascend from call to call.
// Only the leader calls it.
func (m *Marks) Note(group, seq uint64) {
	m.mu.Lock()
	if n := len(m.pending); n > 0 {
		invariants.Check(group >= m.pending[n-1].group && seq >= m.pending[n-1].seq, "batches are noted out of order")
	}
	if n := len(m.pending); n > 0 && m.pending[n-1].group == group {
		m.pending[n-1].seq = seq
	} else {
		m.pending = append(m.pending, mark{group, seq})
	}
	m.mu.Unlock()
}

// Publish is called when all groups up to the given one are durable. It moves the watermark durable to the newest batch
// in these groups. Goroutines may call Publish in any order; the watermark never moves back, because it is moved while
// the lock is held.
func (m *Marks) Publish(group uint64, durable *atomic.Uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for n < len(m.pending) && m.pending[n].group <= group {
		n++
	}
	if n > 0 {
		invariants.Check(m.pending[n-1].seq >= durable.Load(), "the watermark of durable commits moves back")
		durable.Store(m.pending[n-1].seq)
		m.pending = append(m.pending[:0], m.pending[n:]...)
	}
}
