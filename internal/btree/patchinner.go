package btree

import "bytes"

// patchInner makes the new version of an inner node to which children are only added, if they fit and have the
// common prefix. That is by far the most frequent case. It copies runs of entries of n without decoding their
// separators.
func (a *applier) patchInner(n Node, changes []change) (Node, bool) {
	old := n.Count()
	if old < 3 {
		return Node{}, false
	}
	prefix, cells, common := n.prefix(), n.cellBytes(), n.common()
	for i := range changes {
		c := &changes[i]
		if c.gone || !bytes.HasPrefix(c.insert.bytes, common) {
			return Node{}, false
		}
		cells += max(0, len(c.insert.bytes)-prefix-headBytes)
	}
	count := old + len(changes)
	size := innerBytes(count, cells)
	if size > BodySize {
		return Node{}, false
	}
	image := a.m.alloc(classOf(MuxSize + size))
	w := innerPatch{n: n, dir: add(image, MuxSize), count: count}
	store64(w.dir, 0, load64(n.dir, 0))
	store16(w.dir, countAt, count)
	store16(w.dir, cellBytesAt, cells)
	w.at = headerBytes + count*innerEntryBytes
	w.at += copy(slice(w.dir, w.at, prefix), common)
	for i := range changes {
		w.keep(changes[i].at)
		w.insert(&changes[i].insert, prefix)
	}
	w.keep(old)
	return viewAt(image, ownsImage), true
}

// innerPatch is a version of an inner node being made.
type innerPatch struct {
	n        Node
	dir      pointer
	count    int // children that it will have
	from, to int // numbers of children of n, and of the version, already handled
	at       int // offset from dir at which the next tail goes
}

func (w *innerPatch) slots() int    { return headerBytes + w.count*headBytes }
func (w *innerPatch) children() int { return w.slots() + w.count*innerSlotBytes }

// keep copies the entries of n up to index to-1.
func (w *innerPatch) keep(to int) {
	k := to - w.from
	if k == 0 {
		return
	}
	n := w.n
	oldSlots := headerBytes + n.Count()*headBytes
	oldChildren := oldSlots + n.Count()*innerSlotBytes
	move(w.dir, headerBytes+w.to*headBytes, n.dir, headerBytes+w.from*headBytes, k*headBytes)
	move(w.dir, w.children()+w.to*childBytes, n.dir, oldChildren+w.from*childBytes, k*childBytes)
	start := innerOffset(n.innerSlot(w.from))
	last := n.innerSlot(to - 1)
	end := innerOffset(last) + max(0, innerLen(last)-headBytes)
	move(w.dir, w.at, n.base, start, end-start)
	shift := uint32(MuxSize + w.at - start)
	slots := w.slots()
	for i := range k {
		raw := load32(n.dir, oldSlots+(w.from+i)*innerSlotBytes)
		store32(w.dir, slots+(w.to+i)*innerSlotBytes, raw&^0xFFFF|(raw+shift)&0xFFFF)
	}
	w.at += end - start
	w.from, w.to = to, w.to+k
}

// insert adds an entry.
func (w *innerPatch) insert(e *entry, prefix int) {
	rest := e.bytes[prefix:]
	length := len(rest)
	if e.cut {
		length |= separatorCut
	}
	store32(w.dir, headerBytes+w.to*headBytes, headOf(rest))
	store16(w.dir, w.slots()+w.to*innerSlotBytes, MuxSize+w.at)
	store16(w.dir, w.slots()+w.to*innerSlotBytes+2, length)
	store64(w.dir, w.children()+w.to*childBytes, e.id)
	if len(rest) > headBytes {
		w.at += copy(slice(w.dir, w.at, len(rest)-headBytes), rest[headBytes:])
	}
	w.to++
}
