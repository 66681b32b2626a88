package salvage

import (
	"cmp"
	"container/heap"
	"slices"
	"strings"
)

// A stretch is the keys of a leaf, from the first on and below an end behind the last, or a range that was removed; an empty end is none. As of a
// group there were no others there.
type stretch struct {
	first, end string
	asOf       uint64
}

// endsBy reports whether a key, and those above it, lie behind the stretch.
func (x *stretch) endsBy(key string) bool { return x.end != "" && x.end <= key }

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
	// The answer changes where a stretch begins and where one ends.
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
		for len(*open) > 0 && (end || (*open)[0].endsBy(key)) {
			ended := heap.Pop(open).(stretch)
			for len(*open) > 0 && (ended.end == "" || (*open)[0].endsBy(ended.end)) { // it ended before the one that hid it
				heap.Pop(open)
			}
			if ended.end != "" {
				say(ended.end)
			}
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
