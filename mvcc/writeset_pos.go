package mvcc

import "iter"

// Pos is a position on an entry of a write set, or on none. It is good for the
// version of the set that made it; using it later panics. The zero Pos is none.
type Pos struct {
	version      uint64 // 0 for none
	block, index int32
}

// OK reports whether the position is on an entry.
func (p Pos) OK() bool { return p.version != 0 }

// First returns the position of the least key.
func (w *WriteSet) First() Pos {
	if w.records.n == 0 {
		return Pos{}
	}
	return w.pos(0, 0)
}

// Last returns the position of the greatest key.
func (w *WriteSet) Last() Pos {
	if w.records.n == 0 {
		return Pos{}
	}
	return w.posBefore(len(w.order.blocks), 0)
}

// Seek returns the position of the least key at or after key.
func (w *WriteSet) Seek(key []byte) Pos {
	if w.records.n == 0 {
		return Pos{}
	}
	b, i, _ := w.find(key)
	return w.pos(b, i)
}

// SeekAfter returns the position of the least key after key.
func (w *WriteSet) SeekAfter(key []byte) Pos {
	if w.records.n == 0 {
		return Pos{}
	}
	b, i, found := w.find(key)
	if found {
		i++
	}
	return w.pos(b, i)
}

// SeekBefore returns the position of the greatest key before key.
func (w *WriteSet) SeekBefore(key []byte) Pos {
	if w.records.n == 0 {
		return Pos{}
	}
	b, i, _ := w.find(key)
	return w.posBefore(b, i)
}

// Next returns the position after p, none after the last.
func (w *WriteSet) Next(p Pos) Pos {
	w.check(p)
	return w.pos(int(p.block), int(p.index)+1)
}

// Prev returns the position before p, none before the first.
func (w *WriteSet) Prev(p Pos) Pos {
	w.check(p)
	return w.posBefore(int(p.block), int(p.index))
}

// At returns the entry at p.
func (w *WriteSet) At(p Pos) Entry {
	w.check(p)
	return w.entryOf(w.order.blocks[p.block].records[p.index])
}

// All returns the entries in key order. The set must not change meanwhile.
func (w *WriteSet) All() iter.Seq[Entry] {
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

// keyAt returns the key at p.
func (w *WriteSet) keyAt(p Pos) []byte {
	w.check(p)
	return w.keyOf(w.order.blocks[p.block].records[p.index])
}

// deletes reports whether the entry at p deletes its key.
func (w *WriteSet) deletes(p Pos) bool {
	w.check(p)
	return w.records.at(w.order.blocks[p.block].records[p.index]).kind == recordDelete
}

// pos returns the position of record i of block b, where i may be one past its
// last.
func (w *WriteSet) pos(b, i int) Pos {
	if b < len(w.order.blocks) && i == w.order.blocks[b].n {
		b, i = b+1, 0
	}
	if b == len(w.order.blocks) {
		return Pos{}
	}
	return Pos{version: w.version, block: int32(b), index: int32(i)}
}

// posBefore returns the position before record i of block b, where b may be one
// past the last block and i one past the block's last record.
func (w *WriteSet) posBefore(b, i int) Pos {
	if i == 0 {
		if b == 0 {
			return Pos{}
		}
		b--
		i = w.order.blocks[b].n
	}
	return Pos{version: w.version, block: int32(b), index: int32(i - 1)}
}

func (w *WriteSet) check(p Pos) {
	if p.version != w.version {
		panic("mvcc: position of another version of the write set")
	}
}
