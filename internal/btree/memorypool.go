package btree

import "sync"

// A MemoryPool keeps the mapped memory of closed Memories for new ones. It is for tests that open thousands of
// small databases one after the other: to get memory from the system takes longer than all work with those
// databases. Any number of goroutines may use it.
type MemoryPool struct {
	mu   sync.Mutex // guards idle
	idle []*Memory
}

// NewMemory returns a Memory that holds nothing, with the mapped memory of a closed one if there is any. With a nil
// pool the memory is returned to the system at Close.
func (p *MemoryPool) NewMemory() *Memory {
	if p == nil {
		return NewMemory()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle)
	if n == 0 {
		return &Memory{pool: p}
	}
	m := p.idle[n-1]
	p.idle = p.idle[:n-1]
	return m
}

// put adds the mapped memory of m to the pool. The blocks of m must no longer be
// in use.
func (p *MemoryPool) put(m *Memory) {
	next := &Memory{pool: p, slabs: m.slabs, unmaps: m.unmaps, poison: m.poison, onHeap: m.onHeap}
	for i := len(m.slabs) - 1; i >= 0; i-- {
		s := m.slabs[i]
		*s = slab{base: s.base, bytes: s.bytes, index: s.index, free: noBlock}
		next.empty = append(next.empty, s)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, next)
}
