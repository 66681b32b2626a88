package override

import (
	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// dirtyPages are those with a newest version that no flush has written yet, the one in flight not counted.
//
// A flush need not write all of them. What recovery finds are inner nodes and names as of the base of the newest flush, and it redoes
// every record behind the redo start, a group at or before the base, over leaves that may already have some of those records. So a leaf
// may be left behind, as an older flush has written it, if nothing but redo is missing in it:
//
//   - It bears the same name, and its bounds only got wider, since it was written: it was not split or merged, and does not lie behind a
//     cut separator, whose bound is the leaf's own first key.
//   - It has the same references. So each flush lists all deaths up to its base: nothing on disk refers to a value that died before.
//   - All that has changed in it was in groups behind the redo start.
//
// What a split makes may be left behind too, if all of it is: the parent's image on disk does not know the new siblings, and leads to the leaf that
// has their records, but for redo. So leaves that were split, their siblings and their parent are a family: the next part writes all of a
// family or none of it. Invariants:
//
//   - The parent of a family is on disk, or will be before the next flush: its name, its bounds and its other children are as they are there.
//   - No page of a family has to be written. If one has to, so has the parent, and with it all others: the family ends.
//   - A page that may be left behind alone may also be written alone, below a parent that is left behind: both give it the same bounds.
//
// A page that is dirty for any other reason has to be written by the next flush. Batch.Update and Batch.Grow alone leave that open; Put, Remove and
// all that is built on them do not.
//
// The redo start is found by epochs, which the bases of flushes separate: what became dirty in an epoch did so by groups behind the base
// that began it. It never goes back, since a page that is left behind keeps its epoch.
type dirtyPages struct {
	pages []*entry // in no order; each knows its index
	must  []*entry // those that the next flush has to write; some may have been written early since, or be here twice
	musts int      // how many that are
	grown int      // how many pages are in families
	asked int64    // how often a page has become one of them
	gains int64    // records that the others have more than their images on disk
	ages  []age    // of the dirty pages, oldest first; the last one is the present epoch
}

// age is an epoch.
type age struct {
	epoch uint64
	base  uint64 // group that it began behind
	pages int    // dirty since
}

func newDirtyPages() dirtyPages { return dirtyPages{ages: []age{{epoch: 1}}} }

func (d *dirtyPages) len() int { return len(d.pages) }

// add makes a page dirty.
func (d *dirtyPages) add(e *entry) {
	if e.dirty != 0 {
		return
	}
	d.pages = append(d.pages, e)
	e.dirty = int32(len(d.pages))
	now := &d.ages[len(d.ages)-1]
	e.epoch = now.epoch
	now.pages++
}

// oblige makes a dirty page one that the next flush has to write, with all of its family.
func (d *dirtyPages) oblige(e *entry) {
	if e.family != nil {
		for _, m := range d.disband(e.family) {
			d.oblige(m)
		}
	}
	if e.must {
		return
	}
	e.must = true
	d.must = append(d.must, e)
	d.musts++
	d.asked++
	d.gains -= int64(e.gain)
	e.gain = 0
}

// family is a parent and those leaves below it that were split since it was written.
type family struct {
	parent  *entry
	pages   []*entry // the parent is the first
	counted bool     // see PartPages
}

// grow has a dirty page of a split written with its family, or by the next flush, if its parent has to be. The parent is dirty from here on:
// its version comes with the same batch.
func (d *dirtyPages) grow(parent, e *entry) {
	d.add(parent)
	f := parent.family
	if e.must || parent.must || parent.place() == 0 && !parent.flying || e.family != nil && e.family != f {
		d.oblige(e)
		d.oblige(parent)
		return
	}
	if f == nil {
		f = &family{parent: parent, pages: []*entry{parent}}
		parent.family = f
		d.grown++
	}
	if e.family == nil {
		e.family = f
		f.pages = append(f.pages, e)
		d.grown++
	}
}

// disband ends a family and returns its pages.
func (d *dirtyPages) disband(f *family) []*entry {
	for _, e := range f.pages {
		e.family = nil
	}
	d.grown -= len(f.pages)
	return f.pages
}

// gain notes how many more records a dirty page has than before.
func (d *dirtyPages) gain(e *entry, records int) {
	if !e.must {
		e.gain += int32(records)
		d.gains += int64(records)
	}
}

// remove makes a dirty page clean: what it has now is written, or being written.
func (d *dirtyPages) remove(e *entry) {
	last := d.pages[len(d.pages)-1]
	d.pages[e.dirty-1], last.dirty = last, e.dirty
	d.pages[len(d.pages)-1] = nil
	d.pages = d.pages[:len(d.pages)-1]
	d.ages[e.epoch-d.ages[0].epoch].pages--
	if e.must {
		d.musts--
	}
	d.gains -= int64(e.gain)
	e.dirty, e.must, e.gain = 0, false, 0
	if e.family != nil { // all others go with the same flush: see clear and StartPart
		d.disband(e.family)
	}
}

// clear makes all pages clean.
func (d *dirtyPages) clear() {
	for len(d.pages) > 0 {
		d.remove(d.pages[len(d.pages)-1])
	}
	d.forgetMusts()
}

func (d *dirtyPages) forgetMusts() {
	clear(d.must)
	d.must = d.must[:0]
}

// began begins a new epoch behind the given base and returns where redo has to start.
func (d *dirtyPages) began(base uint64) (redo uint64) {
	next := d.ages[len(d.ages)-1].epoch + 1
	n := 0
	for n < len(d.ages) && d.ages[n].pages == 0 {
		n++
	}
	d.ages = append(append(d.ages[:0], d.ages[n:]...), age{epoch: next, base: base})
	return d.ages[0].base
}

// Update makes n the newest version of a leaf that keeps its bounds and its references: the next flush may leave it behind.
func (b *Batch) Update(id btree.PageID, n btree.Node) { b.update(b.entry(id), n) }

// entry returns the entry of a page of the newest tree.
func (b *Batch) entry(id btree.PageID) *entry {
	if e := b.p.table.find(id); e != nil {
		return e
	}
	if !logstore.IsAddr(id) {
		panic("override: a page without a name was changed")
	}
	return b.p.claim(id)
}

func (b *Batch) update(e *entry, n btree.Node) {
	p := b.p
	records, known := p.countOf(e.head.Load())
	gained := n.Count() - records
	b.pushTo(e, &version{seq: p.seq, kind: inMemory, node: n})
	if !known {
		p.dirty.oblige(e)
	}
	p.dirty.gain(e, gained)
}

// Grow makes n the newest version of a page of a split: a leaf, a new sibling of it, or the parent. The next flush may leave behind what grew
// below the parent, all of it.
func (b *Batch) Grow(parent, id btree.PageID, n btree.Node) {
	p := b.p
	if id == parent {
		e := b.entry(id)
		b.pushTo(e, &version{seq: p.seq, kind: inMemory, node: n})
		p.dirty.grow(e, e)
		return
	}
	e := p.table.find(id)
	if e == nil && !logstore.IsAddr(id) { // a new sibling
		e = &entry{id: id}
		e.head.Store(&version{seq: p.seq, kind: inMemory, node: n})
		p.attach(e)
		p.dirty.add(e)
		p.dirty.gain(e, n.Count())
	} else {
		b.update(b.entry(id), n)
	}
	p.dirty.grow(b.entry(parent), b.entry(id))
}

// Narrow has the next flush write a leaf if it is dirty: on disk it may have records that are out of its bounds now.
func (b *Batch) Narrow(id btree.PageID) {
	if e := b.p.table.find(id); e != nil && e.dirty != 0 {
		b.p.dirty.oblige(e)
	}
}

// countOf returns how many records a version of a leaf has.
func (p *Pages) countOf(v *version) (records int, ok bool) {
	switch v.kind {
	case inMemory:
		return v.node.Count(), true
	case atAddress:
		if image, err := p.image(v.addr, p.seq); err == nil {
			return btree.View(image).Count(), true
		}
	}
	return 0, false
}
