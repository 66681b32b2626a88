package mvcc

import "flashdbm/override"

// A flush is written in parts between the groups of commits, so that a sync has few of its pages to wait for. If
// commits write much themselves, as in a load, several parts are written in one stint with the token, up to the end
// of a segment. What commits write is dead after the next flush but one, and what the flush writes stays live, so
// segments with both would be left half dead. With turns of 64 pages of flush and 1 MiB of commit, a load of 205 MiB
// ended with up to 100 MiB of dead pages besides the live ones. Commits wait for at most 16 times what they write
// themselves, and the rest of a segment.
const (
	partPages    = 64 // of a flush, written as one group
	stintShare   = 16 // a stint has 16 times the pages that a batch of commits takes,
	longestStint = 16 // but at most 16 parts, and the rest of the segment
)

// stintParts returns how many parts of a flush should be written in a row, from the pages and batches that commits
// have written since the parts before.
func stintParts(pages int64, batches uint64) int {
	return int(min(max(pages*stintShare/int64(max(batches, 1))/partPages, 1), longestStint))
}

// writeFlush brings a flush to its end. It passes the token on between stints, and while it prepares the images of
// the next stint.
func (fl *flusher) writeFlush(f *override.Flush, between func(work func())) error {
	installed, awaited := false, 0
	defer func() {
		fl.tree.tables.noBackground -= awaited
		if !installed {
			fl.tree.finishMerge()
			f.Abandon()
		}
	}()
	if n := fl.opts.StepPages; n > 0 {
		f.LimitPart(n)
	}
	between(f.Sort)
	for parts, done := 1, false; !done; {
		ahead := parts
		if parts > 1 {
			ahead += int(fl.store.SegmentPages() / partPages)
		}
		pages, batches := fl.store.Counters().Pages, fl.log.recent.batches
		between(func() { f.EncodeParts(ahead) })
		next := 1
		if fl.opts.StepPages == 0 {
			next = stintParts(int64(fl.store.Counters().Pages-pages), uint64(fl.log.recent.batches-batches))
		}
		var err error
		if done, err = fl.writeStint(f, parts); err != nil {
			return err
		}
		parts = next
	}
	var err error
	if between(func() { err = f.Sync() }); err != nil {
		return err
	}
	fl.marks.publishDurable()
	awaited = 1
	for fl.tree.tables.noBackground++; !installed; {
		fl.tree.finishMerge()
		if err := fl.Failed(); err != nil {
			return err
		}
		if installed = f.Install(); !installed {
			between(func() {})
		}
	}
	return nil
}

// writeStint writes the given number of parts; with more than one, also further parts that are prepared and fit into
// the segment. The device starts on each part before the next is written, so a sync finds at most one part that the
// device has not been given.
func (fl *flusher) writeStint(f *override.Flush, parts int) (done bool, err error) {
	for n := 1; ; n++ {
		if done, err = f.Write(); err != nil || done {
			return done, err
		}
		if f.Encoded() == 0 || n >= parts && (parts == 1 || fl.store.RestOfSegment() < partPages) {
			return false, nil
		}
		if err := fl.log.startSync(); err != nil {
			return false, err
		}
	}
}
