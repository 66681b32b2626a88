package override

import (
	"fmt"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// images reads pages and values. Any goroutine may use it, at the Seq of a registered reader.
type images struct {
	*names
	follow *following // for pages that another process writes, else nil
}

// A Snapshot reads the tree as of a Seq that its owner has registered. Any number of Snapshots may be used at
// once; a Snapshot is two words and needs no closing.
type Snapshot struct {
	pages *images
	seq   uint64
}

// At returns the snapshot at seq.
func (p *images) At(seq uint64) Snapshot { return Snapshot{p, seq} }

// Seq returns the Seq that the snapshot reads at.
func (s *Snapshot) Seq() uint64 { return s.seq }

// Node returns the image of a page. See btree.Pager.
func (s *Snapshot) Node(id btree.PageID) (btree.Node, error) { return s.pages.nodeAt(id, s.seq) }

// Same reports whether this snapshot and an earlier one see the same version of a page. It is false if the page
// has no table entry or if the two snapshots are of different Pages.
func (s *Snapshot) Same(id btree.PageID, earlier *Snapshot) bool {
	if s.pages != earlier.pages {
		return false
	}
	l := s.pages.lookup(id)
	if l == nil {
		return false
	}
	v := l.at(s.seq)
	return v != nil && v == l.at(earlier.seq)
}

// RunKey returns the whole key of a record whose key is too long for a leaf. The key is the beginning of the
// record's run.
func (s *Snapshot) RunKey(ref btree.Ref) ([]byte, error) {
	payload, err := s.pages.runAt(ref.ID, s.seq)
	if err != nil {
		return nil, err
	}
	if uint64(ref.KeyLen) > uint64(len(payload)) {
		return nil, s.pages.badRun(ref)
	}
	return payload[:ref.KeyLen:ref.KeyLen], nil
}

// Run returns the value in the run that ref names, as a slice of the mapping or of a verified copy.
func (s *Snapshot) Run(ref btree.Ref) ([]byte, error) {
	payload, err := s.pages.runAt(ref.ID, s.seq)
	if err != nil {
		return nil, err
	}
	if uint64(ref.KeyLen)+ref.ValueLen != uint64(len(payload)) {
		return nil, s.pages.badRun(ref)
	}
	return payload[ref.KeyLen:], nil
}

// Logged returns the value of key at the place that ref holds. The slice is in the mapping, or in a page in
// memory that no sync has covered.
func (s *Snapshot) Logged(key []byte, ref btree.Ref) ([]byte, error) {
	place := logstore.Place(ref.ID)
	b, err := s.pages.store.Logged(place, key, int(ref.ValueLen))
	if s.pages.follow != nil {
		return b, s.pages.stillThere(place.Addr(), s.seq, err)
	}
	return b, err
}

// Ahead loads the beginning of a value that Logged is going to return into the processor's cache.
func (s *Snapshot) Ahead(ref btree.Ref) { s.pages.store.Ahead(logstore.Place(ref.ID)) }

// Touch makes the system begin to read the page of a logged value, if no reader has touched it.
func (s *Snapshot) Touch(ref btree.Ref) { s.pages.store.Touch(logstore.Place(ref.ID)) }

// A Lookup is a Snapshot for a lookup: where the system has to read a page, it reads that page alone.
type Lookup Snapshot

// Node is Snapshot.Node.
func (l *Lookup) Node(id btree.PageID) (btree.Node, error) {
	p := l.pages
	if link := p.lookup(id); link != nil {
		v := link.at(l.seq)
		if v != nil && v.kind == atAddress {
			p.store.TouchPage(v.addr)
		}
		return p.node(id, v, l.seq)
	}
	if logstore.IsAddr(id) {
		p.store.TouchPage(id)
	}
	return p.nodeAt(id, l.seq)
}

// RunKey is Snapshot.RunKey.
func (l *Lookup) RunKey(ref btree.Ref) ([]byte, error) { return (*Snapshot)(l).RunKey(ref) }

// Prefetch makes the system begin to read those of the pages that Node has not returned yet.
func (s *Snapshot) Prefetch(ids []btree.PageID) {
	addrs := make([]logstore.Addr, 0, len(ids))
	for _, id := range ids {
		if a, ok := s.pages.placeAt(id, s.seq); ok {
			addrs = append(addrs, a)
		}
	}
	s.pages.store.Prefetch(addrs)
}

// PrefetchChildren is Prefetch for children of an inner node. See btree.Prefetching.
func (s *Snapshot) PrefetchChildren(n btree.Node, from, to int) {
	var few [aheadPages]logstore.Addr
	addrs := few[:0]
	for ; from < to; from++ {
		if a, ok := s.pages.placeAt(n.Child(from), s.seq); ok {
			addrs = append(addrs, a)
		}
	}
	s.pages.store.Prefetch(addrs)
}

// Extents returns the extents of the large value that ref names; together they have ref.ValueLen bytes.
func (s *Snapshot) Extents(ref btree.Ref) ([]logstore.Extent, error) {
	payload, err := s.pages.runAt(ref.ID, s.seq)
	if err != nil {
		return nil, err
	}
	if uint64(ref.KeyLen) > uint64(len(payload)) {
		return nil, s.pages.badRun(ref)
	}
	extents, err := logstore.GetExtents(payload[ref.KeyLen:])
	if err != nil {
		return nil, err
	}
	var sum uint64
	for _, e := range extents {
		sum += uint64(e.Bytes)
	}
	if sum != ref.ValueLen {
		return nil, s.pages.badRun(ref)
	}
	return extents, nil
}

func (p *images) badRun(ref btree.Ref) error {
	return &logstore.PageError{Path: p.store.Path(), Addr: ref.ID, What: "lengths of a long value"}
}

// node returns the image of v, the version of a page that a reader at seq uses; nil stands for none. A page reached
// through the table must bear the name by which it is known there.
func (p *images) node(id logstore.PageID, v *version, seq uint64) (btree.Node, error) {
	switch {
	case v == nil:
		return btree.Node{}, p.unknown(id)
	case v.kind == inMemory:
		return v.node, nil
	case v.kind != atAddress:
		return p.leftName(id, seq)
	}
	image, err := p.image(v.addr, seq)
	if err != nil {
		return btree.Node{}, err
	}
	if name := logstore.PageName(image); name != id && v.addr != id {
		return btree.Node{}, &logstore.PageError{Path: p.store.Path(), Addr: v.addr, What: fmt.Sprintf("has the name %#x instead of %#x", name, id)}
	}
	return btree.View(image), nil
}

// image returns the page at a for a reader at seq.
func (p *images) image(a logstore.Addr, seq uint64) ([]byte, error) {
	image, err := p.store.Page(a)
	if p.follow != nil {
		return image, p.stillThere(a, seq, err)
	}
	return image, err
}

// nodeAt returns the image of a page for a reader at seq. Any goroutine may call it; it takes no lock and does
// not allocate for a page that is in memory or verified.
func (p *images) nodeAt(id logstore.PageID, seq uint64) (btree.Node, error) {
	if l := p.lookup(id); l != nil {
		return p.node(id, l.at(seq), seq)
	}
	if !logstore.IsAddr(id) {
		return btree.Node{}, p.unknown(id)
	}
	image, err := p.image(id, seq)
	if err != nil {
		return btree.Node{}, err
	}
	return btree.View(image), nil
}

// placeAt returns the address at which nodeAt reads a page; ok is false if the page is in memory, or unknown.
func (p *images) placeAt(id logstore.PageID, seq uint64) (a logstore.Addr, ok bool) {
	l := p.lookup(id)
	if l == nil {
		return id, logstore.IsAddr(id)
	}
	v := l.at(seq)
	if v == nil || v.kind != atAddress {
		return 0, false
	}
	return v.addr, true
}

// addrAt returns the address of the run with the given name for a reader at seq.
func (p *images) addrAt(id logstore.PageID, seq uint64) (logstore.Addr, error) {
	l := p.lookup(id)
	if l == nil && logstore.IsAddr(id) {
		return id, nil
	}
	if l != nil {
		v := l.at(seq)
		if v != nil && v.kind == atAddress {
			return v.addr, nil
		}
		if v != nil && p.follow != nil && logstore.IsAddr(id) { // see leftName
			return id, nil
		}
	}
	return 0, p.unknown(id)
}

// runAt returns the payload of the run with the given name.
func (p *images) runAt(id logstore.PageID, seq uint64) ([]byte, error) {
	a, err := p.addrAt(id, seq)
	if err != nil {
		return nil, err
	}
	payload, err := p.store.Run(a)
	if p.follow != nil {
		return payload, p.stillThere(a, seq, err)
	}
	return payload, err
}

// Moved calls f with each name that leads a reader at seq to another address than the name itself, and with
// that address. Names of nodes in memory are left out. It returns false, and does nothing, if the table has
// more than most entries. Changes of the table meanwhile may or may not be seen.
func (p *images) Moved(seq uint64, most int64, f func(name logstore.PageID, a logstore.Addr)) (ok bool) {
	if p.table.count.Load() > most {
		return false
	}
	p.table.all(func(l *link) {
		if v := l.at(seq); v != nil && v.kind == atAddress {
			f(l.id, v.addr)
		}
	})
	return true
}
