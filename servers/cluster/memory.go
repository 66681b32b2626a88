package cluster

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"time"
)

// keptChanges is how many changes a watch may lag behind. A change takes some hundred bytes. With fewer, a watch that
// lags is closed sooner, and its caller lists again.
const keptChanges = 4096

// Memory is a Cluster inside this process. Its sessions live until they are closed.
type Memory struct {
	mu       sync.Mutex // guards the fields below
	revision uint64
	values   map[string]Value
	changes  []Value // the newest changes
	changed  chan struct{}
	queues   map[string][]*memorySession // of elections, the leader first
	closed   bool
}

var _ Cluster = (*Memory)(nil)

// NewMemory returns an empty cluster.
func NewMemory() *Memory {
	return &Memory{values: map[string]Value{}, queues: map[string][]*memorySession{}, changed: make(chan struct{})}
}

// set makes one change. The caller holds the lock.
func (m *Memory) set(name string, data []byte) uint64 {
	m.revision++
	v := Value{name, bytes.Clone(data), m.revision}
	if data == nil {
		delete(m.values, name)
	} else {
		m.values[name] = v
	}
	if m.changes = append(m.changes, v); len(m.changes) > 2*keptChanges {
		m.changes = slices.Clone(m.changes[keptChanges:])
	}
	m.tell()
	return m.revision
}

// tell wakes every goroutine that waits for a change. The caller holds the lock.
func (m *Memory) tell() {
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *Memory) err(ctx context.Context) error {
	if m.closed {
		return ErrClosed
	}
	return ctx.Err()
}

// Get implements Cluster.
func (m *Memory) Get(ctx context.Context, name string) (Value, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.values[name]
	return Value{name, bytes.Clone(v.Data), v.Revision}, m.err(ctx)
}

// List implements Cluster.
func (m *Memory) List(ctx context.Context, prefix string) (list []Value, revision uint64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, v := range m.values {
		if strings.HasPrefix(name, prefix) {
			list = append(list, Value{name, bytes.Clone(v.Data), v.Revision})
		}
	}
	slices.SortFunc(list, func(a, b Value) int { return strings.Compare(a.Name, b.Name) })
	return list, m.revision, m.err(ctx)
}

// CompareAndSet implements Cluster.
func (m *Memory) CompareAndSet(ctx context.Context, name string, revision uint64, data []byte, others ...Value) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.err(ctx); err != nil {
		return 0, err
	}
	for _, v := range append([]Value{{Name: name, Revision: revision}}, others...) {
		if m.values[v.Name].Revision != v.Revision {
			return 0, ErrChanged
		}
	}
	return m.set(name, data), nil
}

// Watch implements Cluster.
func (m *Memory) Watch(ctx context.Context, prefix string, behind uint64) <-chan Value {
	out := make(chan Value)
	go func() {
		defer close(out)
		for {
			m.mu.Lock()
			n := m.revision - min(behind, m.revision)
			known, more := !m.closed && n <= uint64(len(m.changes)), m.changed
			var news []Value
			if known {
				news = slices.Clone(m.changes[uint64(len(m.changes))-n:])
			}
			behind += n
			m.mu.Unlock()
			if !known {
				return
			}
			for _, v := range news {
				if !strings.HasPrefix(v.Name, prefix) {
					continue
				}
				select {
				case out <- Value{v.Name, bytes.Clone(v.Data), v.Revision}:
				case <-ctx.Done():
					return
				}
			}
			select {
			case <-more:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// Close ends all watches; calls after it fail.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.tell()
	return nil
}

type memorySession struct {
	m     *Memory
	done  chan struct{}
	ended bool            // guarded by the cluster's lock, as is bound
	bound map[string]bool // names
}

// Session implements Cluster.
func (m *Memory) Session(ctx context.Context, _ time.Duration) (Session, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &memorySession{m: m, done: make(chan struct{}), bound: map[string]bool{}}, m.err(ctx)
}

func (s *memorySession) Done() <-chan struct{} { return s.done }

func (s *memorySession) err(ctx context.Context) error {
	if s.ended {
		return ErrSession
	}
	return s.m.err(ctx)
}

func (s *memorySession) Put(ctx context.Context, name string, data []byte) (uint64, error) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if err := s.err(ctx); err != nil {
		return 0, err
	}
	return s.set(name, data), nil
}

func (s *memorySession) set(name string, data []byte) uint64 {
	s.bound[name] = true
	return s.m.set(name, append([]byte{}, data...))
}

func (s *memorySession) Campaign(ctx context.Context, election string, data []byte) error {
	m := s.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := s.err(ctx); err != nil {
		return err
	}
	if !slices.Contains(m.queues[election], s) {
		m.queues[election] = append(m.queues[election], s)
	}
	for m.queues[election][0] != s {
		more := m.changed
		m.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
		case <-s.done:
		}
		m.mu.Lock()
		if err := s.err(ctx); err != nil {
			m.leave(s, election)
			return err
		}
	}
	s.set(election, data)
	return nil
}

// leave removes the session from the election. The caller holds the lock.
func (m *Memory) leave(s *memorySession, election string) {
	i := slices.Index(m.queues[election], s)
	if i < 0 {
		return
	}
	m.queues[election] = slices.Delete(m.queues[election], i, i+1)
	if i == 0 {
		delete(s.bound, election)
		m.set(election, nil)
	}
}

func (s *memorySession) Resign(ctx context.Context, election string) error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if err := s.err(ctx); err != nil {
		return err
	}
	s.m.leave(s, election)
	return nil
}

func (s *memorySession) Close() error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if s.ended {
		return nil
	}
	s.ended = true
	close(s.done)
	for election := range s.m.queues {
		s.m.leave(s, election)
	}
	for name := range s.bound {
		s.m.set(name, nil)
	}
	return nil
}
