package writeset

import (
	"slices"

	"flashdbm/internal/btree"
	"flashdbm/internal/redo"
	"flashdbm/logstore"
)

// A transaction that overwrites a record in a layer leaves the older record there, and its run or large value in
// the segments of these. When more than half of all that is overwritten, the newest record of each key is written
// to a new layer, and the old segments are freed. So a transaction takes at most about twice the space of its
// final writes, plus some segments.
//
// The overwritten part is estimated. To look up each record would cost more than to write it, and a needless merge
// of all layers would double what a bulk load writes. So the size of the newest record is remembered for a sample
// of the keys, chosen by their hashes. The sum of these sizes is proportional to the live bytes, however often and
// however unevenly keys are overwritten.
//
// The segments that become free are private segments of a transaction that has not committed. No group and no
// checkpoint names them, so recovery finds them free after a crash at any point. The rewritten records may be lost
// as well.

const (
	tallyKeys    = 1 << 10  // most keys in the sample: 40 KiB of memory, and an error of a few percent
	tallyHeavy   = 1 << 8   // most heavy records, which are remembered in addition
	leastHeavy   = 16 << 10 // least bytes of a heavy record
	spillSlack   = 4        // segments that may be overwritten before layers are rewritten
	collapseWait = 8        // on a full file, the next try comes when the spill has grown by an eighth
)

// tally estimates how much of a spill is live.
//
// Records of at least heavyFrom bytes are heavy. All of them are remembered, because a sample of such records
// would be a bad estimate of the rest. When there are more than tallyHeavy, heavyFrom is doubled, and the
// lighter ones are sampled like other records.
type tally struct {
	bytes     int64            // bytes that the spill takes in the file
	least     int64            // layers are not rewritten while bytes is below this
	sizes     map[uint64]int64 // hash -> bytes of the newest record, for keys whose hashes end in zeros zero bits
	zeros     uint
	heavy     map[uint64]int64 // hash -> bytes of the newest record, for keys for which it is heavy
	heavyFrom int64
}

// note adds a record of the given size in bytes.
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

// sample remembers the size of a record if its key belongs to the sample. If the sample gets too large, it is
// halved.
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

// live estimates the bytes that are not overwritten.
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

// recordSize returns the bytes that a record takes in its layer and elsewhere.
func recordSize(r *layerRecord) int64 {
	n := int64(len(r.key)+len(r.value)) + redo.MaxRecord
	if ref, ok := r.ref(); ok && ref.Kind == btree.Extents {
		n += int64(r.valLen) + logstore.PageSize
	} else if ok {
		n += logstore.RunPages(int64(ref.KeyLen)+int64(ref.ValueLen)) * logstore.PageSize
	}
	return n
}

// overwritten reports whether most of the spill is estimated to be overwritten.
func (s *Spill) overwritten() bool {
	t := &s.tally
	slack := spillSlack * int64(s.store.SegmentPages()) * logstore.PageSize
	return len(s.layers) > 1 && t.bytes >= max(t.least, slack) && t.bytes > 2*t.live()+slack
}

// collapse writes the newest record of each key to one layer, and its run to new segments, and frees the old ones.
// Segments of which slices were returned, and large values in lent, stay until the transaction ends. After an
// error nothing has changed.
func (s *Spill) collapse(lent map[logstore.Addr]int) (err error) {
	fresh := &Spill{store: s.store, claim: s.claim}
	lw := newLayerWriter(s.store, s.claim)
	defer func() {
		if err != nil {
			lw.discard()
			fresh.Discard()
		}
	}()
	used := map[logstore.Addr]bool{} // start addresses of large values
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

// replaced frees layers, and the segments of runs that no layer refers to any more. If slices of them were
// returned, it keeps them in retired instead.
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
