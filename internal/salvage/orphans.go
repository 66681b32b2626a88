package salvage

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// An orphan is a leaf to which no page leads any more, and which has keys in a lost range.
type orphan struct {
	at          image
	group       uint64
	first, last []byte
}

// orphans recovers the records of lost ranges: from leaves found among all sound pages, and from facts.
func (s *salvager) orphans(ctx context.Context) error {
	if len(s.lost) == 0 {
		return nil
	}
	var newest, older []orphan
	for i := range s.refs {
		r := &s.refs[i]
		if r.kind != logstore.KindTree || r.level > 0 || s.visited.Has(r.addr) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		current := s.isCurrent(r)
		if !current && !s.opts.Older {
			continue
		}
		first, last, ok := s.keysOf(r.addr)
		if !ok || !s.anyLost(first, last) {
			continue
		}
		o := orphan{image{r.addr, s.low}, r.group, first, last}
		if at, ok := s.place(r.name); ok && at.addr == r.addr {
			o.at = at
		} else if s.checkpoint == nil {
			o.at.asOf = r.group - 1
		}
		if current {
			newest = append(newest, o)
		} else {
			older = append(older, o)
		}
	}
	seen := &intervals{}
	if err := s.putOrphans(newest, seen, false); err != nil {
		return err
	}
	for _, l := range s.lost {
		facts := s.factsIn(l.low, l.high)
		for i := range facts {
			if f := &facts[i]; f.asOf > seen.asOf(f.key) {
				if err := s.putFact(f, 0); err != nil {
					return err
				}
			}
		}
	}
	return s.putOrphans(older, seen, true)
}

// putOrphans emits the records of leaves, newest first. A key between the first and the last key of a newer
// leaf that is not in that leaf was deleted.
func (s *salvager) putOrphans(all []orphan, seen *intervals, older bool) error {
	slices.SortStableFunc(all, func(a, b orphan) int {
		return cmp.Or(-cmp.Compare(a.at.asOf, b.at.asOf), -cmp.Compare(a.group, b.group))
	})
	for _, o := range all {
		var failed error
		s.eachCell(o.at.addr, func(key []byte, c btree.Cell) {
			if failed != nil || !s.isLost(key) || seen.has(string(key)) {
				return
			}
			f := s.factOf(key)
			if f != nil && (older || f.asOf > o.at.asOf) { // orphans emits the facts of lost ranges itself
				return
			}
			if !older && s.absent.asOf(string(key)) > o.at.asOf {
				return
			}
			if older {
				s.result.Older++
				s.missing(Missing{Scope: OlderRecord, Page: o.at.addr, From: bytes.Clone(key), FirstGroup: o.group})
			}
			failed = s.putCell(o.at.addr, key, c)
		})
		if failed != nil {
			return failed
		}
		seen.add(string(o.first), string(o.last), o.at.asOf)
	}
	return nil
}

// isCurrent reports whether a leaf may be in use: the map says that it is live, or it was installed since, and no
// newer image has its name. Without a map, the newest image of a name may be in use.
func (s *salvager) isCurrent(r *entry) bool {
	if s.removed[r.name] || s.removed[r.addr] {
		return false
	}
	at, moved := s.places[r.name]
	if moved && at.addr == r.addr {
		return true
	}
	if at, ok := s.places[r.addr]; ok && at.addr == r.addr {
		return true
	} else if ok || moved {
		return false
	}
	if s.checkpoint == nil {
		return false
	}
	if a, ok := s.entries[r.addr]; ok && a != r.addr {
		return false
	}
	return s.checkpoint.isLive(r.addr, s.f.SegmentPages)
}

// keysOf returns the first and the last key of the leaf at a.
func (s *salvager) keysOf(a logstore.Addr) (first, last []byte, ok bool) {
	s.eachCell(a, func(key []byte, _ btree.Cell) {
		if !ok {
			first, ok = bytes.Clone(key), true
		}
		last = append(last[:0], key...)
	})
	return first, last, ok
}

// anyLost reports whether a key from first to last lies in a lost range. Lost ranges ascend and do not overlap.
func (s *salvager) anyLost(first, last []byte) bool {
	i, _ := slices.BinarySearchFunc(s.lost, first, func(l lostRange, key []byte) int {
		if len(l.high) > 0 && bytes.Compare(l.high, key) <= 0 {
			return -1
		}
		return 1
	})
	return i < len(s.lost) && bytes.Compare(s.lost[i].low, last) <= 0
}

func (s *salvager) isLost(key []byte) bool { return s.anyLost(key, key) }

// intervals are the ranges of keys, from first to last, of the leaves emitted so far, and the groups as of which
// these leaves are.
type intervals struct {
	all []interval // disjoint, ascending
}

type interval struct {
	first, last string
	asOf        uint64
}

// at returns the index of the first interval that ends at key or after it.
func (v *intervals) at(key string) int {
	i, _ := slices.BinarySearchFunc(v.all, key, func(x interval, key string) int {
		if x.last < key {
			return -1
		}
		return 1
	})
	return i
}

func (v *intervals) has(key string) bool {
	i := v.at(key)
	return i < len(v.all) && v.all[i].first <= key
}

// asOf returns the group of the interval that contains key, 0 if there is none.
func (v *intervals) asOf(key string) uint64 {
	if i := v.at(key); i < len(v.all) && v.all[i].first <= key {
		return v.all[i].asOf
	}
	return 0
}

// add adds the range from first to last, joined with the intervals that it overlaps.
func (v *intervals) add(first, last string, asOf uint64) {
	i := v.at(first)
	end := i
	for end < len(v.all) && v.all[end].first <= last {
		end++
	}
	if i == end {
		v.all = slices.Insert(v.all, i, interval{first, last, asOf})
		return
	}
	joined := interval{min(first, v.all[i].first), max(last, v.all[end-1].last), asOf}
	for _, x := range v.all[i:end] {
		joined.asOf = max(joined.asOf, x.asOf)
	}
	v.all = slices.Replace(v.all, i, end, joined)
}
