package salvage

import (
	"bytes"
	"context"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
	"flashdbm/override"
)

// A lostRange is a range of keys whose page of the tree cannot be read.
type lostRange struct {
	low, high []byte // an empty high is above all keys
}

// walk walks the readable part of the tree. It emits the records of leaves and the newer facts about keys in
// sound leaves, and collects the lost ranges.
//
// Without a checkpoint, it is unknown whether the newest inner nodes found are those of the tree; an older inner
// node lacks leaves that came later. Then the whole key space is one lost range, and all leaves are used as they
// are found.
func (s *salvager) walk(ctx context.Context) error {
	if s.checkpoint == nil {
		s.lost = []lostRange{{}}
		return nil
	}
	p := make([]byte, logstore.PageSize)
	at, n, err := s.node(override.Root, p)
	if err != nil || n.Level() > btree.MaxHeight {
		s.losePage(at.addr, nil, nil, err)
		return nil
	}
	return s.below(ctx, at, n, nil, nil)
}

// losePage notes a lost range: the keys of a page, unless they are found otherwise.
func (s *salvager) losePage(a logstore.Addr, low, high []byte, err error) {
	s.lost = append(s.lost, lostRange{low, high})
	s.missing(Missing{Scope: Keys, Page: a, From: low, To: high, Err: err})
}

// below walks the subtree of the node at a place, which holds the keys from low on and below high.
func (s *salvager) below(ctx context.Context, at image, n btree.Node, low, high []byte) error {
	if !s.visited.Add(at.addr, 1) {
		s.losePage(at.addr, low, high, s.f.Error(at.addr, "a second reference leads here"))
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if n.IsLeaf() {
		return s.leaf(at, n, low, high)
	}
	p := make([]byte, logstore.PageSize)
	for i := range n.Count() {
		from, to := low, high
		if i > 0 {
			from = s.separator(n, i)
		}
		if i+1 < n.Count() {
			to = s.separator(n, i+1)
		}
		if len(high) > 0 && (len(to) == 0 || bytes.Compare(to, high) > 0) {
			to = high
		}
		if bytes.Compare(from, low) < 0 {
			from = low
		}
		if len(to) > 0 && bytes.Compare(from, to) >= 0 { // only in a malicious file
			continue
		}
		child, cn, err := s.node(n.Child(i), p)
		if err == nil && cn.Level() != n.Level()-1 {
			err = s.f.Error(child.addr, "level %d instead of %d", cn.Level(), n.Level()-1)
		}
		if err != nil {
			s.losePage(child.addr, from, to, err)
			continue
		}
		if err := s.below(ctx, child, cn, from, to); err != nil {
			return err
		}
	}
	return nil
}

// separator returns the lower bound of child i. A cut separator stands for the first key below the child, which is
// read if it can be.
func (s *salvager) separator(n btree.Node, i int) []byte {
	key, cut := n.Separator(i, nil)
	if !cut {
		return key
	}
	p := make([]byte, logstore.PageSize)
	for id := n.Child(i); ; {
		_, child, err := s.node(id, p)
		if err != nil || child.Count() == 0 || child.Level() >= n.Level() {
			return key
		}
		if child.IsLeaf() {
			if first, err := s.keyOf(child.Cell(0)); err == nil && bytes.HasPrefix(first, key) {
				return bytes.Clone(first)
			}
			return key
		}
		n, id = child, child.Child(0)
	}
}

// leaf emits the records of a leaf, and newer facts in its range.
func (s *salvager) leaf(at image, n btree.Node, low, high []byte) error {
	facts := s.factsIn(low, high)
	p := n
	for i := range p.Count() {
		c := p.Cell(i)
		key, err := s.keyOf(c)
		if err != nil {
			s.missing(Missing{Scope: LostRecord, Page: pageOf(err, at.addr), From: bytes.Clone(c.Key()), Err: err})
			continue
		}
		for len(facts) > 0 && facts[0].key < string(key) {
			if err := s.putFact(&facts[0], at.asOf); err != nil {
				return err
			}
			facts = facts[1:]
		}
		if len(facts) > 0 && facts[0].key == string(key) {
			f := &facts[0]
			facts = facts[1:]
			if f.newer(at.asOf) {
				if err := s.putFact(f, at.asOf); err != nil {
					return err
				}
				continue
			}
		}
		if s.absent.asOf(string(key)) > at.asOf { // a newer leaf has no such key
			continue
		}
		if err := s.putCell(at.addr, key, c); err != nil {
			return err
		}
	}
	for i := range facts {
		if err := s.putFact(&facts[i], at.asOf); err != nil {
			return err
		}
	}
	return nil
}

// putFact emits the record of a fact, unless it is a deletion, or not newer than the leaf to which the key belongs.
func (s *salvager) putFact(f *fact, asOf uint64) error {
	if f.deleted || !f.newer(asOf) || s.absent.asOf(f.key) > f.asOf {
		return nil
	}
	return s.put(Record{Key: []byte(f.key), Value: f.value, Ref: f.ref, Page: f.leaf, Redo: f.pages, Group: f.asOf}, s.writtenBy(f))
}

// putCell emits a record of the leaf at a.
func (s *salvager) putCell(a logstore.Addr, key []byte, c btree.Cell) error {
	if c.Kind() == btree.Inline {
		return s.put(Record{Key: key, Value: c.Value(), Page: a}, 0)
	}
	ref := c.Ref()
	return s.put(Record{Key: key, Ref: &ref, Page: a}, s.groupOf(a))
}

// groupOf returns the group of the page at a. No value that the page refers to is of a later group.
func (s *salvager) groupOf(a logstore.Addr) uint64 {
	if h, err := s.f.ReadSound(a, s.buf); err == nil {
		return h.No
	}
	return 0
}

func (s *salvager) writtenBy(f *fact) uint64 {
	if f.leaf != 0 {
		return s.groupOf(f.leaf)
	}
	return f.asOf
}

// put emits a record. If r.Ref is set, put reads the value that it refers to, which must not be of a later group
// than written.
func (s *salvager) put(r Record, written uint64) error {
	if r.Ref != nil {
		value, large, err := s.value(r.Key, r.Ref, written)
		if err != nil {
			s.missing(Missing{Scope: LostRecord, Page: pageOf(err, r.Page), From: bytes.Clone(r.Key), Err: err})
			return nil
		}
		r.Value = value
		if large != nil {
			r.Large, r.Size = &largeReader{s: s, extents: large}, int64(r.Ref.ValueLen)
		}
	}
	if r.Large == nil {
		r.Size = int64(len(r.Value))
	}
	s.result.Records++
	s.result.Bytes += int64(len(r.Key)) + r.Size
	return s.emit(r)
}
