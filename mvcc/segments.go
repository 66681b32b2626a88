package mvcc

import "flashdbm/logstore"

// Segments describes the segments of the file, and returns the size of one in bytes.
func (e *Engine) Segments() ([]logstore.Segment, int64) {
	return e.store.Segments(), int64(e.store.SegmentPages()) * logstore.PageSize
}

// Account says what the file consists of.
func (e *Engine) Account() logstore.Account { return e.store.Account() }
