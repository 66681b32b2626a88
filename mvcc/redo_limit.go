package mvcc

// The redo limit follows what the file may take beside what lives. Redo, the pages of one round of flushes that are written behind the redo
// start, and the free space for the next turn each take about as much of the file as the redo limit. So the limit is a redoShare-th of the
// difference between the bound and what lives, at least redoFloor, and at most Options.RedoLimit.
//
// Invariant: redoLimit <= Options.RedoLimit, so the time to open a file is bounded by what the user has asked for.
const (
	// redoShare: with a larger divisor each leaf is written for fewer updates; with a smaller one commits wait more often for room within the
	// bound, and flushes for that are of parts that are worth less.
	redoShare = 3
	// redoFloor, in bytes: where leaves are so empty that hardly anything is left beside what lives, flushes of less would write each leaf for
	// one update.
	redoFloor = 8 << 20
)

// redoLimit returns the bytes of redo at which a flush is due.
func (p *pressure) redoLimit() int64 {
	return redoLimit(p.opts.RedoLimit, p.crowd.bound.Load()-p.store.SpaceStats().PackedBytes)
}

// redoLimit returns the limit if there may be so many bytes beside what lives.
func redoLimit(most, beside int64) int64 {
	return min(most, max(beside/redoShare, redoFloor))
}
