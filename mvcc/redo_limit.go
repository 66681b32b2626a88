package mvcc

// The redo limit follows what lives. Redo, the pages of one round of flushes that are written behind the redo start, and the free space for
// the next turn each take about as much of the file as the redo limit; at 32 MiB they took five times what lives of a database of 10 MB. So
// the limit is a redoShare-th of what lives, at least redoFloor, and at most Options.RedoLimit.
//
// Invariant: redoLimit <= Options.RedoLimit, so the time to open a file is bounded by what the user has asked for.
const (
	// redoShare: with a larger divisor each leaf is written for fewer updates; with a smaller one a file of 50 MB passes twice its live
	// bytes and 32 MiB. Databases above redoShare times RedoLimit are not affected.
	redoShare = 4
	// redoFloor, in bytes: 10 MB of records of 100 bytes overwritten at random took 46 MB and wrote 4.8 bytes for one with 4 MiB, 52 MB and
	// 3.0 bytes with 8 MiB, 59 MB and 1.8 bytes with 32 MiB.
	redoFloor = 8 << 20
)

// redoLimit returns the bytes of redo at which a flush is due.
func (e *Engine) redoLimit() int64 {
	return redoLimit(e.opts.RedoLimit, e.store.SpaceStats().LiveBytes)
}

func redoLimit(most, live int64) int64 {
	return min(most, max(live/redoShare, redoFloor))
}
