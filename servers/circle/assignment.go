package circle

import "slices"

// An Assignment says which shards share the circle. While it changes, each part that goes from one shard to another is the old one's until the
// pair of them is in Moved. So one small value says whose each hash is at any moment, and a change of it hands over all that goes from one
// shard to another at once.
type Assignment struct {
	Shards []uint32 `json:"shards"`          // in rising order
	Next   []uint32 `json:"next,omitempty"`  // that shall share it; empty: nothing moves
	Moved  []Pair   `json:"moved,omitempty"` // whose parts are the new owner's already
	// Unused is the least number that no shard has had. A number is used once: a node that was away may have a file of the shard that had it.
	Unused uint32 `json:"unused,omitempty"`
	// Change counts the changes that have begun. Two of them may have the same pairs: who has slept through the end of one must not take the next
	// one for it.
	Change uint64 `json:"change,omitempty"`
}

// A Pair is an old owner and a new one.
type Pair struct {
	From uint32 `json:"from"`
	To   uint32 `json:"to"`
}

// A Move is what goes from one shard to another.
type Move struct {
	Pair
	Ranges []Range // in rising order
	Moved  bool
}

// First returns the assignment of the shards 0 to n-1.
func First(n int) Assignment {
	a := Assignment{Unused: uint32(n)}
	for i := range n {
		a.Shards = append(a.Shards, uint32(i))
	}
	return a
}

// Moving reports whether the assignment changes.
func (a *Assignment) Moving() bool { return len(a.Next) > 0 }

// All returns the shards that share the circle or shall do so, in rising order.
func (a *Assignment) All() []uint32 {
	all := slices.Concat(a.Shards, a.Next)
	slices.Sort(all)
	return slices.Compact(all)
}

// Owners returns the shards that a part of the circle belongs to, or did until its last part moved, in rising order.
func (a *Assignment) Owners() []uint32 {
	all := slices.Clone(a.Shards)
	for _, p := range a.Moved {
		all = append(all, p.To)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Retired reports whether there was a shard with the number, and is none any more.
func (a *Assignment) Retired(number uint32) bool {
	return number < a.Unused && !slices.Contains(a.All(), number)
}

// At returns whose each hash is.
func (a *Assignment) At(seed uint64) *Circle {
	from := New(seed, a.Shards)
	if !a.Moving() {
		return from
	}
	c := &Circle{}
	a.parts(seed, from, func(last uint64, p Pair) {
		owner := p.From
		if slices.Contains(a.Moved, p) {
			owner = p.To
		}
		c.points = append(c.points, point{last, owner})
	})
	return c
}

// Moves returns all that goes from one shard to another, in rising order of the pairs; nil if nothing does.
func (a *Assignment) Moves(seed uint64) (list []Move) {
	if !a.Moving() {
		return nil
	}
	type part struct {
		last uint64
		Pair
	}
	var parts []part
	var pairs []Pair
	a.parts(seed, New(seed, a.Shards), func(last uint64, p Pair) {
		parts = append(parts, part{last, p})
		if p.From != p.To && !slices.Contains(pairs, p) {
			pairs = append(pairs, p)
		}
	})
	slices.SortFunc(pairs, func(a, b Pair) int {
		if a.From != b.From {
			return int(int64(a.From) - int64(b.From))
		}
		return int(int64(a.To) - int64(b.To))
	})
	for _, p := range pairs {
		c := &Circle{}
		for _, x := range parts {
			goes := uint32(0)
			if x.Pair == p {
				goes = 1
			}
			c.points = append(c.points, point{x.last, goes})
		}
		list = append(list, Move{p, c.Ranges(1), slices.Contains(a.Moved, p)})
	}
	return list
}

// parts calls each for the parts of the circle that have one old owner and one new one, in rising order, with the last hash of each. What lies
// behind the last of them belongs to the first one.
func (a *Assignment) parts(seed uint64, from *Circle, each func(last uint64, p Pair)) {
	to := New(seed, a.Next)
	var ends []uint64
	for _, p := range slices.Concat(from.points, to.points) {
		ends = append(ends, p.hash)
	}
	slices.Sort(ends)
	for _, h := range slices.Compact(ends) {
		was, _ := from.Owner(h)
		is, _ := to.Owner(h)
		each(h, Pair{was, is})
	}
}

// Done returns the assignment once the pair's parts are the new owner's. With the last pair nothing moves any more.
func (a *Assignment) Done(seed uint64, p Pair) Assignment {
	next := *a
	next.Moved = append(slices.Clone(a.Moved), p)
	for _, m := range next.Moves(seed) {
		if !m.Moved {
			return next
		}
	}
	return Assignment{Shards: a.Next, Unused: a.Unused, Change: a.Change}
}

// Sorted returns the ranges, of which no two have a hash in common, in rising order, and those that meet as one.
func Sorted(ranges []Range) (list []Range) {
	ranges = slices.Clone(ranges)
	slices.SortFunc(ranges, func(a, b Range) int {
		if a.First < b.First {
			return -1
		}
		return 1
	})
	for _, r := range ranges {
		if n := len(list); n > 0 && list[n-1].Last+1 == r.First {
			list[n-1].Last = r.Last
		} else {
			list = append(list, r)
		}
	}
	return list
}

// Rest returns the hashes that are in none of the ranges, which rise and do not meet.
func Rest(ranges []Range) (rest []Range) {
	from := uint64(0)
	for _, r := range ranges {
		if r.First > from {
			rest = append(rest, Range{from, r.First - 1})
		}
		if from = r.Last + 1; from == 0 {
			return rest
		}
	}
	return append(rest, Range{from, ^uint64(0)})
}

// In reports whether a hash is in one of the ranges, which rise and do not meet.
func In(ranges []Range, h uint64) bool {
	i, _ := slices.BinarySearchFunc(ranges, h, func(r Range, h uint64) int {
		if r.Last < h {
			return -1
		}
		return 1
	})
	return i < len(ranges) && ranges[i].First <= h
}

// Meet reports whether one of the ranges has a hash from first to last.
func Meet(ranges []Range, first, last uint64) bool {
	return slices.ContainsFunc(ranges, func(r Range) bool { return r.First <= last && first <= r.Last })
}

// Run returns the last hash behind which another shard than the hash's follows.
func (c *Circle) Run(hash uint64) (last uint64) {
	owner, _ := c.Owner(hash)
	i, _ := slices.BinarySearchFunc(c.points, hash, func(p point, h uint64) int {
		if p.hash < h {
			return -1
		}
		return 1
	})
	for ; i < len(c.points); i++ {
		if c.points[i].shard != owner && c.points[i].hash != last {
			return last
		}
		last = max(last, c.points[i].hash)
	}
	if len(c.points) == 0 || c.points[0].shard == owner {
		return ^uint64(0)
	}
	return last
}
