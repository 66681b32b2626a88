package override

import (
	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// A Snapshot reads the tree as it was at a Seq that its owner has registered. Any number may be used at once; it is two words and needs
// no closing.
type Snapshot struct {
	pages *Pages
	seq   uint64
}

// At returns the snapshot at seq.
func (p *Pages) At(seq uint64) Snapshot { return Snapshot{p, seq} }

// Seq returns the Seq that the snapshot reads at.
func (s *Snapshot) Seq() uint64 { return s.seq }

// Node returns the image of a page. See btree.Pager.
func (s *Snapshot) Node(id btree.PageID) (btree.Node, error) { return s.pages.nodeAt(id, s.seq) }

// RunKey returns the whole key of a record whose key is too long for a leaf: the head of its run.
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

// Run returns the value in the run that ref names, as a slice of the mapping.
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

// Extents returns the pieces of the large value that ref names; together they have ref.ValueLen bytes.
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

func (p *Pages) badRun(ref btree.Ref) error {
	return &logstore.PageError{Path: p.store.Path(), Addr: ref.ID, What: "lengths of a long value"}
}
