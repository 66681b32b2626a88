package mvcc

import (
	"time"

	"flashdbm/logstore"
	"flashdbm/override"
)

// The cleaner takes the emptiest old segments and makes what lives in them dirty, so that the next flush moves it and the segments are
// free. That costs writing, so it takes no more than a quarter of what the log takes; only if more than half of the live bytes' worth is
// dead where it could be cleaned does it go on by itself. A small file is left alone: there a lone committer would write more pages for
// no gain to speak of.
const (
	cleanFloor  = 16      // segments of the file, below which nothing is cleaned
	cleanLive   = 8       // nor while less is dead than an eighth of what lives,
	cleanLeast  = 4       // or than 4 segments
	cleanShare  = 4       // of what the log takes, a quarter is for cleaning
	cleanHurry  = 2       // the cleaner hurries if more is dead than half of what lives, and than the floor,
	cleanRate   = 8 << 20 // and then moves 8 MiB a second at least
	closeFloor  = 4       // at Close files of 4 segments and more are cleaned:
	closeEmpty  = 2       // segments are emptied of which half or less lives,
	closeSparse = 8       // or all of a file in which more is dead than an 8th of what lives,
	closeMoved  = 32      // and not more than 32 segments' worth is moved
	closeLeaves = 2       // leaves written for each page gained, above which nothing is moved
)

// stuckSegments cannot be emptied, for lists of extents or damage: with the group written last in each.
type stuckSegments map[uint32]uint64

// cleaner moves what lives out of segments that are mostly dead. Its fields are guarded by checkpoints.mu.
type cleaner struct {
	treeParts

	at        time.Time // of the last time
	searched  uint64    // pages written to the log before the tree was searched for value runs
	scattered scattered
}

// leave notes that a segment cannot be emptied.
func (s *stuckSegments) leave(v logstore.Victim) {
	if *s == nil {
		*s = stuckSegments{}
	}
	(*s)[v.Segment] = v.Written
}

// segmentBytes is the size of a segment, of the default one if those of the file are larger.
func (f *file) segmentBytes() int64 {
	return int64(min(f.store.SegmentPages(), logstore.DefaultSegmentPages)) * logstore.PageSize
}

// cleanBudget returns how many pages the next flush should move, and whether that makes a flush due. The caller holds checkpoints.mu.
func (c *cleaner) cleanBudget() (pages int64, due bool) {
	s := c.store.SpaceStats()
	floor := cleanFloor * c.segmentBytes()
	if s.FileBytes < floor {
		return 0, false
	}
	_, garbage := c.store.Victims(c.flusher.stuck, false)
	garbage *= logstore.PageSize
	if garbage <= max(s.PackedBytes/cleanLive, cleanLeast*c.segmentBytes()) {
		return 0, false
	}
	pages = int64(c.store.Counters().Pages-c.checkpoints.turn.began) / cleanShare
	if garbage > max(s.PackedBytes/cleanHurry, floor) {
		since := min(time.Since(c.at), time.Second)
		pages = max(pages, int64(since.Seconds()*cleanRate)/logstore.PageSize)
		due = since >= time.Second
	}
	return pages, due
}

// cleanAtClose moves what lives in the emptiest segments, which is little for what it gains; and out of all segments of a small file, if
// that gains a good part of it. Where logged values move, their leaves are written as well.
func (c *cleaner) cleanAtClose() error {
	if c.store.SpaceStats().FileBytes < closeFloor*c.segmentBytes() {
		return nil
	}
	victims, dead := c.store.Victims(c.flusher.stuck, true)
	most := closeMoved * int64(c.store.SegmentPages())
	n, pages := 0, int64(0)
	for n < len(victims) && victims[n].Live*closeEmpty <= int64(c.store.SegmentPages()) && pages+victims[n].Live <= most {
		pages += victims[n].Live
		n++
	}
	if live := c.store.SpaceStats().LiveBytes / logstore.PageSize; live <= most && dead*closeSparse > live {
		n, pages = len(victims), live
	}
	gain, values := int64(0), int64(0)
	for _, v := range victims[:n] {
		gain += int64(c.store.SegmentPages()) - v.Live
		values += v.Values
	}
	leaves := max(c.tree.leaves(), 1)
	if written := min(values, leaves); written > 0 {
		gain -= written * (leaves - written) / leaves // holes where these leaves were, between others that stay
		if gain*closeLeaves <= written {
			return nil
		}
	}
	c.at = time.Now()
	if _, err := c.cleanVictims(victims[:n], pages, true, c.pressure.reserveWithin); err != nil {
		return err
	}
	return c.flusher.flushAndCheckpoint()
}

// clean makes up to the given number of pages dirty, those of the emptiest segments first, as far as there is room. The caller holds
// checkpoints.mu, and a flush follows.
func (c *cleaner) clean(pages int64) error {
	c.at = time.Now()
	victims, _ := c.store.Victims(c.flusher.stuck, false)
	_, err := c.cleanVictims(victims, pages, c.searchDue(), c.pressure.reserveWithin)
	return err
}

// searchDue reports whether enough was written since the last search of the tree for value runs to pay for another. The caller holds
// checkpoints.mu.
func (c *cleaner) searchDue() bool {
	written := c.store.Counters().Pages - c.searched
	return int64(written)*searchedShare*logstore.PageSize >= c.store.SpaceStats().LiveBytes
}

// cleanVictims makes up to the given number of pages of the victims dirty, as far as reserve finds room for them. With search it moves value
// runs too, for which it goes through the tree.
func (c *cleaner) cleanVictims(victims []logstore.Victim, pages int64, search bool, reserve reservation) (room bool, err error) {
	begin, all := c.flusher.moved.Load(), int64(0) // what is dirty anyway costs nothing
	defer c.tellOfCleaning(time.Now(), begin)
	holders := map[uint32]bool{}
	for _, v := range victims {
		if int64(c.flusher.moved.Load()-begin)+all+v.Live > max(pages, 0) {
			break
		}
		live, runs, others := c.store.Contents(v.Segment)
		if others > 0 {
			c.flusher.stuck.leave(v)
			continue
		}
		if len(runs) > 0 && !search {
			continue
		}
		if room, err := c.flusher.touchAll(live, (*override.Batch).Clean, reserve); err != nil || !room {
			return room, err
		}
		if room, err := c.move(c.findLogged(v.Segment), reserve); err != nil || !room {
			return room, err
		}
		if len(runs) > 0 {
			holders[v.Segment] = true
			all += v.Live
		}
	}
	if len(holders) == 0 {
		return true, nil
	}
	c.searched = c.store.Counters().Pages
	return c.moveRuns(holders, reserve)
}

func (f *file) stepPages() int {
	if n := f.opts.StepPages; n > 0 {
		return n
	}
	return cleanAtOnce
}
