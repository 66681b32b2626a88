package btree

// leastAppended is the least number of ops for which appendLeaves is tried.
const leastAppended = 16

// appendLeaves is the fast path for loads in key order: n is the last leaf of the tree, and ops put records with
// inline values after its last record. It makes the leaves that splitLeaf would make, without a list of edits. If
// ops are of another kind, or fit into n, it does nothing and done is false.
func (a *applier) appendLeaves(n Node, ops []Op) (first Node, became state, done bool, err error) {
	count, cells, lengths := n.Count()+len(ops), n.cellBytes(), ops[0].lengths()
	a.even = a.m.Even && (n.Count() == 0 || (n.even() || n.Count() == 1) && rawLengths(n.rawSlot(0)) == lengths)
	for i := range ops {
		op := &ops[i]
		if op.Delete || op.Ref != nil {
			return Node{}, unchanged, false, nil
		}
		cells += op.cellLen()
		a.even = a.even && op.lengths() == lengths
	}
	if leafFits(count, cells, a.even) {
		return Node{}, unchanged, false, nil
	}
	if at, found, err := n.find(a.e, ops[0].Key); err != nil || found || at < n.Count() {
		return Node{}, unchanged, false, err
	}
	a.edits, a.refs = a.edits[:0], false
	a.added += int64(len(ops))
	entry, room := leafRoom(a.even)
	old := n.cellBytes()
	to, cells := appendable(ops[:min(len(ops), maxLeafCount-n.Count())], entry, room-n.Count()*entry-old)
	if to > 0 {
		first, became = a.appended(n, ops[:to], old+cells, true), changed
	}
	for from := to; from < len(ops); from = to {
		var left []byte
		if from == 0 {
			left = n.key(n.Count() - 1)
		} else {
			left = ops[from-1].Key
		}
		to, cells = appendable(ops[from:min(len(ops), from+maxLeafCount)], entry, room)
		to += from
		s := a.separatorOf(left, ops[from].Key)
		a.pieces = append(a.pieces, piece{s, a.appended(Node{}, ops[from:to], cells, to < len(ops))})
	}
	return first, became, true, nil
}

// appendable returns how many of the ops, all puts, fit into a leaf with room bytes free, and the bytes of their
// cells. A record takes entry bytes in addition to its cell.
func appendable(ops []Op, entry, room int) (n, cells int) {
	for i := range ops {
		cell := len(ops[i].Key) + len(ops[i].Value)
		if room -= entry + cell; room < 0 {
			return i, cells
		}
		cells += cell
	}
	return len(ops), cells
}

// appended makes a leaf of the records of n (the zero Node for none) followed by ops. The heap of a full leaf gets
// no spare room.
func (a *leafEdit) appended(n Node, ops []Op, cells int, full bool) Node {
	capacity := cells
	if !full {
		capacity = spareCells(cells)
	}
	old, start := 0, ops[0].Key
	if n.dir != nil && n.Count() > 0 {
		old, start = n.Count(), n.key(0)
	}
	w := startLeaf(a.m, old+len(ops), cells, capacity, start, ops[len(ops)-1].Key)
	w.records(n, 0, old)
	w.puts(ops)
	v := w.node()
	if a.even && v.Count() > 1 {
		v.meta |= isEven
	}
	for i := range old {
		store32(v.dir, headerBytes+i*headBytes, headOf(v.key(i)[w.prefix:]))
	}
	return v
}

// puts adds the records of ops, which have inline values, and their heads.
func (w *leafWriter) puts(ops []Op) {
	heads := add(w.dir, headerBytes+w.next*headBytes)
	slots := add(w.dir, headerBytes+w.count*headBytes+w.next*leafSlotBytes)
	from := heapUsed(w.heap)
	at := from
	for i := range ops {
		op := &ops[i]
		keyLen, valueLen := len(op.Key), len(op.Value)
		copy(slice(w.heap, at, keyLen), op.Key)
		copy(slice(w.heap, at+keyLen, valueLen), op.Value)
		store32(heads, i*headBytes, headOf(op.Key[w.prefix:]))
		store16(slots, i*leafSlotBytes, at+PageSize)
		store16(slots, i*leafSlotBytes+2, keyLen)
		store16(slots, i*leafSlotBytes+4, valueLen)
		at += keyLen + valueLen
	}
	heapAppend(w.heap, at-from)
	w.next += len(ops)
}
