package circle

import "slices"

// An Assignment says which shards share the circle. While it changes, each part that moves from one shard to another
// belongs to the old one until the pair of both is in Moved. So one small value determines the owner of each hash at
// any moment, and one change of this value hands over everything that moves between two shards.
type Assignment struct {
	Shards []uint32 `json:"shards"`          // in ascending order
	Next   []uint32 `json:"next,omitempty"`  // the shards after the change; empty: nothing moves
	Moved  []Pair   `json:"moved,omitempty"` // the parts of these pairs belong to the new owner already
	// Unused is the least number that no shard has had. A number is never reused, because a node that was away may
	// have a file of the shard that had it.
	Unused uint32 `json:"unused,omitempty"`
	// Change counts the changes that have begun. Two changes may have the same pairs; by the count, a node that
	// missed the end of one change does not mistake the next change for it.
	Change uint64 `json:"change,omitempty"`
}

// A Pair is an old owner and a new one.
type Pair struct {
	From uint32 `json:"from"`
	To   uint32 `json:"to"`
}

// A Move is the set of ranges that move from one shard to another.
type Move struct {
	Pair
	Ranges []Range // in ascending order
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

// Moving reports whether the assignment is changing.
func (a *Assignment) Moving() bool { return len(a.Next) > 0 }

// All returns the shards before and after the change, in ascending order.
func (a *Assignment) All() []uint32 {
	all := slices.Concat(a.Shards, a.Next)
	slices.Sort(all)
	return slices.Compact(all)
}

// Owners returns the shards that own a part of the circle, and those of Shards whose parts have all moved, in
// ascending order.
func (a *Assignment) Owners() []uint32 {
	all := slices.Clone(a.Shards)
	for _, p := range a.Moved {
		all = append(all, p.To)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Retired reports whether a shard had the number and no longer exists.
func (a *Assignment) Retired(number uint32) bool {
	return number < a.Unused && !slices.Contains(a.All(), number)
}

// At returns the circle with the present owner of each hash.
func (a *Assignment) At(seed uint64) *Circle {
	from := New(seed, a.Shards)
	if !a.Moving() {
		return from
	}
	var points []point
	a.parts(seed, from, func(last uint64, p Pair) {
		owner := p.From
		if slices.Contains(a.Moved, p) {
			owner = p.To
		}
		points = append(points, point{last, owner})
	})
	return of(points)
}

// Moves returns all moves of the change, in ascending order of the pairs; nil if nothing moves.
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
		points := make([]point, 0, len(parts))
		for _, x := range parts {
			goes := uint32(0)
			if x.Pair == p {
				goes = 1
			}
			points = append(points, point{x.last, goes})
		}
		list = append(list, Move{p, of(points).Ranges(1), slices.Contains(a.Moved, p)})
	}
	return list
}

// parts calls each, in ascending order, for the parts of the circle that have one old owner and one new one, with the
// last hash of each. Hashes above the last part belong to the first part.
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

// Done returns the assignment after the pair's parts have gone to the new owner. After the last pair, the change is
// over.
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

// Sorted returns disjoint ranges in ascending order, with adjacent ones merged.
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

// Rest returns the hashes outside the ranges, which are ascending and disjoint.
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

// In reports whether a hash is in one of the ranges, which are ascending and disjoint.
func In(ranges []Range, h uint64) bool {
	i, _ := slices.BinarySearchFunc(ranges, h, func(r Range, h uint64) int {
		if r.Last < h {
			return -1
		}
		return 1
	})
	return i < len(ranges) && ranges[i].First <= h
}

// Meet reports whether one of the ranges contains a hash from first to last.
func Meet(ranges []Range, first, last uint64) bool {
	return slices.ContainsFunc(ranges, func(r Range) bool { return r.First <= last && first <= r.Last })
}

// Run returns the last hash, counted upwards from hash, before the owner changes.
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
