package space

import "sync"

// A SegmentTable passes the memory of a segment table from one Store to the next. A segment table is as long as
// the file, most of which may be a hole, and a reader beside a writer opens the file again each time it is
// overtaken. Without a SegmentTable the garbage would be one table per reload; with it there is one table per
// Store that is open at the same time. The zero SegmentTable is empty. Any number of goroutines may use it.
type SegmentTable struct {
	mu    sync.Mutex
	spare []segment // length 0; has the capacity of the table of the Store that was closed last
}

// take returns an empty table. A nil t returns nil.
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

// leave takes the table of a Store that is not used any more.
func (t *SegmentTable) leave(table []segment) {
	clear(table) // the segments refer to bitmaps
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spare = table[:0]
}
