package override

import (
	"math"
	"slices"

	"flashdbm/logstore"
)

// A flush may begin before its base is reached. While a batch larger than memory is being applied, pages that
// it has changed are written as the first parts of the flush, and their nodes leave memory. No reader can see
// any of it: the batch's Seq is not published, and recovery ignores the parts until the flush's last part is
// complete, which is written after the whole batch is applied.
//
// Invariants, in addition to those of Flush:
//
//   - The token is held from StartEarly to Seal. The base, which is the group that Seal is given, was written
//     before StartEarly, so the parts follow the base and no other group lies between.
//   - Only versions of the unpublished Seq are written early. Readers may be using versions of earlier Seqs;
//     these wait for Seal. So no reader was ever led to an early image that a later piece of the batch has
//     replaced.
//   - A page that changes again after it was written early becomes dirty again, and Seal has it written again.
//     Recovery takes the images of a flush in order, so the last one counts. In this process the image that
//     counts is the one to which the chain leads at the base's Seq.
//   - A node made from an early image owns its cells: the image may never count, and then nothing keeps its
//     segment.
//   - The installed state does not change before the flush is installed. Until then the previous places are
//     live and the early images are not, as with any flush. No checkpoint happens meanwhile, and without a
//     checkpoint their segments are not reused.
//
// Crash cases. Before the base's group is complete: nothing happened. After it, with any number of early parts,
// also after Seal: recovery ignores the parts and redoes the batch. After the last part: recovery installs
// everything that was written, early or late.
type earlyPage struct {
	entry *entry
	addr  logstore.Addr
}

// AllLevels makes WriteEarly write inner nodes as well.
const AllLevels = math.MaxInt

// StartEarly begins a flush in the middle of a batch. No flush is in flight and the pages are not frozen. Token
// held.
func (p *Pages) StartEarly() *Flush {
	if p.flush != nil || p.frozen {
		panic("override: a flush beside another, or while the pages are frozen")
	}
	p.flush = &Flush{p: p, part: partPages}
	return p.flush
}

// early reports whether the newest version of a dirty page may be written before its batch is complete.
func (p *Pages) early(e *entry, level int) bool {
	v := e.newest()
	return v.kind == inMemory && v.seq == p.seq && v.node.Level() <= level
}

// EarlyPages returns how many pages up to the given level WriteEarly would write. Token held.
func (p *Pages) EarlyPages(level int) (n int64) {
	for _, e := range p.dirty.pages {
		if p.early(e, level) {
			n++
		}
	}
	return n
}

// WriteEarly writes the pages that the batch has changed so far, up to the given level (leaves are level 0),
// syncs them and frees their nodes. It returns the number of pages written. Token held, between two pieces of
// the batch.
func (f *Flush) WriteEarly(level int) (pages int64, err error) {
	p := f.p
	var early []*entry
	for _, e := range p.dirty.pages {
		if p.early(e, level) {
			early = append(early, e)
		}
	}
	for _, e := range early { // leaveMemory takes these out of the dirty pages without their families, so the families have to end
		p.dirty.oblige(e)
	}
	for part := range slices.Chunk(early, f.part) {
		if err := f.writePart(part); err != nil {
			return pages, err
		}
		pages += int64(len(part))
	}
	if err := p.store.Sync(); err != nil {
		return pages, err
	}
	f.leaveMemory(len(f.early) - len(early))
	return pages, nil
}

// writePart writes some pages as one part; an error has poisoned the store.
func (f *Flush) writePart(part []*entry) error {
	p := f.p
	g := p.store.Begin(logstore.FlushGroup)
	if f.first == 0 {
		f.first = g.Number()
	}
	for _, e := range part {
		a, body := g.Page(e.id)
		e.newest().node.Encode(body, p.memory.Even)
		f.early = append(f.early, earlyPage{e, a})
	}
	_, err := g.Commit(f.first)
	return err
}

// leaveMemory frees the nodes of the early pages from the given index on. These pages are synced: until then
// the system may return other bytes for them.
func (f *Flush) leaveMemory(from int) {
	p := f.p
	p.writtenEarly.Add(uint64(len(f.early) - from))
	for _, x := range f.early[from:] {
		v := x.entry.newest()
		n := &version{seq: v.seq, kind: atAddress, addr: x.addr}
		n.next.Store(v.next.Load())
		x.entry.show(n)
		v.node.Release(p.memory) // no reader is at its Seq yet
		p.dirty.remove(x.entry)  // it becomes dirty again if it changes again
	}
}

// placeEarly installs a page that was written early, unless the same batch changed or removed it after that.
func (f *Flush) placeEarly(x earlyPage) {
	if v := x.entry.link.at(f.slot.Seq()); v != nil && v.kind == atAddress && v.addr == x.addr {
		f.p.install(x.entry, x.addr, v.seq)
	}
}

// Recall undoes the early writes, before Seal: the pages are in memory and dirty again, and the parts never
// count. Token held.
func (f *Flush) Recall() {
	p := f.p
	for _, x := range f.early {
		v := x.entry.newest()
		if v.kind != atAddress || v.seq != p.seq || v.addr != x.addr {
			if x.entry.dirty != 0 { // changed again: it too has to be written
				p.dirty.oblige(x.entry)
			}
			continue
		}
		n, err := p.node(x.entry.id, v, v.seq)
		if err != nil {
			continue // the image is damaged: the next reader of the page gets the error
		}
		m := &version{seq: v.seq, kind: inMemory, node: n.Own(p.memory)}
		m.next.Store(v.next.Load())
		x.entry.show(m)
		p.dirty.add(x.entry)
		p.dirty.oblige(x.entry) // the epoch in which it became dirty is forgotten
	}
	p.flush = nil
}
