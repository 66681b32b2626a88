package override

import (
	"cmp"
	"slices"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// A batch becomes a page group, the paper's way of committing, when its pages take no more room than its redo records would. Then it
// is a base as well: redo starts behind it. So all that is dirty goes with it, and nothing may be pending that only a flush can record:
// names born, pages removed, values dropped, names folded away.

const leftoverPages = 3 // most pages left dirty by earlier batches that a page group takes along

// CanPageGroup reports whether a batch begun now could become a page group.
func (p *Pages) CanPageGroup() bool {
	return p.dirty.len() <= leftoverPages && p.flush == nil && !p.frozen && p.nothingPending()
}

// LeafOf returns the leaf of the newest tree to which a record with the given key belongs, and whether it is dirty. Token held.
func (p *Pages) LeafOf(key []byte) (leaf logstore.PageID, dirty bool, err error) {
	s := p.At(p.seq)
	if leaf, err = btree.Leaf(&s, Root, key); err != nil {
		return 0, false, err
	}
	e := p.table.find(leaf)
	return leaf, e != nil && e.dirty != 0, nil
}

// Legal reports whether the applied batch, for which CanPageGroup held when it began, may be written as a page group, given the number of
// pages that its redo would take.
func (b *Batch) Legal(pages int) bool {
	p := b.p
	if !p.nothingPending() || p.dirty.len() == 0 || p.dirty.len()-b.dirtyAt > pages {
		return false
	}
	for _, e := range p.dirty.pages {
		if e.head.Load().kind != inMemory || e.place() == 0 { // removed, or born since the last flush
			return false
		}
	}
	return true
}

// WritePages adds the images of the batch's pages to g, bottom up; InstallPages follows once g is committed and synced, and before any
// other batch.
func (b *Batch) WritePages(g *logstore.Group) {
	p := b.p
	slices.SortFunc(p.dirty.pages, func(x, y *entry) int {
		return cmp.Compare(x.head.Load().node.Level(), y.head.Load().node.Level())
	})
	for i, e := range p.dirty.pages {
		e.dirty = int32(i + 1)
		a, body := g.Page(e.id)
		v := e.head.Load()
		v.node.Encode(body, p.memory.Even)
		v.addr = a // not seen by readers while the version is in memory
	}
}

// InstallPages makes the page group's pages the newest images. records is the number of records in the tree. The group is synced, as with
// a flush, and its batch may be published.
func (b *Batch) InstallPages(group uint64, records int64) {
	p := b.p
	if p.store.Durable() < group {
		panic("override: a page group is installed before it is synced")
	}
	for _, e := range p.dirty.pages {
		v := e.head.Load()
		n := &version{seq: v.seq, kind: atAddress, addr: v.addr}
		n.next.Store(v.next.Load())
		e.head.Store(n)
		p.leaveWith(v, e.place())
		p.install(e, v.addr, v.seq)
	}
	p.dirty.clear()
	p.rebase(group, p.dirty.began(group), records)
}
