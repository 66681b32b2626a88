package salvage

import (
	"slices"

	"flashdbm/internal/btree"
	"flashdbm/internal/writeset"
	"flashdbm/logstore"
)

// layerFacts adds facts for the layers of a group: sorted runs of a write set that did not fit into memory, oldest
// first. For each key the newest layer wins. If any part of a layer is damaged, older layers are of no use: their
// record of a key may have been overwritten before the commit. Each page of a layer can be decoded by itself.
func (s *salvager) layerFacts(no uint64, layers [][]logstore.Addr) {
	s.layered = map[string]bool{} // keys of newer layers
	for _, lists := range slices.Backward(layers) {
		if !s.layer(no, lists) {
			s.result.LostGroups++
			return
		}
	}
}

// layer adds facts for one layer, whose extents are listed by runs, and reports whether all of it could be read.
func (s *salvager) layer(no uint64, lists []logstore.Addr) (whole bool) {
	whole = true
	lost := func(a logstore.Addr, err error) {
		whole = false
		s.lostLayer(no, a, err)
	}
	for _, a := range lists {
		if !s.once.Add(a, 1) {
			lost(a, nil)
			continue
		}
		list, err := s.run(a)
		if err != nil || !list.List {
			lost(a, err)
			continue
		}
		extents, err := logstore.GetExtents(list.payload)
		if err != nil {
			lost(a, err)
			continue
		}
		for _, x := range extents {
			b, err := s.extentOnce(x)
			if err != nil {
				lost(x.Addr, err)
				continue
			}
			for ; len(b) >= logstore.PageSize; b = b[logstore.PageSize:] {
				if err := writeset.ReadLayerPage(b[:logstore.PageSize], func(op btree.Op) { s.layerFact(no, op, lost) }); err != nil {
					lost(x.Addr, err)
				}
			}
		}
	}
	return whole
}

func (s *salvager) layerFact(no uint64, op btree.Op, lost func(logstore.Addr, error)) {
	f := fact{key: string(op.Key), asOf: no, deleted: op.Delete, value: op.Value, ref: op.Ref}
	if op.Ref != nil && op.Ref.KeyLen > 0 {
		r, err := s.run(op.Ref.ID)
		if err != nil || uint64(op.Ref.KeyLen) > uint64(len(r.payload)) {
			lost(op.Ref.ID, err)
			return
		}
		f.key = string(r.payload[:op.Ref.KeyLen])
	}
	if f.deleted {
		f.ref = nil
	}
	if !s.layered[f.key] {
		s.layered[f.key] = true
		s.addFact(f)
	}
}

// lostLayer reports pages of a large commit that cannot be read.
func (s *salvager) lostLayer(no uint64, a logstore.Addr, err error) {
	if err == nil {
		err = s.f.Error(a, "a second reference leads here, or it is no list of extents")
	}
	s.missing(Missing{Scope: Groups, FirstGroup: no, LastGroup: no, Page: a, Err: err})
}
