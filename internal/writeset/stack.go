package writeset

import "bytes"

// stack merges cursors. If several sources have a key, it shows the record of the first one. It is a Cursor
// that also stops at deletes (Layered skips them).
//
// Invariants, while it is on a record: heap has the sources that are on a record, each on its first record at or
// after key in the direction of the last move. The top of heap is the first of the sources that are on key itself.
type stack struct {
	sources []Cursor // newest first
	keys    [][]byte // present keys of the sources in heap
	heap    []int32
	key     []byte
	at      whereabouts
	back    bool
	err     error

	// shadowed, if set, is called when a move passes a record that a newer one hides.
	shadowed func(source int)
}

func newStack(sources []Cursor) *stack {
	return &stack{sources: sources, keys: make([][]byte, len(sources)), heap: make([]int32, 0, len(sources))}
}

// winner returns the source of the present record.
func (s *stack) winner() int { return int(s.heap[0]) }

// before reports whether source a is before source b in heap order.
func (s *stack) before(a, b int32) bool {
	order := bytes.Compare(s.keys[a], s.keys[b])
	if s.back {
		order = -order
	}
	return order < 0 || order == 0 && a < b
}

func (s *stack) down(i int) {
	h := s.heap
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && s.before(h[child+1], h[child]) {
			child++
		}
		if !s.before(h[child], h[i]) {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}

// all moves every source by move, and rebuilds the heap.
func (s *stack) all(back bool, move func(Cursor) bool) bool {
	s.back, s.heap = back, s.heap[:0]
	for i, c := range s.sources {
		if move(c) {
			s.keys[i] = c.Key()
			s.heap = append(s.heap, int32(i))
		}
		if err := c.Err(); err != nil {
			return s.fail(err)
		}
	}
	for i := len(s.heap)/2 - 1; i >= 0; i-- {
		s.down(i)
	}
	return s.arrive()
}

func (s *stack) fail(err error) bool {
	s.err, s.heap = err, s.heap[:0]
	return s.arrive()
}

func (s *stack) arrive() bool {
	switch {
	case len(s.heap) > 0:
		s.key, s.at = s.keys[s.heap[0]], onRecord
		return true
	case s.back:
		s.key, s.at = nil, beforeStart
	default:
		s.key, s.at = nil, pastEnd
	}
	return false
}

func (s *stack) First() bool { return s.err == nil && s.all(false, Cursor.First) }
func (s *stack) Last() bool  { return s.err == nil && s.all(true, Cursor.Last) }

func (s *stack) Seek(key []byte) bool {
	return s.err == nil && s.all(false, func(c Cursor) bool { return c.Seek(key) })
}

func (s *stack) Next() bool {
	switch {
	case s.err != nil || s.at == pastEnd:
		return false
	case s.at != onRecord:
		return s.First()
	case s.back:
		key := s.key
		return s.all(false, func(c Cursor) bool {
			return c.Seek(key) && (!bytes.Equal(c.Key(), key) || c.Next())
		})
	}
	return s.pass(Cursor.Next)
}

func (s *stack) Prev() bool {
	switch {
	case s.err != nil || s.at == beforeStart:
		return false
	case s.at != onRecord:
		return s.Last()
	case !s.back:
		key := s.key
		return s.all(true, func(c Cursor) bool {
			c.Seek(key)
			return c.Err() == nil && c.Prev()
		})
	}
	return s.pass(Cursor.Prev)
}

// pass moves the sources that are on the present key.
func (s *stack) pass(move func(Cursor) bool) bool {
	key := s.key
	for first := true; len(s.heap) > 0; first = false {
		i := s.heap[0]
		if !first {
			if !bytes.Equal(s.keys[i], key) {
				break
			}
			if s.shadowed != nil {
				s.shadowed(int(i))
			}
		}
		c := s.sources[i]
		if move(c) {
			s.keys[i] = c.Key()
		} else if err := c.Err(); err != nil {
			return s.fail(err)
		} else {
			n := len(s.heap) - 1
			s.heap[0], s.heap = s.heap[n], s.heap[:n]
		}
		s.down(0)
	}
	return s.arrive()
}

func (s *stack) Key() []byte { return s.key }
func (s *stack) Err() error  { return s.err }

// layerCursors returns cursors over layers, newest first.
func layerCursors(layers []*Layer) []Cursor {
	sources := make([]Cursor, 0, len(layers)+1)
	for i := len(layers) - 1; i >= 0; i-- {
		sources = append(sources, newLayerCursor(layers[i]))
	}
	return sources
}
