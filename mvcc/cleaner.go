package mvcc

import (
	"time"

	"flashdbm/logstore"
	"flashdbm/override"
)

// The cleaner takes the emptiest old segments and makes the live pages in them dirty, so that the next flush moves
// these and the segments become free. That costs writing, so cleaning may write a quarter as much as is written to
// the log. It makes a flush due by itself only if the dead bytes in segments that can be cleaned are more than half
// of the live ones. A small file is not cleaned: a single committer would write more pages there and gain next to
// nothing.
//
// Dead bytes are counted only in segments that can be cleaned. The larger the first three constants, the more dead
// space stays in the file; the smaller, the more is written to move live pages.
const (
	cleanFloor = 16 // segments: a smaller file is not cleaned
	cleanLive  = 8  // nothing is cleaned until the dead bytes are more than an eighth of the live ones,
	cleanLeast = 4  // and more than 4 segments
	cleanShare = 4  // a quarter of the pages appended since the last checkpoint may be moved by the next flush
	// cleanHurry: if the dead bytes are more than half of the live ones, and more than cleanFloor segments, the cleaner
	// moves at least cleanRate bytes per second, even if nothing is appended.
	cleanHurry = 2
	cleanRate  = 8 << 20

	// At Close:
	closeFloor  = 4  // segments: a smaller file is not cleaned
	closeEmpty  = 2  // segments of which at most half is live are emptied
	closeSparse = 8  // all segments are emptied if the dead pages are more than an eighth of the live ones
	closeMoved  = 32 // segments: no more live pages than these hold are moved
	closeLeaves = 2  // nothing is moved if more than 2 leaves would be written for each page gained
)

// stuckSegments are segments that cannot be emptied, because of lists of extents or damage, each with the group that
// was written last in it.
type stuckSegments map[uint32]uint64

// cleaner moves live pages and values out of segments that are mostly dead. Its fields are guarded by checkpoints.mu.
type cleaner struct {
	treeParts

	at        time.Time // when it cleaned last
	searched  uint64    // pages written to the log when the tree was last searched for value runs
	scattered scattered
}

// leave notes that a segment cannot be emptied.
func (s *stuckSegments) leave(v logstore.Victim) {
	if *s == nil {
		*s = stuckSegments{}
	}
	(*s)[v.Segment] = v.Written
}

// segmentBytes is the size of a segment, or the default size if the file's segments are larger.
func (f *file) segmentBytes() int64 {
	return int64(min(f.store.SegmentPages(), logstore.DefaultSegmentPages)) * logstore.PageSize
}

// cleanBudget returns how many pages the next flush should move, and whether that makes a flush due. The caller holds
// checkpoints.mu.
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

// cleanAtClose empties the segments of which little is live, or all segments of a small file if that gains a good
// part of it. If logged values move, their leaves are written too.
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
		gain -= written * (leaves - written) / leaves // the old places of these leaves become dead pages in segments that stay
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

// clean makes up to the given number of pages dirty, those of the emptiest segments first, as far as there is room.
// The caller holds checkpoints.mu; a flush follows.
func (c *cleaner) clean(pages int64) error {
	c.at = time.Now()
	victims, _ := c.store.Victims(c.flusher.stuck, false)
	_, err := c.cleanVictims(victims, pages, c.searchDue(), c.pressure.reserveWithin)
	return err
}

// empty makes the pages of the first victims dirty, as far as reserve finds room: until these victims have gain dead
// pages. It stops before a victim with more than full live pages, and before they have more than most together. With
// search it also moves value runs. The caller holds checkpoints.mu; a flush follows.
func (c *cleaner) empty(victims []logstore.Victim, gain, most, full int64, search bool, reserve reservation) error {
	n, moved := 0, int64(0)
	for n < len(victims) && gain > 0 && victims[n].Live <= full && moved+victims[n].Live <= most {
		moved += victims[n].Live
		gain -= int64(c.store.SegmentPages()) - victims[n].Live
		n++
	}
	c.at = time.Now()
	_, err := c.cleanVictims(victims[:n], moved, search, reserve)
	return err
}

// searchDue reports whether enough was written since the last search of the tree for value runs to pay for another
// one. The caller holds checkpoints.mu.
func (c *cleaner) searchDue() bool {
	written := c.store.Counters().Pages - c.searched
	return int64(written)*searchedShare*logstore.PageSize >= c.store.SpaceStats().LiveBytes
}

// cleanVictims makes up to the given number of pages of the victims dirty, as far as reserve finds room for them.
// With search it also moves value runs, which it finds by going through the tree.
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
