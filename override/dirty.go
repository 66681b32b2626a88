package override

import (
	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// dirtyPages are the pages whose newest version is in memory, or whose removal is not written, and which the
// flush in flight does not write.
//
// A flush need not write all of them. Recovery finds inner nodes and names as of the base of the newest flush.
// It then redoes every record after the redo start, a group at or before the base, on leaves that may already
// have some of these records. So a flush may leave a leaf behind, with the image that an older flush has
// written, if that image lacks nothing but records that redo brings:
//
//   - The leaf has had the same name since it was written, and its bounds have at most become wider. So it was neither
//     split nor merged. Its lower bound is not a cut separator either: such a separator stands for the leaf's first
//     key, and rises when that key is deleted.
//   - It has the same references to values. So a flush can list every value that died up to its base: no leaf on disk
//     refers to a dead value any more.
//   - All changes that the image lacks are in groups after the redo start.
//
// The pages of a split may be left behind too, but only all of them together. The parent's image on disk does not
// know the new siblings. It leads to the old image of the leaf, which has the records of the siblings, except those
// that redo brings. So split leaves, their new siblings and their parent form a family, and the next incremental
// flush writes all pages of a family or none. Invariants:
//
//   - The parent of a family is on disk, or will be before the next flush starts. Its name, its bounds and its
//     other children are the same there.
//   - No page of a family has to be written by the next flush. As soon as one has to be, all of them have to be, and
//     the family is dissolved.
//   - A page that may be left behind without others may also be written without its parent: the parent's image on
//     disk and the parent in memory give the page the same bounds.
//
// The next flush has to write a page that is dirty for any other reason. Only Batch.Update and Batch.Grow allow
// a page to be left behind; Put, Remove and everything built on them do not.
//
// Epochs determine the redo start. Each flush begins a new epoch at its base, and a page belongs to the epoch in which
// it became dirty. So all changes that its image on disk lacks are in groups after the base at which that epoch began.
// Redo starts at the beginning of the oldest epoch of any page left behind. A page left behind keeps its epoch, so the
// redo start never goes back.
type dirtyPages struct {
	pages []*entry // in no order; an entry's dirty field is its index plus 1
	must  []*entry // pages that the next flush has to write; may have duplicates, and pages that were written early since
	musts int      // number of dirty pages that the next flush has to write
	grown int      // number of pages in families
	born  int      // number of dirty pages that are new since the last flush and take no other page's place
	asked int64    // number of times, since the start, that a page changed from "may be left behind" to "has to be written"
	gains int64    // sum of the gain fields: how many records the pages that may be left behind have in memory and not on disk
	ages  []age    // epochs that a dirty page may belong to, oldest first; the last one is the present epoch
}

// age is an epoch.
type age struct {
	epoch uint64
	base  uint64 // group after which the epoch began
	pages int    // number of dirty pages that became dirty in this epoch
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

// bear adds a new page. The flush that writes it makes more pages live.
func (d *dirtyPages) bear(e *entry) {
	d.add(e)
	e.born = true
	d.born++
}

// place notes that a page no longer counts in born.
func (d *dirtyPages) place(e *entry) {
	if e.born {
		e.born = false
		d.born--
	}
}

// oblige makes the next flush write a dirty page, and with it the page's family.
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

// family is a parent and the leaves below it that were split, or made by a split, since the parent was written.
type family struct {
	parent  *entry
	pages   []*entry // includes the parent, as the first
	counted bool     // see PartPages
}

// grow puts e, a dirty page of a split, into the family of its parent. If the next flush has to write one of the two,
// it has to write both. grow makes the parent dirty; the same batch makes the parent's new version.
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
		parent.heads.Store(true)
		d.grown++
	}
	if e.family == nil {
		e.family = f
		f.pages = append(f.pages, e)
		d.grown++
	}
}

// disband ends a family and returns the pages that were in it.
func (d *dirtyPages) disband(f *family) []*entry {
	for _, e := range f.pages {
		e.family = nil
	}
	f.parent.heads.Store(false)
	d.grown -= len(f.pages)
	return f.pages
}

// gain notes by how many records a dirty page has grown.
func (d *dirtyPages) gain(e *entry, records int) {
	if !e.must {
		e.gain += int32(records)
		d.gains += int64(records)
	}
}

// remove makes a dirty page clean: its newest version was written or is about to be written.
func (d *dirtyPages) remove(e *entry) {
	last := d.pages[len(d.pages)-1]
	d.pages[e.dirty-1], last.dirty = last, e.dirty
	d.pages[len(d.pages)-1] = nil
	d.pages = d.pages[:len(d.pages)-1]
	d.ages[e.epoch-d.ages[0].epoch].pages--
	if e.must {
		d.musts--
	}
	d.place(e)
	d.gains -= int64(e.gain)
	e.dirty, e.must, e.gain = 0, false, 0
	if e.family != nil { // the same flush takes all other pages of the family: see clear and StartPart
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

// began starts a new epoch after the given base and returns the group after which redo has to start.
func (d *dirtyPages) began(base uint64) (redo uint64) {
	next := d.ages[len(d.ages)-1].epoch + 1
	n := 0
	for n < len(d.ages) && d.ages[n].pages == 0 {
		n++
	}
	d.ages = append(append(d.ages[:0], d.ages[n:]...), age{epoch: next, base: base})
	return d.ages[0].base
}

// Update makes n the newest version of a leaf whose bounds and references do not change. The next flush may
// leave the leaf behind.
func (b *Batch) Update(id btree.PageID, n btree.Node) { b.update(b.entry(id), n) }

// entry returns the entry of a page of the newest tree; it makes one if the page's name is an address without
// an entry.
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
	records, known := p.countOf(e.newest())
	gained := n.Count() - records
	b.pushTo(e, inMemory, n)
	if !known {
		p.dirty.oblige(e)
	}
	p.dirty.gain(e, gained)
}

// Grow makes n the newest version of a page of a split: a leaf, its new sibling, or the parent. The next flush
// may leave behind the parent with all such pages below it, but not some of them.
func (b *Batch) Grow(parent, id btree.PageID, n btree.Node) {
	p := b.p
	if id == parent {
		e := b.entry(id)
		b.pushTo(e, inMemory, n)
		p.dirty.grow(e, e)
		return
	}
	e := p.table.find(id)
	if e == nil && !logstore.IsAddr(id) { // a new sibling
		e = b.bear(id, inMemory, n)
		p.dirty.gain(e, n.Count())
	} else {
		b.update(b.entry(id), n)
	}
	p.dirty.grow(b.entry(parent), b.entry(id))
}

// Narrow makes the next flush write a leaf if it is dirty: its image on disk may have records outside of its
// new bounds.
func (b *Batch) Narrow(id btree.PageID) {
	if e := b.p.table.find(id); e != nil && e.dirty != 0 {
		b.p.dirty.oblige(e)
	}
}

// countOf returns the number of records in a version of a leaf. ok is false if the version is none or its image
// cannot be read.
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
