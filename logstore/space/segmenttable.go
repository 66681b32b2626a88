package space

import "sync"

// A SegmentTable keeps the memory of a segment table from one Store to the next. The table follows the length of the file, which may be a
// hole for the most part, and a reader beside a writer opens the file anew each time that it is overtaken: what it takes would be the length
// times the number of reloads. So it is the length, for as many Stores as are open at a time. The zero SegmentTable is an empty one. Any
// number of goroutines.
type SegmentTable struct {
	mu    sync.Mutex
	spare []segment // empty; room for as many as the Store that was closed last had
}

// take returns an empty table. A nil t has none to spare.
func (t *SegmentTable) take() []segment {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	spare := t.spare
	t.spare = nil
	return spare
}

// leave hands back the table of a Store that nobody uses any more.
func (t *SegmentTable) leave(table []segment) {
	clear(table) // it leads to maps of its segments
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spare = table[:0]
}
