package override

import (
	"cmp"
	"slices"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// A batch becomes a page group, the paper's way of committing, if its pages take no more room than its redo
// records would. A page group is also a base: redo starts after it. So the group has to contain all dirty
// pages, and nothing may be pending that only a flush can record: names born, pages removed, values dropped,
// names folded away.

const leftoverPages = 3 // limit of dirty pages of earlier batches that a page group takes along

// CanPageGroup reports whether a batch that begins now could become a page group.
func (p *Pages) CanPageGroup() bool {
	return p.dirty.len() <= leftoverPages && p.flush == nil && !p.frozen && p.nothingPending()
}

// LeafOf returns the leaf of the newest tree in which the key belongs, and whether that leaf is dirty. Token
// held.
func (p *Pages) LeafOf(key []byte) (leaf logstore.PageID, dirty bool, err error) {
	s := p.At(p.seq)
	if leaf, err = btree.Leaf(&s, Root, key); err != nil {
		return 0, false, err
	}
	e := p.table.find(leaf)
	return leaf, e != nil && e.dirty != 0, nil
}

// Legal reports whether the applied batch may be written as a page group. CanPageGroup held when the batch
// began. pages is the number of pages that the redo of the batch would take; the batch must not have made more
// pages dirty.
func (b *Batch) Legal(pages int) bool {
	p := b.p
	if !p.nothingPending() || p.dirty.len() == 0 || p.dirty.len()-b.dirtyAt > pages {
		return false
	}
	for _, e := range p.dirty.pages {
		if e.newest().kind != inMemory || e.place() == 0 { // removed, or born since the last flush
			return false
		}
	}
	return true
}

// WritePages adds the images of all dirty pages to g, leaves first. The caller commits and syncs g, then calls
// InstallPages, before any other batch.
func (b *Batch) WritePages(g *logstore.Group) {
	p := b.p
	slices.SortFunc(p.dirty.pages, func(x, y *entry) int {
		return cmp.Compare(x.newest().node.Level(), y.newest().node.Level())
	})
	for i, e := range p.dirty.pages {
		e.dirty = int32(i + 1)
		a, body := g.Page(e.id)
		v := e.newest()
		v.node.Encode(body, p.memory.Even)
		v.addr = a // readers do not look at addr while the version is in memory
	}
}

// InstallPages makes the pages of the page group the newest images. records is the number of records in the
// tree. The group is synced, as for a flush, and its batch may be published already.
func (b *Batch) InstallPages(group uint64, records int64) {
	p := b.p
	if p.store.Durable() < group {
		panic("override: a page group is installed before it is synced")
	}
	for _, e := range p.dirty.pages {
		v := e.newest()
		n := &version{seq: v.seq, kind: atAddress, addr: v.addr}
		n.next.Store(v.next.Load())
		e.show(n)
		p.leaveWith(v, e.place())
		p.install(e, v.addr, v.seq)
	}
	p.dirty.clear()
	p.rebase(group, p.dirty.began(group), records)
}
