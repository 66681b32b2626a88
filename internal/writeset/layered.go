package writeset

import (
	"bytes"

	"flashdbm/internal/btree"
)

// Layered shows the records of a snapshot overlaid by layers: the last source is the snapshot's cursor, the others
// are layers.
type Layered struct{ stack }

// Over overlays the layers of the set on the cursor of a snapshot. It takes over the cursor. It returns nil if
// there are no layers. The result must not be used after Turns has changed. Its keys and values are valid until
// the set is Reset.
func (w *Set) Over(base Cursor) *Layered {
	if w.spill == nil {
		return nil
	}
	w.spill.read = true
	return &Layered{*newStack(append(layerCursors(w.spill.layers), base))}
}

// Turns returns how many times a layer was added to the set.
func (w *Set) Turns() int {
	if w.spill == nil {
		return 0
	}
	return w.spill.turns
}

// Entry returns the present record if it comes from a layer. ok is false if it is the snapshot's.
func (o *Layered) Entry() (en Entry, ok bool, err error) {
	l := o.layer()
	if l == nil {
		return Entry{}, false, nil
	}
	en, err = l.l.entryOf(l.key, &l.rec)
	return en, err == nil, err
}

// layer returns the cursor of the layer from which the present record comes, nil if it is the snapshot's.
func (o *Layered) layer() *layerCursor {
	c, _ := o.sources[o.winner()].(*layerCursor)
	return c
}

// skip repeats move until it finds a record that is not deleted, or none.
func (o *Layered) skip(found bool, move func() bool) bool {
	for found {
		if c := o.layer(); c == nil || !c.rec.deletes() {
			return true
		}
		found = move()
	}
	return false
}

func (o *Layered) First() bool          { return o.skip(o.stack.First(), o.stack.Next) }
func (o *Layered) Last() bool           { return o.skip(o.stack.Last(), o.stack.Prev) }
func (o *Layered) Next() bool           { return o.skip(o.stack.Next(), o.stack.Next) }
func (o *Layered) Prev() bool           { return o.skip(o.stack.Prev(), o.stack.Prev) }
func (o *Layered) Seek(key []byte) bool { return o.skip(o.stack.Seek(key), o.stack.Next) }

// Merged iterates over the newest record of each key in layers, in key order.
type Merged struct{ stack }

// MergeLayers returns a Merged over layers, which are sorted from the oldest to the newest. hidden, if not nil, is
// called with the run of each record that a newer one hides.
func MergeLayers(layers []*Layer, hidden func(run btree.Ref)) *Merged {
	m := &Merged{stack: *newStack(layerCursors(layers))}
	if hidden != nil {
		m.shadowed = func(source int) {
			if ref, ok := m.sources[source].(*layerCursor).rec.ref(); ok {
				hidden(ref)
			}
		}
	}
	return m
}

// present returns the layer cursor that is at the present record.
func (m *Merged) present() *layerCursor { return m.sources[m.winner()].(*layerCursor) }

// Next moves to the next record, or to the first one. If the keys do not ascend, the layer is damaged, and Next
// sets an error.
func (m *Merged) Next() bool {
	before := m.key
	if !m.stack.Next() {
		return false
	}
	if before != nil && bytes.Compare(before, m.key) >= 0 {
		return m.fail(errLayer)
	}
	return true
}

// Op returns the present record without the place of its value, and the run to which it refers. The op of a delete
// has only the key.
func (m *Merged) Op() (op btree.Op, run btree.Ref, ok bool) {
	r := &m.present().rec
	run, ok = r.ref()
	return btree.Op{Key: m.key, Value: r.value, Delete: r.deletes()}, run, ok
}
