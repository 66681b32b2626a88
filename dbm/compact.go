package dbm

import (
	"context"
	"runtime/debug"
	"time"

	"flashdbm/mvcc"
)

// A Compaction is the progress of a call of Compact.
type Compaction struct {
	Done      float64 // 0 to 1, roughly proportional to the time taken
	FileBytes int64   // present size of the file on disk
	LiveBytes int64   // part of FileBytes that is in use
}

// compactReports is the least time between two calls of progress.
const compactReports = 50 * time.Millisecond

// Compact makes the file about as small as one into which the same records were loaded in key order. It merges
// records of neighbouring pages until pages are full, moves live pages out of segments that contain dead ones, and
// returns the free space to the file system. The database reuses space without Compact. Compact is worth its
// writes after large parts of the database were deleted or overwritten, if other files need the space or the file
// is to be copied.
//
// Readers and writers continue during the compaction. Compact writes about as much as it moves, and needs room for
// a part of that first: the file grows by a few MiB at most. progress, if not nil, is called on the caller's
// goroutine at intervals, and at the end.
//
// Compact may be ended at any point: by ctx, by Close (Compact then returns ErrClosed), or with the process. No
// record changes, and what was moved already stays moved. ErrFull: there was no room to move everything. A second
// call waits for the first.
func (db *DB) Compact(ctx context.Context, progress func(Compaction)) error {
	if db.beside != nil {
		return ErrReadOnly
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	var last time.Time
	return public(db.engine.Compact(ctx, func(c mvcc.Compaction) {
		if progress != nil && (c.Done == 1 || time.Since(last) >= compactReports) {
			last = time.Now()
			progress(Compaction(c))
		}
	}))
}
