package override

import (
	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// A Batch changes the tree at one Seq. It is the btree.Editor of the token holder, who begins one for each
// batch of commits and publishes it by moving the watermark; no reader sees the batch before that. An error
// while a batch is applied poisons the store, so a batch is never undone.
type Batch struct {
	p       *Pages
	dirtyAt int // number of dirty pages when the batch began
}

// Begin starts the batch with the given Seq, which is above those of all earlier batches.
func (p *Pages) Begin(seq uint64) *Batch {
	if seq <= p.seq {
		panic("override: Seq of a batch does not grow")
	}
	p.seq = seq
	p.memory.Even = p.memory.Even || p.store.EvenLeaves()
	b := &p.batch
	*b = Batch{p: p, dirtyAt: p.dirty.len()}
	return b
}

// SameBatch returns the newest batch, for further changes before it is published.
func (p *Pages) SameBatch() *Batch { return &p.batch }

// Node returns the newest image of a page, including changes of this batch.
func (b *Batch) Node(id btree.PageID) (btree.Node, error) { return b.p.nodeAt(id, b.p.seq) }

// Ahead loads what looking up the pages will need. It takes each step of the lookup for all pages before the
// next step, so that their cache misses overlap.
func (b *Batch) Ahead(ids []btree.PageID) {
	var links [aheadPages]*link
	t := b.p.table.buckets.Load()
	for ; len(ids) > 0; ids = ids[min(len(ids), aheadPages):] {
		near := links[:min(len(ids), aheadPages)]
		for i := range near {
			near[i] = t.head(ids[i]).Load()
		}
		for i, l := range near {
			for l != nil && l.id != ids[i] {
				l = l.next.Load()
			}
			near[i] = l
		}
		for _, l := range near {
			if l != nil {
				l.entry.place()
				l.head.Load().next.Load()
			}
		}
	}
}

const aheadPages = 16 // pages looked up together

// RunKey returns the whole key of a record with a long key.
func (b *Batch) RunKey(ref btree.Ref) ([]byte, error) {
	s := b.p.At(b.p.seq)
	return s.RunKey(ref)
}

// Memory returns the memory that holds the nodes of versions.
func (b *Batch) Memory() *btree.Memory { return b.p.memory }

// New returns a born name that was never used before.
func (b *Batch) New() btree.PageID {
	return logstore.BornBit | b.p.born.Add(1)
}

// Put makes n the newest version of a page.
func (b *Batch) Put(id btree.PageID, n btree.Node) {
	b.push(id, inMemory, n)
}

// Remove notes that a page left the tree.
func (b *Batch) Remove(id btree.PageID) {
	b.p.doomed++
	b.p.listed++
	b.push(id, removed, btree.Node{})
}

// Drop notes that a value left the tree.
func (b *Batch) Drop(ref btree.Ref) {
	b.p.deaths.add(ref, b.p.store.SegmentPages())
	if ref.Kind == btree.Logged {
		return
	}
	b.p.doomed += logstore.RunPages(int64(ref.KeyLen) + int64(ref.ValueLen))
}

// Touch makes a page of the newest tree dirty without changing it, so that the next flush moves the page to the
// end of the log and its present place dies. It returns false if there is nothing to do: a dirty page moves
// anyway, and a page that was folded away or removed has another name or none.
func (b *Batch) Touch(id btree.PageID) (bool, error) {
	p := b.p
	if e := p.table.find(id); e != nil {
		if v := e.newest(); v.kind != atAddress {
			return false, nil
		}
	}
	n, err := b.Node(id)
	if err != nil {
		return false, err
	}
	b.Put(id, n)
	return true, nil
}

// push puts a version on the chain of a page, which the next flush has to write. A version of the same batch is
// replaced, because a chain has one version per Seq and no reader can have used the old one.
func (b *Batch) push(id btree.PageID, kind versionKind, n btree.Node) {
	p := b.p
	e := p.table.find(id)
	switch {
	case e == nil && !logstore.IsAddr(id):
		e = b.bear(id, kind, n)
	case e == nil:
		e = p.claim(id)
		fallthrough
	default:
		b.pushTo(e, kind, n)
	}
	p.dirty.oblige(e)
}

// bear adds an entry for a born name, with its first version, to the table.
func (b *Batch) bear(id btree.PageID, kind versionKind, n btree.Node) *entry {
	e, first := newEntry(id)
	first.seq, first.kind, first.node = b.p.seq, kind, n
	b.p.attach(e)
	b.p.dirty.bear(e)
	return e
}

// pushTo makes a version the newest one in the chain of an entry, and the page dirty.
func (b *Batch) pushTo(e *entry, kind versionKind, n btree.Node) {
	p := b.p
	old, f := e.newest(), renew(e)
	v := &f.first
	v.seq, v.kind, v.node = p.seq, kind, n
	if old.seq == v.seq {
		if old.kind == atAddress && v.kind == inMemory && v.node.Borrows() { // old was written early; its image is obsolete from now on, so the node copies the cells
			borrows := v.node
			v.node = borrows.Own(p.memory)
			borrows.Release(p.memory)
		}
		v.next.Store(old.next.Load())
		p.table.replace(e, f)
		if old.kind == inMemory {
			old.node.Release(p.memory)
		}
	} else {
		v.next.Store(old)
		p.table.replace(e, f)
		p.limbo.supersede(e, old, v.seq)
	}
	p.dirty.add(e)
}
