package btree

// item is a record of a leaf being split: one of the old leaf, or one of an edit.
type item struct {
	edit *edit // nil for a record of the old leaf
	old  int   // index in the old leaf
	size int   // bytes that it takes in a page
}

// splitLeaf makes as many leaves as the records of n with the edits need. The first replaces n; the others go
// on the stack of pieces. If the first has exactly the records of n, n stays as it is.
//
// Usually the pieces get equal shares. But if n is the last leaf of the tree and all new records come after its
// records, more such records are likely: then all pieces but the last are filled up, and the old leaf often stays
// as it is.
func (a *applier) splitLeaf(n Node, last bool) (first Node, became state) {
	entry, room := leafRoom(a.even)
	total := a.list(n, entry)
	ascending := last && a.edits[0].at == n.Count()
	from, left := 0, total
	for from < len(a.items) {
		want := room
		if !ascending {
			pieces := max((left+room-1)/room, (len(a.items)-from+maxLeafCount-1)/maxLeafCount)
			want = (left + pieces - 1) / pieces
		}
		to, size := share(a.items, from, want, room)
		left -= size
		switch {
		case from > 0:
			s := a.separatorOf(a.inlineKey(n, &a.items[from-1]), a.inlineKey(n, &a.items[from]))
			a.pieces = append(a.pieces, piece{s, a.pieceOf(n, from, to, ascending && to < len(a.items))})
		case to == n.Count() && a.items[to-1].edit == nil && ascending:
			became = unchanged
		default:
			first, became = a.pieceOf(n, from, to, ascending), changed
		}
		from = to
	}
	clear(a.items)
	a.items = a.items[:0]
	return first, became
}

// list merges the records of n and the edits into items, which take entry bytes in addition to their cells, and
// returns their total size.
func (a *leafEdit) list(n Node, entry int) (total int) {
	a.items = a.items[:0]
	from := 0
	keep := func(to int) {
		for ; from < to; from++ {
			raw := n.rawSlot(from)
			size := entry + rawKeyLen(raw) + rawValueLen(raw)
			a.items = append(a.items, item{old: from, size: size})
			total += size
		}
	}
	for i := range a.edits {
		e := &a.edits[i]
		keep(e.at)
		if e.op != nil {
			size := entry + e.cellLen
			a.items = append(a.items, item{edit: e, size: size})
			total += size
		}
		from = e.at + e.skip
	}
	keep(n.Count())
	return total
}

// share returns the end and the size of the piece that begins at item from and should have about want bytes.
// The piece has at least one item and at most room bytes.
func share(items []item, from, want, room int) (to, size int) {
	for to = from; to < min(len(items), from+maxLeafCount); to++ {
		s := items[to].size
		if to > from && (size+s > room || size+s/2 > want) {
			break
		}
		size += s
	}
	return to, size
}

// inlineKey returns the inline part of an item's key.
func (a *leafEdit) inlineKey(n Node, it *item) []byte {
	if it.edit != nil {
		return it.edit.op.inlineKey()
	}
	return n.key(it.old)
}

// pieceOf makes a leaf of the items from to to-1. The heap of a full leaf gets no spare room.
func (a *leafEdit) pieceOf(n Node, from, to int, full bool) Node {
	entry, _ := leafRoom(a.even)
	cells := 0
	for i := from; i < to; i++ {
		cells += a.items[i].size - entry
	}
	capacity := cells
	if !full {
		capacity = spareCells(cells)
	}
	w := startLeaf(a.m, to-from, cells, capacity, a.inlineKey(n, &a.items[from]), a.inlineKey(n, &a.items[to-1]))
	for i := from; i < to; {
		if e := a.items[i].edit; e != nil {
			w.op(e.op, e.cellLen)
			i++
			continue
		}
		j := i + 1
		for j < to && a.items[j].edit == nil && a.items[j].old == a.items[j-1].old+1 {
			j++
		}
		w.records(n, a.items[i].old, a.items[j-1].old+1)
		i = j
	}
	return w.finish()
}

// separatorOf returns the shortest separator between two keys with the inline parts left and right: above the left
// key and not above the right one.
func (a *applier) separatorOf(left, right []byte) separator {
	need := commonPrefix(left, right) + 1
	cut := need > MaxSeparator
	if cut {
		need = MaxSeparator
	}
	return separator{a.keep(right[:need]), cut}
}

// keep copies b for the rest of the batch.
func (a *applier) keep(b []byte) []byte {
	at := len(a.text)
	a.text = append(a.text, b...)
	return a.text[at:len(a.text):len(a.text)]
}
