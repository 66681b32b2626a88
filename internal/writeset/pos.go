package writeset

import (
	"iter"

	"flashdbm/internal/btree"
)

// position is the place of an entry of a write set, or no place. It is valid for the version of the set in which
// it was made; using it later panics. The zero position is none.
type position struct {
	version      uint64 // 0 for none
	block, index int32
}

// ok reports whether the position is on an entry.
func (p position) ok() bool { return p.version != 0 }

// first returns the position of the least key.
func (w *keys) first() position {
	if w.records.n == 0 {
		return position{}
	}
	return w.pos(0, 0)
}

// last returns the position of the greatest key.
func (w *keys) last() position {
	if w.records.n == 0 {
		return position{}
	}
	return w.posBefore(len(w.order.blocks), 0)
}

// seek returns the position of the least key >= key.
func (w *keys) seek(key []byte) position {
	if w.records.n == 0 {
		return position{}
	}
	b, i, _ := w.find(key)
	return w.pos(b, i)
}

// seekAfter returns the position of the least key > key.
func (w *keys) seekAfter(key []byte) position {
	if w.records.n == 0 {
		return position{}
	}
	b, i, found := w.find(key)
	if found {
		i++
	}
	return w.pos(b, i)
}

// seekBefore returns the position of the greatest key < key.
func (w *keys) seekBefore(key []byte) position {
	if w.records.n == 0 {
		return position{}
	}
	b, i, _ := w.find(key)
	return w.posBefore(b, i)
}

// next returns the position after p, none after the last.
func (w *keys) next(p position) position {
	w.check(p)
	return w.pos(int(p.block), int(p.index)+1)
}

// prev returns the position before p, none before the first.
func (w *keys) prev(p position) position {
	w.check(p)
	return w.posBefore(int(p.block), int(p.index))
}

// entryAt returns the entry at p.
func (w *Set) entryAt(p position) Entry {
	w.check(p)
	return w.entryOf(w.order.blocks[p.block].records[p.index])
}

// All returns the entries in memory in key order. The set must not change during the
// iteration.
func (w *Set) All() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for _, bl := range w.order.blocks {
			for _, id := range bl.records[:bl.n] {
				if !yield(w.entryOf(id)) {
					return
				}
			}
		}
	}
}

// AppendOps appends the entries in memory to ops, in key order, and returns the bytes of keys and values in the
// appended ops. For a value for which a leaf has no room it calls run, which writes the value elsewhere and returns
// its place; the bytes of such a value are not counted.
func (w *Set) AppendOps(ops []btree.Op, run func(Entry) *btree.Ref) (all []btree.Op, bytes int) {
	if w.records.n == 1 { // the two loops take longer than the record
		return w.appendOp(ops, w.order.blocks[0].records[0], 0, run)
	}
	for _, bl := range w.order.blocks {
		for _, id := range bl.records[:bl.n] {
			ops, bytes = w.appendOp(ops, id, bytes, run)
		}
	}
	return ops, bytes
}

// OnlyPut returns key and value of the only entry of a set; ok is false if there is not exactly one, or if that is not
// a put with its value. Both belong to the set.
func OnlyPut(w *Set) (key, value []byte, ok bool) {
	if w.records.n != 1 || w.spill != nil {
		return nil, nil, false
	}
	r := w.records.at(0)
	if r.kind != recordPut {
		return nil, nil, false
	}
	return w.arena.at(r.key, r.keyBytes), w.arena.at(r.value, r.valueBytes), true
}

// appendOp is AppendOps for one record; it adds to bytes.
func (w *Set) appendOp(ops []btree.Op, id uint32, bytes int, run func(Entry) *btree.Ref) ([]btree.Op, int) {
	r := w.records.at(id)
	bytes += int(r.keyBytes)
	key := w.arena.at(r.key, r.keyBytes)
	switch {
	case r.kind == recordDelete:
		return append(ops, btree.Op{Key: key, Delete: true}), bytes
	case r.kind == recordRef || !btree.FitsInline(int(r.keyBytes), int(r.valueBytes)):
		return append(ops, btree.Op{Key: key, Ref: run(w.entryOf(id))}), bytes
	}
	return append(ops, btree.Op{Key: key, Value: w.arena.at(r.value, r.valueBytes)}), bytes + int(r.valueBytes)
}

// keyAt returns the key at p.
func (w *keys) keyAt(p position) []byte {
	w.check(p)
	return w.keyOf(w.order.blocks[p.block].records[p.index])
}

// deletes reports whether the entry at p deletes its key.
func (w *keys) deletes(p position) bool {
	w.check(p)
	return w.records.at(w.order.blocks[p.block].records[p.index]).kind == recordDelete
}

// pos returns the position of record i of block b; i may be one past the block's last record.
func (w *keys) pos(b, i int) position {
	if b < len(w.order.blocks) && i == w.order.blocks[b].n {
		b, i = b+1, 0
	}
	if b == len(w.order.blocks) {
		return position{}
	}
	return position{version: w.version, block: int32(b), index: int32(i)}
}

// posBefore returns the position before record i of block b; b may be one past the last block, and i one past the
// block's last record.
func (w *keys) posBefore(b, i int) position {
	if i == 0 {
		if b == 0 {
			return position{}
		}
		b--
		i = w.order.blocks[b].n
	}
	return position{version: w.version, block: int32(b), index: int32(i - 1)}
}

func (w *keys) check(p position) {
	if p.version != w.version {
		panic("writeset: position of another version of the write set")
	}
}
