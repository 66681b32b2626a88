package writeset

import (
	"bytes"

	"flashdbm/internal/btree"
)

// Layered shows a snapshot's records with layers laid over them: the last source is the snapshot's cursor, the others are layers.
type Layered struct{ stack }

// Over lays what has left memory over the cursor of a snapshot, which it takes possession of; nil if nothing has. It is good while Turns
// does not move. Keys and values that it shows stay valid until the set is given up.
func (w *Set) Over(base Cursor) *Layered {
	if w.spill == nil {
		return nil
	}
	w.spill.read = true
	return &Layered{*newStack(append(layerCursors(w.spill.layers), base))}
}

// Turns returns how often layers were added to the set.
func (w *Set) Turns() int {
	if w.spill == nil {
		return 0
	}
	return w.spill.turns
}

// Entry returns the record that the last move has found if it is one of a layer. ok is false if it is the snapshot's.
func (o *Layered) Entry() (en Entry, ok bool, err error) {
	l := o.layer()
	if l == nil {
		return Entry{}, false, nil
	}
	en, err = l.l.entryOf(l.key, &l.rec)
	return en, err == nil, err
}

// layer returns the cursor of the layer that the present record is in, nil if it is the snapshot's.
func (o *Layered) layer() *layerCursor {
	c, _ := o.sources[o.winner()].(*layerCursor)
	return c
}

// skip goes on past deletes.
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

// Merged goes over the records of layers, of each key the newest, in order.
type Merged struct{ stack }

// MergeLayers returns one over layers, the oldest first. hidden, if not nil, is told of each run that a record leads to which a newer one
// hides.
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

// present returns the cursor on the present record.
func (m *Merged) present() *layerCursor { return m.sources[m.winner()].(*layerCursor) }

// Next goes to the next record, or to the first. Keys that do not ascend, which damage makes, are an error.
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

// Op returns the present record, but for where its value is, and the run that it leads to. That of a delete has the key alone.
func (m *Merged) Op() (op btree.Op, run btree.Ref, ok bool) {
	r := &m.present().rec
	run, ok = r.ref()
	return btree.Op{Key: m.key, Value: r.value, Delete: r.deletes()}, run, ok
}
