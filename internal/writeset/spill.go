package writeset

import (
	"bytes"

	"flashdbm/internal/btree"
	"flashdbm/internal/redo"
	"flashdbm/logstore"
)

// Spill is the part of a write set that was moved from memory to the file: layers, and the runs to which their
// records refer. It belongs to the transaction until the group that lists it is written, and then to the tree.
// If the transaction does not commit, the spill is discarded.
//
// Invariants:
//
//   - Entries in memory are newer than every layer, and each layer is newer than the layers before
//     it in the list.
//   - Each run in values belongs to one record of a layer, or is in lost.
//   - Pages of which readers may still have slices stay until the transaction ends. If a cursor has returned
//     slices, these include the pages of merged layers and of runs. Lookups return copies.
type Spill struct {
	store  *logstore.Store
	claim  logstore.Claim      // takes segments
	layers []*Layer            // oldest first
	values *logstore.Private   // runs of long values and keys; nil without any
	large  []*logstore.Private // large values to which layers refer
	lost   []btree.Ref         // runs of records that newer ones replaced, in layers merged since
	read   bool                // a cursor has returned slices
	turns  int                 // how often a layer was added
	tally  tally               // estimates the live part

	// retired are the segments of replaced layers, runs and large values of which readers may still have slices.
	retired []*logstore.Private
}

// Spilled returns the spilled part of the set, nil if there is none.
func (w *Set) Spilled() *Spill { return w.spill }

// mergeLayers is how many layers of one tier are merged into one of the next. With more, a lookup searches more
// layers; with fewer, records are rewritten more often.
const mergeLayers = 16

// SpillPages bounds the pages of the segments that Spill takes: some for a layer, others for the runs of long keys
// and values.
func (w *Set) SpillPages(s *logstore.Store) int64 {
	size := int64(s.SegmentPages()) - 1
	var layer, segments int64
	at := size // used pages of the last segment for runs
	for en := range w.All() {
		bytes, run := int64(min(len(en.Key), btree.MaxInlineKey)), int64(btree.RunKeyLen(en.Key))
		switch {
		case en.Ref != nil:
			run += logstore.ListBytes(len(en.Ref.Extents))
		case btree.FitsInline(len(en.Key), len(en.Value)):
			bytes += int64(len(en.Value))
		default:
			run += int64(len(en.Value))
		}
		layer += bytes + redo.MaxRecord + layerSlot
		if run == 0 {
			continue
		}
		if pages := logstore.RunPages(run); at+pages <= size {
			at += pages
		} else {
			at = pages
			segments++
		}
	}
	segments += 2*layer/logstore.PageSize/size + 1 // each page is at least half full
	return segments * (size + 1)
}

// add writes a layer of the entries that w has in memory, and returns the large values to which it does not refer.
// After ErrFull it may be called again; the runs written by the failed call are then in lost.
func (s *Spill) add(w *Set, large []*logstore.Private) (rest []*logstore.Private, err error) {
	lw := newLayerWriter(s.store, s.claim)
	var runs []btree.Ref
	defer func() {
		if err != nil {
			lw.discard()
			s.lost = append(s.lost, runs...)
		}
	}()
	taken := map[logstore.Addr]bool{}
	for en := range w.All() {
		r, err := s.record(&en)
		if err != nil {
			return nil, err
		}
		ref, ok := r.ref()
		if en.Ref != nil {
			taken[en.Ref.Extents[0].Addr] = true
			ref.Kind, ref.ValueLen = btree.Run, uint64(logstore.ListBytes(len(en.Ref.Extents))) // only the list is lost, not the extents in it
		}
		if ok {
			runs = append(runs, ref)
		}
		if err := lw.add(&r, en.Key); err != nil {
			return nil, err
		}
		s.tally.note(HashKey(en.Key), recordSize(&r))
	}
	if s.values != nil {
		if err := s.values.FinishRuns(); err != nil {
			return nil, err
		}
	}
	l, err := lw.finish()
	if err != nil {
		return nil, err
	}
	s.layers = append(s.layers, l)
	s.turns++
	for _, p := range large {
		if taken[p.Start()] {
			s.large = append(s.large, p)
		} else {
			rest = append(rest, p) // overwritten
		}
	}
	return rest, nil
}

// record returns the layer record of an entry, after it has written the entry's run.
func (s *Spill) record(en *Entry) (r layerRecord, err error) {
	r.keyLen, r.key = len(en.Key), en.Key[:min(len(en.Key), btree.MaxInlineKey)]
	long := en.Key[:btree.RunKeyLen(en.Key)]
	switch {
	case en.Deleted && len(long) == 0:
		r.code = layerDelete
		return r, nil
	case !en.Deleted && en.Ref == nil && btree.FitsInline(len(en.Key), len(en.Value)):
		r.code, r.value = layerPut, en.Value
		return r, nil
	}
	if s.values == nil {
		s.values = s.store.NewPrivate()
	}
	s.values.Claim = s.claim
	switch {
	case en.Deleted:
		r.code = layerLong
		r.addr, err = s.values.Run(long)
	case en.Ref != nil:
		r.code, r.valLen = layerList, en.Ref.Len
		r.addr, err = s.values.List(long, en.Ref.Extents)
	default:
		r.code, r.valLen = layerRun, uint64(len(en.Value))
		r.addr, err = s.values.Run(long, en.Value)
	}
	return r, err
}

// compact merges the newest layers as long as there are mergeLayers of one tier.
func (s *Spill) compact() error {
	for {
		n := len(s.layers)
		from := n
		for from > 0 && s.layers[from-1].tier == s.layers[n-1].tier {
			from--
		}
		if n-from < mergeLayers {
			return nil
		}
		l, lost, err := mergedLayer(s.store, s.claim, s.layers[from:])
		if err != nil {
			return err
		}
		l.tier = s.layers[n-1].tier + 1
		s.replaced(s.layers[from:], nil)
		s.layers = append(s.layers[:from:from], l)
		s.lost = append(s.lost, lost...)
	}
}

// mergedLayer writes a layer with the newest record of each key, and returns the runs of the older ones.
func mergedLayer(store *logstore.Store, c logstore.Claim, layers []*Layer) (l *Layer, lost []btree.Ref, err error) {
	lw := newLayerWriter(store, c)
	defer func() {
		if err != nil {
			lw.discard()
		}
	}()
	m := MergeLayers(layers, func(run btree.Ref) { lost = append(lost, run) })
	for m.Next() {
		c := m.present()
		if err := lw.add(&c.rec, c.key); err != nil {
			return nil, nil, err
		}
	}
	if err := m.Err(); err != nil {
		return nil, nil, err
	}
	l, err = lw.finish()
	return l, lost, err
}

// find returns the newest entry of key in the layers, and whether there is one.
func (s *Spill) find(key []byte) (en Entry, ok bool, err error) {
	for i := len(s.layers) - 1; i >= 0; i-- {
		l := s.layers[i]
		if bytes.Compare(key, l.last) > 0 {
			continue
		}
		page, index, err := l.find(key)
		if err != nil || page == l.pages {
			return en, false, err
		}
		p := l.page(page)
		if order, err := l.compare(p, index, key); err != nil {
			return en, false, err
		} else if order != 0 {
			continue
		}
		r, err := getLayerRecord(p, index)
		if err != nil {
			return en, false, err
		}
		key, err := l.keyOf(&r)
		if err != nil {
			return en, false, err
		}
		en, err = l.entryOf(key, &r)
		en.Key, en.Value = bytes.Clone(en.Key), bytes.Clone(en.Value) // copied: the pages may be freed before the transaction ends
		return en, err == nil, err
	}
	return en, false, nil
}

// size returns the bytes that the layers' records take in leaves, and the most that one of them takes.
func (s *Spill) size() (bytes int64, widest int) {
	for _, l := range s.layers {
		bytes, widest = bytes+l.bytes, max(widest, l.widest)
	}
	return bytes, widest
}

// Keys returns the number of records in the layers, which is at least the number of keys.
func (s *Spill) Keys() (n int64) {
	for _, l := range s.layers {
		n += l.records
	}
	return n
}

// Layers returns the layers, oldest first.
func (s *Spill) Layers() []*Layer { return s.layers }

// Lost returns the runs to which no record of a layer refers.
func (s *Spill) Lost() []btree.Ref { return s.lost }

// Discard frees all segments of the spill: the transaction does not commit.
func (s *Spill) Discard() {
	for _, l := range s.layers {
		l.private.Discard()
	}
	for _, p := range append(s.large, s.retired...) {
		p.Discard()
	}
	if s.values != nil {
		s.values.Discard()
	}
	*s = Spill{store: s.store}
}

// Owned returns the extents to which the layers' records refer: those of runs, and of large values.
func (s *Spill) Owned() (all [][]logstore.Extent) {
	if s.values != nil {
		all = append(all, s.values.Extents())
	}
	for _, p := range s.large {
		all = append(all, p.Extents())
	}
	return all
}

// Publish hands the segments over to the tree, after group, which lists them, was written. No snapshot below birth
// shows the large values. Layers and runs, which have the long keys, get no such bound: transactions that check
// for conflicts still read them, at any Seq.
func (s *Spill) Publish(group, birth uint64) {
	for _, l := range s.layers {
		l.private.Publish(group, 0)
	}
	for _, p := range s.large {
		p.Publish(group, birth)
	}
	if s.values != nil {
		s.values.Publish(group, 0)
	}
	for _, p := range s.retired {
		p.Discard()
	}
	s.retired = nil
}

// Bytes returns the bytes that the layers take in the file.
func (s *Spill) Bytes() (n int64) {
	for _, l := range s.layers {
		n += int64(l.pages) * logstore.PageSize
	}
	return n
}

// listPages bounds the pages that the group needs to list the layers: a list for each layer and each owner of runs,
// stored in runs of at most maxRun bytes, and the redo records that refer to these runs.
func (s *Spill) listPages(maxRun int64) int64 {
	n := redo.Pages(int64(len(s.lost)+1) * redo.MaxRecord)
	list := func(extents int) {
		bytes := logstore.ListBytes(extents)
		n += logstore.RunReserve(logstore.RunPages(min(bytes, maxRun)))*(bytes/maxRun+1) + redo.Pages(redo.MaxRecord*(bytes/maxRun+1))
	}
	for _, l := range s.layers {
		list(len(l.extents))
	}
	for _, x := range s.Owned() {
		list(len(x))
	}
	return n
}
