package mvcc

import (
	"bytes"
	"math"
	"sync/atomic"

	"flashdbm/internal/btree"
	"flashdbm/internal/redo"
	"flashdbm/logstore"
)

// spill is what of a write set has left memory: layers, and the runs that their records lead to. It belongs to the transaction until the
// group that lists it is written, then to the tree, or is discarded with the transaction.
//
// Invariants:
//
//   - What memory holds is newer than every layer, and a layer newer than those before it.
//   - Each run in values belongs to one record of a layer, or is in lost.
//   - Whatever a reader may still have a slice of stays until the transaction ends: layers that were merged into others too, and runs, if a
//     cursor has handed out slices. Lookups hand out copies.
type spill struct {
	store  *logstore.Store
	claim  logstore.Claim      // by which segments are taken
	layers []*layer            // oldest first
	values *logstore.Private   // runs of long values and keys, nil without any
	large  []*logstore.Private // large values that layers lead to
	lost   []btree.Ref         // runs of records that newer ones have replaced, in layers merged since
	read   bool                // slices were handed out
	turns  int                 // times that the layers changed
	tally  tally               // of what lives

	retired []*logstore.Private // what layers, runs and large values that others have taken the place of lie in, if somebody may read there
}

// turns returns how often layers were added to the set.
func (w *WriteSet) turns() int {
	if w.spill == nil {
		return 0
	}
	return w.spill.turns
}

// mergeLayers is how many layers of a tier become one of the next, so that looking a key up meets few.
const mergeLayers = 16

// spillBudget is what transactions have in memory for write sets, all together.
type spillBudget struct {
	step   int64         // bytes by which a set grows until it is charged again
	bytes  atomic.Int64  // of sets, as far as they were charged
	sets   atomic.Int64  // that were charged
	layers atomic.Uint64 // written since the engine was opened

	collapsed atomic.Uint64 // times that all of a set was written anew
}

const (
	spillShare   = 4 // write sets may take a quarter of MemoryLimit
	chargeStep   = 16
	leastSpilled = 64 << 10 // bytes of a set that are worth writing, if the budget is not very small
)

// spillBytes is the budget of all write sets together.
func (e *Engine) spillBytes() int64 {
	if n := e.opts.Shares.WriteSets; n > 0 {
		return n
	}
	return e.opts.MemoryLimit / spillShare
}

// setStep sets the step of charges.
func (e *Engine) setStep() {
	e.budget.step = max(min(leastSpilled, e.spillBytes()/8)/chargeStep, 1)
}

// charge accounts for the memory of a write set that has grown, and reports whether it must leave memory: all sets together have too
// much, and this one has its share of that. A small set is not looked at by others.
func (e *Engine) charge(w *WriteSet) (due bool) {
	held := w.used()
	if held-w.charged < e.budget.step {
		return false
	}
	budget := e.spillBytes()
	least := min(leastSpilled, budget/8)
	if w.charged == 0 {
		e.budget.sets.Add(1)
	}
	total := e.budget.bytes.Add(held - w.charged)
	w.charged = held
	return total > budget && held >= max(least, budget/(2*e.budget.sets.Load()))
}

// discharge takes back what charge has noted.
func (e *Engine) discharge(w *WriteSet) {
	if w.charged != 0 {
		e.budget.bytes.Add(-w.charged)
		e.budget.sets.Add(-1)
		w.charged = 0
	}
}

// used estimates the memory that the entries take. Unlike Bytes it does not depend on what the set was used for before.
func (w *WriteSet) used() int64 {
	const recordMemory = recordBytes + 24 // and its share of a block
	return w.redoBytes + w.staleBytes + int64(w.records.n)*recordMemory
}

// grown lets a write set that has grown leave memory if it must.
func (tx *Tx) grown() error {
	if !tx.e.charge(tx.set) || tx.stays() {
		return nil
	}
	if err := tx.toFile(); err != nil {
		return err
	}
	defer tx.e.unpinned.leave()
	return tx.spill(false)
}

// stays reports whether a write set that should leave memory had better not: deletes on a full file. In segments they would take more than
// there may be, and they are what sets some free. All together such sets may take as much again as the budget, and each a little.
func (tx *Tx) stays() bool {
	used := tx.set.used()
	if !tx.deletesOnly() || used >= leastSpilled && tx.e.budget.bytes.Load() >= 2*tx.e.spillBytes() {
		return false
	}
	if used < tx.stayed+tx.stayed/8 {
		return true
	}
	tx.stayed = 0
	pages := tx.spillPages()
	err := tx.e.store.ReserveFor(logstore.ForDeletes, pages, tx.estimate())
	if err == nil {
		tx.e.store.Release(pages)
	}
	if !logstore.IsFull(err) {
		return false
	}
	tx.stayed = used // to look at it again and again would cost more than all the rest
	return true
}

// spill moves what the write set has in memory to a new layer. If the file is full it asks the housekeeping for room. After an error the
// transaction cannot commit. The last layer is written by the commit, and not merged with others.
//
// A transaction that only deletes takes segments as deletes take room.
func (tx *Tx) spill(last bool) error {
	if tx.spillErr == nil && tx.set.Len() > 0 {
		err := tx.spillOnce(last, tx.claim())
		if logstore.IsFull(err) {
			err = tx.spillFull(last)
		}
		tx.spillErr = err
	}
	return tx.spillErr
}

// spillFull is spill on a full file. Each try that fails half way leaves lost runs behind, and they lie in segments: so none is made
// before there is room for all of it.
func (tx *Tx) spillFull(last bool) (err error) {
	e, need := tx.e, tx.spillPages()
	w := roomWanted{pages: math.MaxInt32} // the readers that it asks to end may be this one, while the function runs
	if last {
		w.deletes, w.pages = tx.deletesOnly(), need
	}
	w.reserve = func(more int64) error {
		if err := tx.cancelled(); err != nil {
			return err
		}
		if err := e.store.ReserveFor(tx.claim(), need, more); err != nil {
			return err
		}
		e.store.Release(need)
		return tx.spillOnce(last, tx.claim())
	}
	if last {
		tx.unpin()
		defer func() {
			if perr := tx.pin(); err == nil {
				err = perr
			}
		}()
	}
	err = e.keeper.makeRoom(e, w)
	if tx.deletesOnly() && logstore.IsFull(err) {
		err = tx.spillOnce(last, logstore.ForWant)
	}
	return err
}

// spillPages bounds the pages of the segments that spilling takes: for a layer, and in others for the runs of long keys and values.
func (tx *Tx) spillPages() int64 {
	size := int64(tx.e.store.SegmentPages()) - 1
	var layer, segments int64
	at := size // of the last segment of runs: as much is used
	for en := range tx.set.All() {
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
	segments += 2*layer/logstore.PageSize/size + 1 // half a page at least has records
	return segments * (size + 1)
}

func (tx *Tx) spillOnce(last bool, c logstore.Claim) error {
	w := tx.set
	if w.spill == nil {
		w.spill = &spill{store: tx.e.store}
	}
	w.spill.claim = c
	if w.Len() > 0 {
		large, err := w.spill.add(w, tx.large)
		if err != nil {
			return err
		}
		tx.large = large
		tx.e.budget.layers.Add(1)
		w.forget()
		tx.e.discharge(w)
	}
	if last {
		return nil
	}
	var err error
	if s := w.spill; s.overwritten() {
		if err = s.collapse(tx.lent); err == nil {
			tx.e.budget.collapsed.Add(1)
		} else if logstore.IsFull(err) {
			s.tally.least = s.tally.bytes + s.tally.bytes/collapseWait
		}
	} else {
		err = s.compact()
	}
	if logstore.IsFull(err) { // with many layers all goes on too
		return nil
	}
	return err
}

// add writes a layer of what w has in memory, and returns the large values that are not in it. After ErrFull it may be called again: runs
// written in vain are lost ones.
func (s *spill) add(w *WriteSet, large []*logstore.Private) (rest []*logstore.Private, err error) {
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
			ref.Kind, ref.ValueLen = btree.Run, uint64(logstore.ListBytes(len(en.Ref.Extents))) // what it lists is not lost
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

// record returns the record of an entry, with its run written.
func (s *spill) record(en *Entry) (r layerRecord, err error) {
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

// compact merges the newest layers while there are many of a tier.
func (s *spill) compact() error {
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

// mergedLayer writes a layer with the newest record of each key, and returns the runs of the others.
func mergedLayer(store *logstore.Store, c logstore.Claim, layers []*layer) (l *layer, lost []btree.Ref, err error) {
	lw := newLayerWriter(store, c)
	defer func() {
		if err != nil {
			lw.discard()
		}
	}()
	st := newStack(layerCursors(layers))
	st.shadowed = func(source int) {
		if ref, ok := st.sources[source].(*layerCursor).rec.ref(); ok {
			lost = append(lost, ref)
		}
	}
	for ok := st.First(); ok; ok = st.Next() {
		c := st.sources[st.winner()].(*layerCursor)
		if err := lw.add(&c.rec, c.key); err != nil {
			return nil, nil, err
		}
	}
	if err := st.Err(); err != nil {
		return nil, nil, err
	}
	l, err = lw.finish()
	return l, lost, err
}

// get returns what the layers say of key, and whether they say anything.
func (s *spill) get(key []byte) (en Entry, ok bool, err error) {
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
		en.Key, en.Value = bytes.Clone(en.Key), bytes.Clone(en.Value) // what they lie in may be free before the transaction ends
		return en, err == nil, err
	}
	return en, false, nil
}

// size returns what the layers' records take in leaves, and one of them at most.
func (s *spill) size() (bytes int64, widest int) {
	for _, l := range s.layers {
		bytes, widest = bytes+l.bytes, max(widest, l.widest)
	}
	return bytes, widest
}

// keys returns how many records the layers have: at least as many as keys.
func (s *spill) keys() (n int64) {
	for _, l := range s.layers {
		n += l.records
	}
	return n
}

// discard frees all of it: the transaction does not commit.
func (s *spill) discard() {
	for _, l := range s.layers {
		l.private.Discard()
	}
	for _, p := range append(s.large, s.retired...) {
		p.Discard()
	}
	if s.values != nil {
		s.values.Discard()
	}
	*s = spill{store: s.store}
}

// owned returns the pages that the layers' records lead to: of their runs, and of large values.
func (s *spill) owned() (all [][]logstore.Extent) {
	if s.values != nil {
		all = append(all, s.values.Extents())
	}
	for _, p := range s.large {
		all = append(all, p.Extents())
	}
	return all
}

// publish hands the segments over to the tree: group, which lists them, was written. No snapshot below birth shows the large values. Not so
// the layers and the runs, which have long keys: resolvers go on reading those, at whatever Seqs they are registered.
func (s *spill) publish(group, birth uint64) {
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

// bytes returns how much the layers take in the file.
func (s *spill) bytes() (n int64) {
	for _, l := range s.layers {
		n += int64(l.pages) * logstore.PageSize
	}
	return n
}

// listPages bounds the pages that the group takes which lists the layers: a list for each layer and each owner of runs, in runs of at most
// so many bytes, and the redo records that name them.
func (s *spill) listPages(maxRun int64) int64 {
	n := redo.Pages(int64(len(s.lost)+1) * redo.MaxRecord)
	list := func(extents int) {
		bytes := logstore.ListBytes(extents)
		n += logstore.RunReserve(logstore.RunPages(min(bytes, maxRun)))*(bytes/maxRun+1) + redo.Pages(redo.MaxRecord*(bytes/maxRun+1))
	}
	for _, l := range s.layers {
		list(len(l.extents))
	}
	for _, x := range s.owned() {
		list(len(x))
	}
	return n
}
