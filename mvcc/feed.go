package mvcc

import (
	"bytes"
	"context"
	"slices"
	"sync"
)

// feed has the record groups that an engine beside a writer has applied lately. A caller that asks for the changes
// since one of these groups gets the keys that they write. Without the feed the caller would get all leaves in
// memory, because such an engine makes new versions of these leaves with each flush of the writer, and does not know
// when they changed.
//
// Invariants:
//
//  1. groups has every change after the group from, in the order of the log.
//  2. A change that is in no record group empties the feed, which then begins again. That holds for a page group,
//     which has images and no records; for a load or a row of one, which can be recognized only as a flush that
//     leaves no redo, so each such flush counts; and for ranges, whose keys are unknown; a flush of all pages
//     follows them anyway.
//  3. The feed holds at most mostFed records. A caller that follows more slowly gets what has changed from the pages.
//     Until the first request, the feed keeps only groups that are in memory as redo anyway. With these, an engine
//     that replaces another one can answer requests about the time of its predecessor.
type feed struct {
	mu     sync.Mutex
	asked  bool
	from   uint64
	groups []followedGroup
	ops    int // in groups
}

// mostFed is the changes of 13 seconds at 10,000 per second. They take some 32 MB with their redo, if values are
// short.
const mostFed = 1 << 17

// note adds a record group. It replaces the last group if that is the same one with less in it.
func (f *feed) note(g followedGroup) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(g.ranges) > 0 {
		f.begin(g.no + 1) // a caller may have seen less of the group itself
		return
	}
	if n := len(f.groups); n > 0 && f.groups[n-1].no == g.no {
		f.ops -= len(f.groups[n-1].ops)
		f.groups = f.groups[:n-1]
	}
	f.groups, f.ops = append(f.groups, g), f.ops+len(g.ops)
	for f.ops > mostFed {
		f.drop()
	}
}

// drop drops the oldest group.
func (f *feed) drop() {
	g := f.groups[0]
	f.groups[0] = followedGroup{}
	f.groups, f.ops, f.from = f.groups[1:], f.ops-len(g.ops), g.no+1 // g.no+1: as in note
}

// flushed is called for a flush after which the redo of group start and earlier groups is not needed any more.
func (f *feed) flushed(start uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for !f.asked && len(f.groups) > 0 && f.groups[0].no <= start {
		f.drop()
	}
}

// beginAnew empties the feed: from now on it is complete after the given group.
func (f *feed) beginAnew(group uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begin(group)
}

func (f *feed) begin(group uint64) {
	f.groups, f.ops, f.from = nil, 0, group
}

// since returns the keys that were written in the group or after it, in order, each once. ok is false if the feed
// does not have them all. The group itself is included, since it may have been appended to since the caller saw it.
// Keys of groups that the caller does not see yet may be included too; their records are reported as they are for the
// caller.
func (f *feed) since(group uint64) (keys [][]byte, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = true
	if group < f.from {
		return nil, false
	}
	for _, g := range f.groups {
		if g.no >= group {
			for i := range g.ops {
				keys = append(keys, g.ops[i].Key)
			}
		}
	}
	slices.SortFunc(keys, bytes.Compare)
	return slices.CompactFunc(keys, bytes.Equal), true
}

// tell passes to sink the records with these keys as the transaction sees them, and the absence of the others: see
// since.go. Each interval reaches from the record before a key to the record after it.
func (tx *Tx) tell(ctx context.Context, keys [][]byte, sink ChangeSink) error {
	c := tx.Cursor()
	defer c.Release()
	open, on := false, false
	for i, key := range keys {
		if i%1024 == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		if !open {
			c.Seek(key)
			var low []byte
			if c.Prev() {
				low = bytes.Clone(c.Key())
			}
			if err := c.Err(); err != nil {
				return err
			}
			if err := sink.Begin(low); err != nil {
				return err
			}
			open, on = true, c.Seek(key)
		}
		if on && bytes.Equal(c.Key(), key) {
			r, length, err := c.ValueReader()
			if err != nil {
				return err
			}
			if err := sink.Put(key, r, length); err != nil {
				return err
			}
			on = c.Next()
		}
		if err := c.Err(); err != nil {
			return err
		}
		last := i+1 == len(keys)
		if on && (last || bytes.Compare(c.Key(), keys[i+1]) < 0) {
			if err := sink.End(c.Key()); err != nil {
				return err
			}
			open = false
		} else if last {
			return sink.End(nil)
		}
	}
	return nil
}
