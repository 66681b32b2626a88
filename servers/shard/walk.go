package shard

import (
	"slices"

	"flashdbm/servers/arena"
	"flashdbm/servers/circle"
	"flashdbm/servers/guard"
	"flashdbm/servers/store"
)

// A walk passes over the shard's content of some ranges of hashes, piece by piece: from the table if that is
// complete, else from both table and file. A walk finds all items that are shown when it begins and do not change
// until it ends; of a key that changes it finds one of the states. It may also find records of the file that are
// not committed yet.
type walk struct {
	ranges []circle.Range // ranges still to walk
	behind uint64         // the newest entry when the walk began
	asked  uint64         // id of the piece of the file that is under way, or has come and was not taken yet; 0: none
	came   *store.Piece
}

// walkChains is the most chains of the table that a step of a walk visits: some ten microseconds.
const walkChains = 256

func (s *Shard) newWalk(ranges []circle.Range) *walk {
	return &walk{ranges: slices.Clone(ranges), behind: s.seq}
}

func (w *walk) done() bool { return len(w.ranges) == 0 }

// next returns the items of the next piece, and the range that the piece covers; false: the piece is not there yet.
// The items are valid until the shard's state changes.
func (s *Shard) next(w *walk) (list []hashed, covered circle.Range, ok bool) {
	if s.shown < w.behind || s.o.Store != nil && s.o.Store.Applied() < w.behind {
		return nil, covered, false
	}
	covered = w.ranges[0]
	chains := walkChains
	switch {
	case w.came != nil:
		covered.Last, chains = w.came.Last, 1<<62
		for i := range w.came.Records {
			if r := &w.came.Records[i]; !s.has(w.came.Hashes[i], r.Key) {
				list = append(list, hashed{w.came.Hashes[i], guard.Item{Flags: r.Flags, Version: r.Version, Expiry: r.Expiry, Key: r.Key, Value: r.Value}})
			}
		}
		w.asked, w.came = 0, nil
	case w.asked != 0:
		return nil, covered, false
	case !s.complete:
		s.ids++
		w.asked = s.ids
		s.o.Store.Load(s.ids, covered.First, covered.Last, copyBytes)
		return nil, covered, false
	}
	for from, size := covered.First, 0; ; chains-- {
		part, last := s.chain(from, covered.Last)
		list = append(list, part...)
		for i := range part {
			size += copyItemHead + len(part[i].Key) + len(part[i].Value)
		}
		if from = last + 1; last == covered.Last {
			break
		}
		if chains <= 1 || chains < 1<<32 && size >= copyBytes {
			covered.Last = last
			break
		}
	}
	if covered.Last == w.ranges[0].Last {
		w.ranges = w.ranges[1:]
	} else {
		w.ranges[0].First = covered.Last + 1
	}
	return list, covered, true
}

// under yields the walks under way: over the move from the shard, over arrivals, and over what is dropped.
func (s *Shard) under(yield func(*walk) bool) {
	if s.out != nil && s.out.copy != nil && !yield(s.out.copy) || s.tidy != nil && !yield(s.tidy) {
		return
	}
	for _, a := range s.in {
		if a.clear != nil && !yield(a.clear) {
			return
		}
	}
}

// pieceForWalk takes a piece of the file that next has requested.
func (s *Shard) pieceForWalk(p *store.Piece) bool {
	for w := range s.under {
		if w.asked == p.ID {
			w.came = p
			return true
		}
	}
	return false
}

// walked reports whether a piece for a walk covers the hash, and may have been read before now: it is under way, or
// next has not taken it yet. Until then the memory keeps the key's item, or the fact that it was removed, because
// next takes from the piece all keys that are not known in memory.
func (s *Shard) walked(h uint64) bool {
	for w := range s.under {
		if w.asked == 0 {
			continue
		}
		r := w.ranges[0]
		if w.came != nil {
			r.Last = w.came.Last
		}
		if r.First <= h && h <= r.Last {
			return true
		}
	}
	return false
}

// A drop is a range that an entry has dropped.
type drop struct {
	circle.Range
	seq uint64
}

// dropNext drops the content of the next piece of a walk, and reports whether there was a piece.
func (s *Shard) dropNext(w *walk) bool {
	list, covered, ok := s.next(w)
	if ok && len(list) > 0 {
		s.appendDrop(covered)
	}
	return ok
}

// appendDrop decides that the shard has nothing of a range from now on.
func (s *Shard) appendDrop(r circle.Range) {
	seq := s.append(entry{empty: true, drops: true, hash: r.First, guardian: r.Last})
	s.replicate(seq, &change{kind: changeDrop, entry: s.base + seq, origin: &origin{number: r.First, oldest: r.Last}})
	if s.o.Store != nil {
		s.o.Store.Append(store.Entry{Seq: seq, Term: s.reignTerm(), Hash: r.First, Last: r.Last, Drop: true})
	}
}

// drop removes a range from memory.
func (s *Shard) drop(d drop) {
	if s.loading || s.toLoad || s.copying {
		s.drops = append(s.drops, d) // pieces read before may still come (invariant 22)
	}
	for from := d.First; ; {
		places, last := s.table.Scan(from, s.places[:0])
		s.places = places
		for _, p := range places {
			it := s.item(arena.Place(p))
			h := s.hash(it.Key)
			if h < d.First || h > d.Last {
				continue
			}
			if it.Expiry != 0 {
				s.expiring--
			}
			guard.Hide(guard.Bytes(s.arena.Bytes(arena.Place(p))))
			s.table.Remove(h, p)
			s.arena.Retire(arena.Place(p), s.now)
		}
		if last >= d.Last {
			return
		}
		from = last + 1
	}
}

// wasDropped reports whether an entry newer than behind has dropped a range with the
// hash.
func (s *Shard) wasDropped(h, behind uint64) bool {
	return slices.ContainsFunc(s.drops, func(d drop) bool { return d.First <= h && h <= d.Last && d.seq > behind })
}

// forgetDrops forgets drops once no old content can arrive any more: the load has ended, and no copy is under
// way.
func (s *Shard) forgetDrops() {
	if !s.loading && !s.toLoad && !s.copying {
		s.drops = nil
	}
}
