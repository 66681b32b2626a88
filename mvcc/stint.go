package mvcc

import "flashdbm/override"

// A flush is written in parts between the groups of commits, so that a sync has few of its pages to wait for. Where commits write much
// themselves, as those of a load do, several parts are written in one stint with the token, up to where a segment ends: what commits write
// is dead behind the next flush but one, what the flush writes lives, so segments with both would be left half dead. Written by turns of
// 64 pages and a commit of 1 MiB each, those of a load of 205 MiB had up to 100 MiB of dead pages beside what lives in the end. Commits wait
// for no more of it than 16 times what they write themselves, and the rest of a segment.
const (
	partPages    = 64 // of a flush, written as one group
	stintShare   = 16 // times what a batch of commits takes: pages of a stint,
	longestStint = 16 // parts, and what the segment has room for beyond
)

// stintParts returns how many parts of a flush should be written in a row, by what batches of commits have written since the parts before.
func stintParts(pages int64, batches uint64) int {
	return int(min(max(pages*stintShare/int64(max(batches, 1))/partPages, 1), longestStint))
}

// writeFlush steps a flush to its end, laying the token down between the steps and while it prepares the images of the next.
func (fl *flusher) writeFlush(f *override.Flush, between func(work func())) error {
	installed, awaited := false, 0
	defer func() {
		fl.tree.tables.noBackground -= awaited
		if !installed {
			fl.tree.settleMerge()
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
		fl.tree.settleMerge()
		if err := fl.Failed(); err != nil {
			return err
		}
		if installed = f.Install(); !installed {
			between(func() {})
		}
	}
	return nil
}

// writeStint writes the given number of parts, and behind several also others that are prepared and fit the segment. The device is at work on
// each before the next is written, so that a sync finds no more than one that it has not been given.
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
