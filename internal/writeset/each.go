package writeset

import "bytes"

// setCursor is a Cursor over the part of a write set in memory. The set must not change while the cursor is used.
// The cursor also stops at deletes.
type setCursor struct {
	w   *Set
	pos position
	at  whereabouts
}

func (c *setCursor) arrive(p position, otherwise whereabouts) bool {
	c.pos, c.at = p, onRecord
	if !p.ok() {
		c.at = otherwise
	}
	return p.ok()
}

func (c *setCursor) First() bool          { return c.arrive(c.w.first(), pastEnd) }
func (c *setCursor) Last() bool           { return c.arrive(c.w.last(), beforeStart) }
func (c *setCursor) Seek(key []byte) bool { return c.arrive(c.w.seek(key), pastEnd) }
func (c *setCursor) Key() []byte          { return c.w.keyAt(c.pos) }
func (c *setCursor) Err() error           { return nil }

func (c *setCursor) Next() bool {
	if c.at != onRecord {
		return c.at != pastEnd && c.First()
	}
	return c.arrive(c.w.next(c.pos), pastEnd)
}

func (c *setCursor) Prev() bool {
	if c.at != onRecord {
		return c.at != beforeStart && c.Last()
	}
	return c.arrive(c.w.prev(c.pos), beforeStart)
}

// writeCursor iterates over all entries of a write set, in memory and in layers, including deletes.
type writeCursor struct{ stack }

// cursor returns a writeCursor. The set must not change while it is used.
func (w *Set) cursor() *writeCursor {
	var sources []Cursor
	if w.Len() > 0 {
		sources = append(sources, &setCursor{w: w})
	}
	if w.spill != nil {
		sources = append(sources, layerCursors(w.spill.layers)...)
	}
	return &writeCursor{*newStack(sources)}
}

// deletes reports whether the present entry deletes its key.
func (c *writeCursor) deletes() bool {
	switch source := c.sources[c.winner()].(type) {
	case *setCursor:
		return source.w.deletes(source.pos)
	case *layerCursor:
		return source.rec.deletes()
	}
	panic("writeset: unknown source")
}

// forward moves to the first entry at or after key, from one before key. It tries a few steps, which are enough
// if the sets interleave, and then searches.
func (c *writeCursor) forward(key []byte) bool {
	const steps = 4
	for range steps {
		if !c.Next() || bytes.Compare(c.Key(), key) >= 0 {
			return c.at == onRecord
		}
	}
	return c.Seek(key)
}

// sound reports whether no read has failed. If a read has failed, sound poisons the store, because a page that this
// process wrote cannot be read. The caller then treats the transactions as conflicting, which is safe, and no
// further transaction commits.
func (c *writeCursor) sound(w *Set) bool {
	err := c.Err()
	if err != nil {
		w.spill.store.Fail(err)
	}
	return err == nil
}

// Each calls f with each key of the set, in order, and whether it is deleted, until f returns an error. The set
// must not change during the call.
func (w *Set) Each(f func(key []byte, deleted bool) error) error {
	c := w.cursor()
	for ok := c.First(); ok; ok = c.Next() {
		if err := f(c.Key(), c.deletes()); err != nil {
			return err
		}
	}
	return c.Err()
}

func (w *Set) intersectsLayers(o *Set) bool {
	a, b := w.cursor(), o.cursor()
	for ok := a.First() && b.First(); ok; {
		switch order := bytes.Compare(a.Key(), b.Key()); {
		case order < 0:
			ok = a.forward(b.Key())
		case order > 0:
			ok = b.forward(a.Key())
		default:
			return true
		}
	}
	return !a.sound(w) || !b.sound(o)
}

func (w *Set) overlapsLayers(from, to []byte) bool {
	c := w.cursor()
	if !c.Seek(from) {
		return !c.sound(w)
	}
	return to == nil || bytes.Compare(c.Key(), to) < 0
}

// hashes yields the hashes of all keys in layers, and reports whether yield wants more.
func (s *Spill) hashes(yield func(hash uint64) bool) bool {
	for _, l := range s.layers {
		c := newLayerCursor(l)
		for ok := c.First(); ok; ok = c.Next() {
			if !yield(HashKey(c.Key())) {
				return false
			}
		}
		if err := c.Err(); err != nil {
			s.store.Fail(err)
		}
	}
	return true
}
