package salvage

import (
	"cmp"
	"container/heap"
	"slices"
	"strings"
)

// A stretch is a range of keys that is completely known as of the group asOf: the range of a leaf, from its first
// key up to an end after its last key, or a range that was removed. At that group no other keys were in the
// range. An empty end is no bound.
type stretch struct {
	first, end string
	asOf       uint64
}

// endsBy reports whether key and all keys above it lie after the stretch.
func (x *stretch) endsBy(key string) bool { return x.end != "" && x.end <= key }

// A cover maps a key to the newest group of all stretches that contain the key.
type cover struct {
	from []string // keys at which the result changes, ascending
	is   []uint64 // the results from these keys on
}

// newCover makes the cover of the stretches, which may come in any order.
func newCover(all []stretch) *cover {
	c := &cover{}
	slices.SortFunc(all, func(a, b stretch) int { return strings.Compare(a.first, b.first) })
	open := &newestFirst{}
	// The result changes only where a stretch begins or ends.
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
			for len(*open) > 0 && (ended.end == "" || (*open)[0].endsBy(ended.end)) { // this one ended before the newer one that hid it
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

// asOf returns the newest group of the stretches that contain key, 0 if there is none.
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

// newestFirst is a heap of stretches, the newest on top.
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
