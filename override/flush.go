package override

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"flashdbm/internal/btree"
	"flashdbm/lockfree"
	"flashdbm/logstore"
)

// A Flush writes the newest images, as of its base, of the pages changed since they were written last: leaves first, in key order, as groups
// between those of the commits. It writes all of them, or leaves leaves behind for which redo will do: see dirtyPages. Its last part installs
// it; without that part it is void at recovery.
//
// Invariants:
//   - The base is registered as a snapshot from Start to the end, so every version to be written stays.
//   - Every page dirty at the base is written, also one that was removed since, but for what it leaves behind: the installed tree is as of
//     the base, with leaves that lack nothing but what redo brings.
//   - Redo starts at the base, or at the base of an earlier flush behind which all came that the leaves left behind lack. It counts the
//     records of the tree with those leaves.
//   - A version made after the base stays dirty for the next flush.
//   - Nothing is installed before all parts are synced: until then readers are answered from memory. Of a page that is not synced the
//     system may show what the device had there before, and what readers see may be durable already.
//   - A name folded away, a page removed and a value dropped after the base wait for the next flush.
//   - The place that a page leaves dies at the Seq of the installation: readers before it may still be there. Readers at that Seq may
//     have a node with cells in the image; limbo keeps its segment for them.
//
// Steps: Start under the token; then, until done: Encode without it, Write under it; then Sync without it; then Install under it until done.
type Flush struct {
	p       *Pages
	slot    lockfree.Slot // registration at the base's Seq
	base    uint64        // group; 0 before it is reached
	redo    uint64        // group: redo starts behind it
	records int64         // in the tree as it is written
	first   uint64        // group of the first part, 0 before it
	last    uint64        // group of the newest part
	work    []flushItem
	next    int // of work: first not yet written
	ready   int // of work: first not yet encoded
	from    int // of work: first in images
	begin   []byte
	images  []byte
	part    int         // most pages of a part
	early   []earlyPage // written before the base was reached: see StartEarly
	placed  int         // of work, then of early: installed
	removed []*entry
	retired []retirement
	deaths  deaths
	dying   []Extent // pages of deaths
}

type flushItem struct {
	entry *entry
	v     *version
	addr  logstore.Addr
	level int
	head  uint64 // of the key: its first eight bytes, as they compare
	key   []byte // first key below, in the version
}

const partPages = 64 // most pages of a part: fdatasync waits for all dirty pages of the file

// StartFlush starts a flush of all that is dirty now. group is the one that the tree has all commits up to and none behind; it is above the base of the
// flush before. records is the number of records in the tree. It returns nil if there is nothing to write: what was logged behind the base
// changed nothing, as deletes of what is not there, and the base moves by itself. The next checkpoint says so; until then redo finds nothing to do
// either. Token held; no flush is in flight and the pages are not frozen.
func (p *Pages) StartFlush(group uint64, records int64) *Flush {
	if p.dirty.len() == 0 && p.nothingPending() {
		p.rebase(group, p.dirty.began(group), records)
		return nil
	}
	f := p.StartEarly()
	f.Seal(group, records)
	return f
}

// Seal sets the base of a flush of all: all that is dirty now is written. group is that of StartFlush, or the one that carries the
// batch being applied if pages of it were written early, and records the number of records in the tree. Token held; after the batch.
func (f *Flush) Seal(group uint64, records int64) {
	p := f.p
	f.work = slices.Grow(f.work, p.dirty.len())
	for _, e := range p.dirty.pages {
		f.take(e)
	}
	p.dirty.clear()
	f.seal(group, records)
}

// take has the flush write a dirty page, or list it as removed. It is clean from then on.
func (f *Flush) take(e *entry) {
	switch v := e.head.Load(); v.kind {
	case inMemory:
		f.work = append(f.work, flushItem{entry: e, v: v})
		if e.place() == 0 {
			e.flying = true
			f.p.unplaced.Add(1)
		}
	case removed:
		f.removed = append(f.removed, e)
	}
}

// seal sets the base once all is taken that the flush writes. What is dirty still is left behind.
func (f *Flush) seal(group uint64, records int64) {
	p := f.p
	f.slot, f.base, f.records = p.registry.AcquireAt(p.seq), group, records-p.dirty.gains
	f.redo = p.dirty.began(group)
	f.retired, p.retired = p.retired, nil
	f.deaths, p.deaths = p.deaths, deaths{}
	p.listed, p.doomed = 0, 0
}

// Sort puts the pages in the order they are written. Without the token, once, before the first Encode.
func (f *Flush) Sort() {
	for i := range f.work {
		w := &f.work[i]
		w.level = w.v.node.Level()
		if w.v.node.Count() > 0 {
			w.key = w.v.node.FirstKey()
			var first [8]byte
			copy(first[:], w.key)
			w.head = binary.BigEndian.Uint64(first[:])
		}
	}
	slices.SortFunc(f.work, func(a, b flushItem) int {
		switch {
		case a.level != b.level:
			return cmp.Compare(a.level, b.level)
		case a.head != b.head: // of random keys nearly always; they themselves are in no cache
			return cmp.Compare(a.head, b.head)
		}
		return bytes.Compare(a.key, b.key)
	})
	if len(f.work) > 0 && f.work[0].level == 0 {
		f.begin = append([]byte{}, f.work[0].key...)
	}
}

// Begin returns the key that the first leaf of the flush begins with, nil if there is none. After Sort.
func (f *Flush) Begin() []byte { return f.begin }

// Base returns the group that the flush is as of. After Seal.
func (f *Flush) Base() uint64 { return f.base }

// Pages bounds the pages that the flush has still to write.
func (f *Flush) Pages() int64 {
	stream := flushFixed + len(f.retired)*retiredSize + len(f.removed)*8 + f.deaths.most(f.p.store.End())*deathSize
	return int64(len(f.work)-f.next) + int64(stream/logstore.BodySize) + 1
}

// LimitPart makes parts smaller: at most n pages. Before the first Encode.
func (f *Flush) LimitPart(n int) { f.part = min(n, partPages) }

// Encode prepares the images of the next part. Without the token.
func (f *Flush) Encode() { f.EncodeParts(1) }

// EncodeParts is Encode for the next n parts, of which some may be prepared already.
func (f *Flush) EncodeParts(n int) {
	left := f.Encoded()
	ready := max(f.ready, min(f.next+n*f.part, len(f.work)))
	images := f.images
	if size := (ready - f.next) * logstore.BodySize; len(images) < size {
		images = make([]byte, size)
	}
	copy(images, f.images[(f.next-f.from)*logstore.BodySize:][:left*logstore.BodySize])
	f.images, f.from, f.ready = images, f.next, ready
	even := f.p.store.EvenLeaves()
	for i := f.next + left; i < f.ready; i++ {
		f.work[i].v.node.Encode(f.image(i), even)
	}
}

// Encoded returns how many images there are that were not written yet.
func (f *Flush) Encoded() int { return f.ready - f.next }

// image returns the image of a page of work.
func (f *Flush) image(i int) []byte {
	i -= f.from
	return f.images[i*logstore.BodySize : (i+1)*logstore.BodySize]
}

// Write appends the next part, and reports whether it was the last. Token held.
func (f *Flush) Write() (done bool, err error) {
	p := f.p
	g := p.store.Begin(logstore.FlushGroup)
	if f.first == 0 {
		f.first = g.Number()
	}
	end := min(f.next+f.part, f.ready)
	for i := f.next; i < end; i++ {
		w := &f.work[i]
		a, body := g.Page(w.entry.id)
		copy(body, f.image(i))
		w.addr = a
		if w.level == 0 {
			p.payload.note(body)
		}
	}
	f.next = end
	count := f.first
	if f.next == len(f.work) {
		f.dying = p.dying(&f.deaths)
		g.Write(logstore.KindFlush, f.stream())
		count = uint64(f.records)
	}
	if f.last, err = g.Commit(count); err != nil {
		return false, err
	}
	return f.next == len(f.work), nil
}

// Sync makes what was written durable. Without the token, behind the last part.
func (f *Flush) Sync() error { return f.p.store.Sync() }

const installParts = 8 // installed at a time, so that commits get the token between

// Install makes what the flush wrote the installed state, some pages at a time. Token held; after Sync.
func (f *Flush) Install() (done bool) {
	p := f.p
	if p.store.Durable() < f.last {
		panic("override: a flush is installed before it is synced")
	}
	all := len(f.work) + len(f.early)
	for end := min(f.placed+installParts*f.part, all); f.placed < end; f.placed++ {
		if f.placed < len(f.work) {
			f.place(&f.work[f.placed])
		} else {
			f.placeEarly(f.early[f.placed-len(f.work)])
		}
	}
	if f.placed < all {
		return false
	}
	for _, e := range f.removed {
		if old := e.place(); old != 0 {
			p.store.KillNode(old, p.seq)
		}
		p.move(e, 0)
		p.limbo.entries = append(p.limbo.entries, leavingEntry{e, p.seq})
	}
	for _, r := range f.retired {
		p.move(r.entry, 0)
		p.limbo.entries = append(p.limbo.entries, leavingEntry{r.entry, p.seq})
	}
	for _, d := range f.dying {
		p.kill(d, p.seq)
	}
	p.flush = nil
	f.slot.Release()
	p.rebase(f.base, f.redo, f.records)
	p.flushes.Add(1)
	if f.redo < f.base {
		p.parts.Add(1)
	}
	return true
}

// place installs one page: the version written becomes an address.
//
// Where a reader that stays sees the version, the address becomes a version of its own, from the base on. That reader may hold slices of the node,
// and of the image that the node has cells in, until it ends. So these stay anyway, and the new place, which only later readers come to, need
// not stay for it as well.
//
// A newer version may have cells in the image at the place that dies now. It gets those of the new image, so that what was changed while the flush
// was under way takes no more memory than before.
func (f *Flush) place(w *flushItem) {
	p, e := f.p, w.entry
	old := cmp.Or(e.place(), e.lent)
	if v := e.head.Load(); v != w.v && v.kind == inMemory && v.node.Borrows() {
		n := &version{seq: v.seq, kind: inMemory, node: p.rebased(v, w)}
		n.next.Store(v.next.Load())
		e.head.Store(n)
		p.leaveWith(v, old)
	}
	at, newer := &e.head, (*version)(nil)
	for v := at.Load(); v != w.v; v = at.Load() {
		if v == nil {
			panic("override: a version pinned by a flush is gone")
		}
		at, newer = &v.next, v
	}
	n := &version{seq: w.v.seq, kind: atAddress, addr: w.addr}
	if base := f.slot.Seq(); p.limbo.seen(w.v.seq, base) {
		n.seq = base
		n.next.Store(w.v)
	} else {
		n.next.Store(w.v.next.Load())
	}
	at.Store(n)
	switch apart := n.seq > w.v.seq; {
	case newer == nil:
		p.leaveWith(w.v, old)
		if apart { // it is in the chain still
			r := &p.limbo.young[len(p.limbo.young)-1]
			r.entry, r.found = e, n.seq
		}
	case apart: // the version written waits in limbo since there is a newer one
		p.limbo.supersede(e, n, newer.seq)
	default:
		p.limbo.leave(w.v, newer.seq)
	}
	e.lent = 0
	first := e.place() == 0
	p.install(e, w.addr, n.seq)
	if first {
		e.flying = false
		p.unplaced.Add(-1) // it lives by now
	}
}

// rebased returns a node with the records of a newer version than the flush has written, that has cells in the new image, not in the old
// one.
func (p *Pages) rebased(newer *version, w *flushItem) btree.Node {
	if image, err := p.store.Page(w.addr); err == nil {
		if n, ok := newer.node.Rebase(p.memory, w.v.node, image); ok {
			return n
		}
	}
	return newer.node.Own(p.memory)
}

// Abandon ends a flush that failed; the store is poisoned.
func (f *Flush) Abandon() {
	f.p.flush = nil
	if f.base != 0 {
		f.slot.Release()
	}
}
