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

// A Flush writes the images, as of its base, of the pages that changed since they were written last: leaves
// first, in key order, as groups between the groups of commits. It writes all of these pages, or leaves behind
// leaves for which redo suffices: see dirtyPages. The last part of a flush makes it count; without that part
// recovery ignores the flush.
//
// Invariants:
//   - The base is registered as a snapshot from Seal to the end, so every version to be written stays in its
//     chain.
//   - Every page that is dirty at the base is written, also one that was removed since, except the pages left
//     behind. So the installed tree is as of the base, with leaves that lack only what redo brings.
//   - If leaves were left behind, redo starts at the base of an earlier flush: all changes that those leaves lack were
//     logged after it. Otherwise redo starts at the base. The record count of the flush is that of the tree on disk,
//     with the older images of the leaves left behind.
//   - A version made after the base stays dirty for the next flush.
//   - Nothing is installed before all parts are synced; until then readers use the nodes in memory. After a failed
//     sync the system may return older contents for a page that was not synced, while the commits whose records are in
//     that page may be durable.
//   - A name folded away, a page removed and a value dropped after the base wait for the next flush.
//   - The place that a page leaves dies at the Seq of the installation: readers below that Seq may still use
//     it. Readers at that Seq may have a node with cells in the image; limbo keeps the segment for them.
//
// Steps: Start under the token; then, until done, Encode without it and Write under it; then Sync without it;
// then Install under it until done.
type Flush struct {
	p       *Pages
	slot    lockfree.Slot // registers the base's Seq
	base    uint64        // group; 0 before Seal
	redo    uint64        // redo starts after this group
	records int64         // number of records in the tree as it is written
	first   uint64        // group of the first part; 0 before there is one
	last    uint64        // group of the newest part
	work    []flushItem
	next    int         // index in work: first page that is not written
	ready   int         // index in work: first page that is not encoded
	from    int         // index in work of the first page in images
	begin   []byte      // first key of the first leaf: see Begin
	images  []byte      // encoded bodies of the pages from..ready-1 of work
	part    int         // limit of the pages of a part
	early   []earlyPage // written before the base was reached: see StartEarly
	placed  int         // how many pages of work, then of early, are installed
	removed []*entry
	retired []retirement
	deaths  deaths
	dying   []Extent // the pages of deaths
}

type flushItem struct {
	entry *entry
	v     *version
	addr  logstore.Addr
	level int
	head  uint64 // first eight bytes of key as a number that orders as they do
	key   []byte // first key in the node, or of its subtree; a slice of the version
}

const partPages = 64 // limit of the pages of a part: a commit's fdatasync waits for all dirty pages of the file

// StartFlush starts a flush of all pages that are dirty now. group is the group up to which the tree has all
// commits, and none after it; it is above the base of the previous flush. records is the number of records in
// the tree. StartFlush returns nil if there is nothing to write, because what was logged after the base changed
// nothing (deletes of absent keys, for example); the base then moves without a flush. The next checkpoint
// records that base; until then redo finds nothing to do either. No flush is in flight and the pages are not
// frozen. Token held.
func (p *Pages) StartFlush(group uint64, records int64) *Flush {
	if p.dirty.len() == 0 && p.nothingPending() {
		p.rebase(group, p.dirty.began(group), records)
		return nil
	}
	f := p.StartEarly()
	f.Seal(group, records)
	return f
}

// Seal sets the base of a flush of all pages that are dirty now. group is as for StartFlush; if pages of the
// batch being applied were written early, it is the group that carries that batch. records is the number of
// records in the tree. Token held; after the batch.
func (f *Flush) Seal(group uint64, records int64) {
	p := f.p
	f.work = slices.Grow(f.work, p.dirty.len())
	for _, e := range p.dirty.pages {
		f.take(e)
	}
	p.dirty.clear()
	f.seal(group, records)
}

// take makes the flush write a dirty page, or list it as removed. The caller takes the page out of the dirty
// pages.
func (f *Flush) take(e *entry) {
	switch v := e.newest(); v.kind {
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

// seal sets the base after every page that the flush writes was taken. Pages that are still dirty are left
// behind.
func (f *Flush) seal(group uint64, records int64) {
	p := f.p
	f.slot, f.base, f.records = p.registry.AcquireAt(p.seq), group, records-p.dirty.gains
	f.redo = p.dirty.began(group)
	f.retired, p.retired = p.retired, nil
	f.deaths, p.deaths = p.deaths, deaths{}
	p.listed, p.doomed = 0, 0
}

// Sort puts the pages in the order in which they are written. The caller does not hold the token, and calls it
// once before the first Encode.
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
		case a.head != b.head: // decides nearly always for random keys, without a cache miss for the keys themselves
			return cmp.Compare(a.head, b.head)
		}
		return bytes.Compare(a.key, b.key)
	})
	if len(f.work) > 0 && f.work[0].level == 0 {
		f.begin = append([]byte{}, f.work[0].key...)
	}
}

// Begin returns the first key of the first leaf of the flush, nil if the flush has no leaf. After Sort.
func (f *Flush) Begin() []byte { return f.begin }

// Base returns the group up to which the flushed tree has all commits. After Seal.
func (f *Flush) Base() uint64 { return f.base }

// Pages returns an upper bound of the pages that the flush has still to write.
func (f *Flush) Pages() int64 {
	stream := flushFixed + len(f.retired)*retiredSize + len(f.removed)*8 + f.deaths.most(f.p.store.End())*deathSize
	return int64(len(f.work)-f.next) + int64(stream/logstore.BodySize) + 1
}

// LimitPart limits a part to n pages, which makes parts smaller. Before the first Encode.
func (f *Flush) LimitPart(n int) { f.part = min(n, partPages) }

// Encode prepares the images of the next part. The token is not needed.
func (f *Flush) Encode() { f.EncodeParts(1) }

// EncodeParts is Encode for the next n parts, some of which may be prepared already.
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

// Encoded returns the number of images that are prepared and not written.
func (f *Flush) Encoded() int { return f.ready - f.next }

// image returns the body of page i of work in images.
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

// Sync makes the written parts durable. After the last part; the token is not needed.
func (f *Flush) Sync() error { return f.p.store.Sync() }

const installParts = 8 // parts installed per call of Install, so that commits get the token in between

// Install makes the pages of the flush the installed state, some pages per call. Token held; after Sync.
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

// place installs one page: an address replaces the version in memory that was written.
//
// If a registered reader sees the version in memory, that version stays, and the address becomes a newer version,
// with the base's Seq. The reader may hold slices of the node, and of the older image in which the node has cells,
// until it ends; so both have to stay for it in any case. Only later readers use the new place, so the new place need
// not be kept from reuse for this reader too.
//
// A still newer version, made while the flush was in progress, may have cells in the image at the place that dies
// now. place lets it have them in the new image instead. Copying them into the node would take more memory.
func (f *Flush) place(w *flushItem) {
	p, e := f.p, w.entry
	old := cmp.Or(e.place(), e.lent)
	if v := e.newest(); v != w.v && v.kind == inMemory && v.node.Borrows() {
		n := &version{seq: v.seq, kind: inMemory, node: p.rebased(v, w)}
		n.next.Store(v.next.Load())
		e.show(n)
		p.leaveWith(v, old)
	}
	at, newer := &e.link.head, (*version)(nil)
	for v := at.Load(); v != w.v; v = at.Load() {
		if v == nil {
			panic("override: a version pinned by a flush is gone")
		}
		at, newer = &v.next, v
	}
	fresh := renew(e)
	n := &fresh.first
	n.seq, n.kind, n.addr = w.v.seq, atAddress, w.addr
	if base := f.slot.Seq(); p.limbo.seen(w.v.seq, base) {
		n.seq = base
		n.next.Store(w.v)
	} else {
		n.next.Store(w.v.next.Load())
	}
	if newer == nil {
		p.table.replace(e, fresh)
	} else {
		at.Store(n)
	}
	switch apart := n.seq > w.v.seq; {
	case newer == nil:
		p.leaveWith(w.v, old)
		if apart { // the written version is still in the chain
			r := &p.limbo.young[len(p.limbo.young)-1]
			r.entry, r.found = e, n.seq
		}
	case apart: // supersede put the written version into limbo when the newer one came
		p.limbo.supersede(e, n, newer.seq)
	default:
		p.limbo.leave(w.v, newer.seq)
	}
	e.lent = 0
	first := e.place() == 0
	p.install(e, w.addr, n.seq)
	if first {
		e.flying = false
		p.unplaced.Add(-1) // the page is live now
	}
}

// rebased returns a node with the records of newer, a version newer than the one that the flush has written.
// The node has its cells in the new image instead of the old one, or owns them if that is not possible.
func (p *Pages) rebased(newer *version, w *flushItem) btree.Node {
	if image, err := p.store.Page(w.addr); err == nil {
		if n, ok := newer.node.Rebase(p.memory, w.v.node, image); ok {
			return n
		}
	}
	return newer.node.Own(p.memory)
}

// Abandon ends a flush that failed. The store is poisoned.
func (f *Flush) Abandon() {
	f.p.flush = nil
	if f.base != 0 {
		f.slot.Release()
	}
}
