package writeset

import (
	"math"
	"slices"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// Set holds the writes of a transaction: for each key the last put or delete, sorted by key. It copies keys and
// values. A nil key is the empty key, which is a key like others; a nil value is the empty value.
//
// Slices that it returns stay valid and unchanged until Reset, even if their key is written again. The version
// increases with every change of an entry, and a position is valid for one version.
//
// A large set is only partly in memory: see Budget. Get, positions, Merge, All, AppendOps, Len, Used, Bytes and
// RedoBytes cover the part in memory. Find, Each, Hashes, Intersects and Overlaps cover the whole set, and Over
// puts the other part under a Merge.
//
// The zero Set is empty and ready to use. It must not be copied. While it changes, only one goroutine may use it;
// when it is complete, any number may call the methods that change nothing. The owner of a shared set calls Reset
// only when no other goroutine can access it any more.
type Set struct {
	keys
	refs    []*ValueRef // places of values stored elsewhere; nil where a value was replaced
	unused  []uint32    // indexes of the nil entries of refs
	dropped *ValueRef   // the value elsewhere that the last change replaced, nil if none

	spill   *Spill // the spilled part, nil if there is none
	charged int64  // bytes charged to the budget

	redoBytes  int64
	runPages   int64  // pages for the runs of values, lists of extents and their keys, including the pages that their placement may waste
	widest     int    // most bytes that one record takes in its leaf
	staleBytes int64  // bytes of replaced values in the arena
	filter     uint64 // bit hash % 64 of every key; all bits if there are many keys
	firstHash  uint64 // HashKey of the key that was written first
}

const (
	// minStaleBytes of replaced values are kept before the arena is copied.
	minStaleBytes = 1 << 20

	// Bytes that a record takes in the log beyond key and value, roughly.
	redoRecordBytes = 8
	redoRefBytes    = 17
	redoExtentBytes = 16

	// filteredKeys is the number of keys that are hashed for the filter when they are written. Further keys are
	// hashed only when Hashes is called, which does not happen for a set without concurrent transactions.
	filteredKeys = 8

	// keepRefs is the most entries of refs for which Reset keeps memory.
	keepRefs = 256
)

// Put sets the value of key.
func (w *Set) Put(key, value []byte) {
	if uint64(len(value)) > math.MaxUint32 {
		panic("writeset: value too long for a write set")
	}
	r, fresh := w.upsert(key, value)
	if !fresh {
		r.value = w.arena.add(value)
	}
	r.kind, r.valueBytes = recordPut, uint32(len(value))
	if !btree.FitsInline(len(key), len(value)) {
		w.runPages += w.runPagesOf(r)
	}
	w.redoBytes += int64(len(value))
	w.widen(key, len(value))
	if w.staleBytes > max(minStaleBytes, w.arena.held/2) {
		w.squeeze()
	}
}

// PutRef sets the value of key to one that was written elsewhere.
func (w *Set) PutRef(key []byte, ref ValueRef) {
	ref.Extents = slices.Clone(ref.Extents)
	r, _ := w.upsert(key, nil)
	if n := len(w.unused) - 1; n >= 0 {
		r.value, w.unused = place(w.unused[n]), w.unused[:n]
		w.refs[r.value] = &ref
	} else {
		r.value = place(len(w.refs))
		w.refs = append(w.refs, &ref)
	}
	r.kind = recordRef
	w.runPages += w.runPagesOf(r)
	w.redoBytes += ref.redoBytes()
	w.widen(key, redoRefBytes)
}

func (w *Set) widen(key []byte, value int) {
	w.widest = max(w.widest, btree.RecordBytes(min(len(key), btree.MaxInlineKey), min(value, btree.MaxInline)))
}

// Delete deletes key, whether or not the set or the store has it.
func (w *Set) Delete(key []byte) { w.upsert(key, nil) }

// upsert returns the record of key, as one that deletes the key. If fresh, the record is new, and value has been
// copied after the key already, with its place in the record.
func (w *Set) upsert(key, value []byte) (r *record, fresh bool) {
	w.version++
	w.dropped = nil
	b, i, head := 0, 0, HeadOf(key, 0)
	switch {
	case w.records.n == 0:
		if len(w.order.blocks) == 0 {
			w.order.begin()
		}
	case w.isPastEnd(key, head):
		b = len(w.order.blocks) - 1
		i = w.order.blocks[b].n
	default:
		var found bool
		if b, i, found = w.find(key); found {
			r := w.records.at(w.order.blocks[b].records[i])
			w.drop(r)
			return r, false
		}
	}
	id, r := w.add(key, value)
	if bl := w.order.blocks[b]; i == bl.n && i < len(bl.heads) && bl.skip == 0 {
		bl.heads[i], bl.records[i] = head, id
		bl.n++
	} else {
		w.insert(b, i, id)
	}
	return r, true
}

// add makes a record for a new key: one that deletes the key, with the place of a copy of value.
func (w *Set) add(key, value []byte) (id uint32, r *record) {
	if uint64(len(key)) > math.MaxUint32 {
		panic("writeset: key too long for a write set")
	}
	switch n := w.records.n; {
	case n >= filteredKeys:
		w.filter = math.MaxUint64
	default:
		hash := HashKey(key)
		w.filter |= 1 << (hash % 64)
		if n == 0 {
			w.firstHash = hash
		}
	}
	w.redoBytes += int64(len(key)) + redoRecordBytes
	id, r = w.records.add()
	r.key, r.value = w.arena.addBoth(key, value)
	r.keyBytes, r.valueBytes, r.kind = uint32(len(key)), 0, recordDelete
	return id, r
}

// runPagesOf returns the pages by which a record increases runPages.
func (w *Set) runPagesOf(r *record) int64 {
	var n int64
	switch {
	case r.kind == recordDelete, r.kind == recordPut && btree.FitsInline(int(r.keyBytes), int(r.valueBytes)):
		return 0
	case r.kind == recordRef:
		n = logstore.ListBytes(len(w.refs[r.value].Extents))
	default:
		n = int64(r.valueBytes)
	}
	if r.keyBytes > btree.MaxInlineKey {
		n += int64(r.keyBytes)
	}
	return logstore.RunReserve(logstore.RunPages(n))
}

// drop makes r a record that deletes its key, and takes its value out of all sums; a short value becomes stale
// bytes.
func (w *Set) drop(r *record) {
	w.runPages -= w.runPagesOf(r)
	switch r.kind {
	case recordPut:
		w.redoBytes -= int64(r.valueBytes)
		if !w.arena.drop(r.value, r.valueBytes) {
			w.staleBytes += int64(r.valueBytes)
		}
	case recordRef:
		w.dropped = w.refs[r.value]
		w.redoBytes -= w.dropped.redoBytes()
		w.refs[r.value] = nil
		w.unused = append(w.unused, uint32(r.value))
	}
	r.kind, r.value, r.valueBytes = recordDelete, 0, 0
}

// squeeze copies the live keys and values to a new arena. The old one is left to the garbage collector and not
// reused, because slices of it may still be in use.
func (w *Set) squeeze() {
	old := w.arena
	w.arena = Arena{}
	for id := range w.records.n {
		r := w.records.at(id)
		r.key = w.arena.add(old.at(r.key, r.keyBytes))
		if r.kind == recordPut {
			r.value = w.arena.add(old.at(r.value, r.valueBytes))
		}
	}
	for b := 1; b < len(w.order.blocks); b++ {
		w.order.fences[b] = w.keyOf(w.order.blocks[b].records[0])
	}
	w.staleBytes = 0
}

// Get returns the entry of key in memory, and whether there is one.
func (w *Set) Get(key []byte) (Entry, bool) {
	if w.records.n == 0 {
		return Entry{}, false
	}
	b, i, found := w.find(key)
	if !found {
		return Entry{}, false
	}
	return w.entryOf(w.order.blocks[b].records[i]), true
}

// Find returns the entry of key, in memory or in a layer, and whether there is one. Key and value from a layer are
// copies.
func (w *Set) Find(key []byte) (en Entry, ok bool, err error) {
	if w.records.n > 0 {
		en, ok = w.Get(key)
	}
	if !ok && w.spill != nil {
		return w.spill.find(key)
	}
	return en, ok, nil
}

// Dropped returns the place of the separately stored value that the last change
// replaced, nil if none.
func (w *Set) Dropped() *ValueRef { return w.dropped }

// entryOf returns record id as an Entry.
func (w *Set) entryOf(id uint32) Entry {
	r := w.records.at(id)
	e := Entry{Key: w.arena.at(r.key, r.keyBytes)}
	switch r.kind {
	case recordPut:
		e.Value = w.arena.at(r.value, r.valueBytes)
	case recordDelete:
		e.Deleted = true
	case recordRef:
		e.Ref = w.refs[r.value]
	}
	return e
}

// Len returns the number of keys in memory.
func (w *Set) Len() int { return int(w.records.n) }

// Empty reports whether the set has no entries, in memory or in layers.
func (w *Set) Empty() bool { return w.records.n == 0 && w.spill == nil }

// Version returns a number that increases with every change of an entry. It is 0 only before the first change.
func (w *Set) Version() uint64 { return w.version }

// RedoBytes returns approximately how many bytes of redo records the set takes in the log: those of all keys and
// values, and 8 for each key.
func (w *Set) RedoBytes() int64 { return w.redoBytes }

func (ref *ValueRef) redoBytes() int64 {
	return redoRefBytes + redoExtentBytes*int64(len(ref.Extents))
}

// Bytes returns the memory of the set in bytes, including what Reset kept.
func (w *Set) Bytes() int64 {
	const (
		refBytes       = 8 + 48
		directoryBytes = 8 + 8 + 24
	)
	blocks := int64(len(w.order.blocks) + len(w.order.spare))
	refs := int64(len(w.refs)) * refBytes
	return w.arena.held + w.records.bytes() + refs + blocks*(blockBytes+directoryBytes) + int64(w.order.slots)*slotBytes
}

// Reset empties the set and invalidates the slices that it has returned. It keeps at most about 512 KiB of memory
// for the next transaction.
func (w *Set) Reset() {
	w.version++
	w.spill = nil
	w.arena.Reset()
	w.records.reset()
	w.order.reset()
	clear(w.refs)
	w.refs, w.unused, w.dropped = w.refs[:0], w.unused[:0], nil
	if cap(w.refs) > keepRefs {
		w.refs, w.unused = nil, nil
	}
	w.redoBytes, w.staleBytes, w.runPages, w.filter, w.widest = 0, 0, 0, 0, 0
}

// forget drops the entries in memory, which have been written to a new layer. Slices that were returned stay
// valid: their memory is left to the garbage collector.
func (w *Set) forget() {
	w.version++
	w.arena, w.records, w.order = Arena{}, recordList{}, order{}
	w.refs, w.unused, w.dropped = nil, nil, nil
	w.redoBytes, w.staleBytes, w.runPages = 0, 0, 0
}
