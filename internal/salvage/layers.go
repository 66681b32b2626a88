package salvage

import (
	"slices"

	"flashdbm/internal/btree"
	"flashdbm/internal/writeset"
	"flashdbm/logstore"
)

// layerFacts takes in what the layers of a group say: pages of a write set that did not fit memory, the older layers first. Of a key the newest
// layer counts. So behind a layer of which anything is damaged the older ones are of no use: what they say of a key may have been overwritten
// before the commit. The pages of a layer stand for themselves.
func (s *salvager) layerFacts(no uint64, layers [][]logstore.Addr) {
	s.layered = map[string]bool{} // keys that a newer layer has
	for _, lists := range slices.Backward(layers) {
		if !s.layer(no, lists) {
			s.result.LostGroups++
			return
		}
	}
}

// layer takes in one layer, whose extents are listed by runs, and reports whether all of it could be read.
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
