package mvcc

import (
	"bytes"
	"context"
	"slices"
	"sync"
)

// feed is the record groups that an engine beside a writer has taken in lately. Who asks for what has changed since one of them gets the keys that
// they write, instead of all leaves that are in memory: an engine beside a writer makes those anew with each flush of the writer's, and knows of none when
// it changed.
//
// Invariants:
//
//  1. groups has each change behind the group from, in the order of the log.
//  2. What is in no record group begins the feed anew: a page group has images and no records; and of a load, which is an empty tree's flush with no redo left
//     behind it, nothing else tells, so each such flush does. So do ranges, which are records of unknown keys; a flush of all follows them anyway.
//  3. It holds mostFed records at most. Who follows more slowly than that is told by pages. Until somebody has asked, it holds no group that is not there as
//     redo anyway; with which an engine that takes the place of a lost one can tell of what the last one was asked.
type feed struct {
	mu     sync.Mutex
	asked  bool
	from   uint64
	groups []followedGroup
	ops    int // of groups
}

// mostFed is the changes of 13 seconds at 10,000 a second. They take some 32 MB with their redo, where values are short.
const mostFed = 1 << 17

// note adds a record group, or replaces the last one, of which less was there before.
func (f *feed) note(g followedGroup) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(g.ranges) > 0 {
		f.begin(g.no + 1) // a token of the group itself may be of less of it
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
	f.groups, f.ops, f.from = f.groups[1:], f.ops-len(g.ops), g.no+1 // as above
}

// flushed is told of a flush, behind which the redo of a group and of those before is not needed any more.
func (f *feed) flushed(start uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for !f.asked && len(f.groups) > 0 && f.groups[0].no <= start {
		f.drop()
	}
}

// beginAnew forgets what there is: the feed is complete behind the group from then on.
func (f *feed) beginAnew(group uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begin(group)
}

func (f *feed) begin(group uint64) {
	f.groups, f.ops, f.from = nil, 0, group
}

// since returns the keys that were written in a group or behind it, in order, each once. ok is false if it cannot tell. The group itself may have been
// written on since it was asked for last; and there may be keys of groups that the caller does not see yet, which are as they were.
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

// tell tells sink of the records with these keys as a transaction has them, and of those that it does not have: see since.go. Each interval is from the record
// before a key to the record behind it.
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
