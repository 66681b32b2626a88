package salvage

import (
	"cmp"
	"container/heap"
	"slices"
	"strings"
)

// A stretch is the keys of a leaf, from the first to the last: as of a group there were no others between them.
type stretch struct {
	first, last string
	asOf        uint64
}

// A cover answers what the newest leaf is as of in whose stretch a key lies.
type cover struct {
	from []string // where each answer begins to hold, in order
	is   []uint64
}

// newCover makes the cover of stretches, in any order.
func newCover(all []stretch) *cover {
	c := &cover{}
	slices.SortFunc(all, func(a, b stretch) int { return strings.Compare(a.first, b.first) })
	open := &newestFirst{}
	// The answer changes where a stretch begins and behind the last key of one.
	now := uint64(0)
	say := func(from string) {
		newest := uint64(0)
		if len(*open) > 0 {
			newest = (*open)[0].asOf
		}
		if newest != now {
			now = newest
			if n := len(c.from); n > 0 && c.from[n-1] == from {
				c.is[n-1] = newest
				return
			}
			c.from, c.is = append(c.from, from), append(c.is, newest)
		}
	}
	closeBefore := func(key string, end bool) {
		for len(*open) > 0 && (end || (*open)[0].last < key) {
			ended := heap.Pop(open).(stretch)
			for len(*open) > 0 && (*open)[0].last <= ended.last { // it ended before the one that hid it
				heap.Pop(open)
			}
			say(ended.last + "\x00")
		}
	}
	for _, x := range all {
		closeBefore(x.first, false)
		heap.Push(open, x)
		say(x.first)
	}
	closeBefore("", true)
	return c
}

// asOf returns the answer for a key, 0 if it lies in no stretch.
func (c *cover) asOf(key string) uint64 {
	i, ok := slices.BinarySearch(c.from, key)
	if !ok {
		i--
	}
	if i < 0 {
		return 0
	}
	return c.is[i]
}

// newestFirst is a heap of stretches.
type newestFirst []stretch

func (h newestFirst) Len() int           { return len(h) }
func (h newestFirst) Less(i, j int) bool { return cmp.Compare(h[i].asOf, h[j].asOf) > 0 }
func (h newestFirst) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *newestFirst) Push(x any)        { *h = append(*h, x.(stretch)) }
func (h *newestFirst) Pop() any {
	x := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return x
}
