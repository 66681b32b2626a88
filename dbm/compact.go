package dbm

import (
	"context"
	"runtime/debug"
	"time"

	"flashdbm/mvcc"
)

// A Compaction is how far a Compact has come.
type Compaction struct {
	Done      float64 // from 0 to 1, roughly in proportion to the time it takes
	FileBytes int64   // that the file takes on disk now
	LiveBytes int64   // of it that are in use
}

// compactReports is how often progress is called at most.
const compactReports = 50 * time.Millisecond

// Compact makes the file about as small as one into which the same records were loaded in key order: records of neighbouring pages move
// together until the pages are full, what is in use moves out of the segments that hold anything dead, and what is free then goes back to
// the file system. No call of it is needed: space is used again by itself. It pays after large parts were deleted or overwritten, where the
// space is wanted elsewhere or the file is to be copied.
//
// Readers and writers go on meanwhile. It writes about as much as it moves, and needs room for some of that first: at most a few MiB more
// than the file has. progress, if not nil, is called by the same goroutine now and then, and at the end.
//
// It may be ended at any point, by ctx, by Close, which makes it return ErrClosed, or with the process: no record changes, and what was
// done already stays. ErrFull means that there was no room to move everything. A second Compact waits for the first.
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
