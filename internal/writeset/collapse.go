package writeset

import (
	"slices"

	"flashdbm/internal/btree"
	"flashdbm/internal/redo"
	"flashdbm/logstore"
)

// A transaction that overwrites what has left memory leaves the older record in its layer, and the older run or large value in its
// segments. Once more than half of all that is such, the whole is written anew, the newest record of each key, and the old segments are free.
// So a transaction takes about twice what it writes in the end, and some segments.
//
// Whether that much is overwritten is estimated: to look each record up would cost more than to write it, and to merge all layers in vain
// would double what a bulk load writes. For some of the keys, chosen by their hashes, the size of the newest record is remembered. Their sum
// is in proportion to what lives, however often and however unevenly keys are overwritten.
//
// The segments that become free are private, of a transaction that has not committed: no group and no checkpoint names them, so recovery
// after a crash at any point finds them free. What is written anew may be lost as well.

const (
	tallyKeys    = 1 << 10  // whose sizes are remembered at most: 40 KiB, and an error of a few percent,
	tallyHeavy   = 1 << 8   // beside those of this many heavy records,
	leastHeavy   = 16 << 10 // which have this many bytes at least
	spillSlack   = 4        // segments that may be overwritten in any case
	collapseWait = 8        // an eighth more is written before it is tried again on a full file
)

// tally estimates how much of a spill lives.
//
// A record counts as heavy from heavyFrom bytes on: those are all remembered, as the sizes of a few would say little about others. Where there are
// too many of them heavyFrom is doubled, and the lighter ones are records like others.
type tally struct {
	bytes     int64            // that it takes in the file
	least     int64            // of them, below which nothing is done
	sizes     map[uint64]int64 // hash -> bytes of the newest record, of keys whose hashes end in zeros zeros
	zeros     uint
	heavy     map[uint64]int64 // hash -> bytes of the newest record, of keys for which that is heavy
	heavyFrom int64
}

// note adds a record of the given bytes.
func (t *tally) note(hash uint64, bytes int64) {
	if t.sizes == nil {
		t.sizes, t.heavy, t.heavyFrom = map[uint64]int64{}, map[uint64]int64{}, leastHeavy
	}
	t.bytes += bytes
	if bytes < t.heavyFrom {
		delete(t.heavy, hash)
		t.sample(hash, bytes)
		return
	}
	delete(t.sizes, hash)
	t.heavy[hash] = bytes
	for len(t.heavy) > tallyHeavy {
		t.heavyFrom *= 2
		for h, n := range t.heavy {
			if n < t.heavyFrom {
				delete(t.heavy, h)
				t.sample(h, n)
			}
		}
	}
}

// sample remembers the size of a record if its key's hash is among those that are looked at.
func (t *tally) sample(hash uint64, bytes int64) {
	if hash&(1<<t.zeros-1) != 0 {
		return
	}
	t.sizes[hash] = bytes
	for len(t.sizes) > tallyKeys {
		t.zeros++
		for h := range t.sizes {
			if h&(1<<t.zeros-1) != 0 {
				delete(t.sizes, h)
			}
		}
	}
}

// live estimates what is not overwritten.
func (t *tally) live() (bytes int64) {
	for _, n := range t.sizes {
		bytes += n
	}
	bytes <<= t.zeros
	for _, n := range t.heavy {
		bytes += n
	}
	return bytes
}

// recordSize is what a record takes in its layer and elsewhere.
func recordSize(r *layerRecord) int64 {
	n := int64(len(r.key)+len(r.value)) + redo.MaxRecord
	if ref, ok := r.ref(); ok && ref.Kind == btree.Extents {
		n += int64(r.valLen) + logstore.PageSize
	} else if ok {
		n += logstore.RunPages(int64(ref.KeyLen)+int64(ref.ValueLen)) * logstore.PageSize
	}
	return n
}

// overwritten reports whether most of what the spill takes is no use any more.
func (s *Spill) overwritten() bool {
	t := &s.tally
	slack := spillSlack * int64(s.store.SegmentPages()) * logstore.PageSize
	return len(s.layers) > 1 && t.bytes >= max(t.least, slack) && t.bytes > 2*t.live()+slack
}

// collapse writes the newest record of each key into one layer, and the runs into new segments, and frees the others. What slices were
// handed out of stays until the transaction ends, and large values that were lent. After an error all is as it was.
func (s *Spill) collapse(lent map[logstore.Addr]int) (err error) {
	fresh := &Spill{store: s.store, claim: s.claim}
	lw := newLayerWriter(s.store, s.claim)
	defer func() {
		if err != nil {
			lw.discard()
			fresh.Discard()
		}
	}()
	used := map[logstore.Addr]bool{} // starts of large values
	m := MergeLayers(s.layers, nil)
	for m.Next() {
		c := m.present()
		r := c.rec
		if _, ok := r.ref(); ok {
			en, err := c.l.entryOf(c.key, &r)
			if err != nil {
				return err
			}
			if en.Ref != nil {
				used[en.Ref.Extents[0].Addr] = true
			}
			if r, err = fresh.record(&en); err != nil {
				return err
			}
		}
		if err := lw.add(&r, c.key); err != nil {
			return err
		}
		fresh.tally.bytes += recordSize(&r)
	}
	if err := m.Err(); err != nil {
		return err
	}
	if fresh.values != nil {
		if err := fresh.values.FinishRuns(); err != nil {
			return err
		}
	}
	l, err := lw.finish()
	if err != nil {
		return err
	}
	for _, old := range s.layers {
		l.tier = max(l.tier, old.tier, 1)
	}
	s.replaced(s.layers, s.values)
	s.large = slices.DeleteFunc(s.large, func(p *logstore.Private) bool {
		switch {
		case used[p.Start()]:
			return false
		case lent[p.Start()] > 0:
			s.retired = append(s.retired, p)
		default:
			p.Discard()
		}
		return true
	})
	s.layers, s.values, s.lost = []*Layer{l}, fresh.values, nil
	s.tally.bytes, s.tally.least = fresh.tally.bytes, 0
	return nil
}

// replaced gives up layers, and runs that no layer leads to any more, unless slices of them were handed out.
func (s *Spill) replaced(layers []*Layer, values *logstore.Private) {
	for _, l := range layers {
		if s.read {
			s.retired = append(s.retired, l.private)
		} else {
			l.private.Discard()
		}
	}
	switch {
	case values == nil:
	case s.read:
		s.retired = append(s.retired, values)
	default:
		values.Discard()
	}
}
