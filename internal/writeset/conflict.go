package writeset

import (
	"bytes"
	"hash/maphash"
)

// hashSeed differs between processes, so that an attacker cannot choose keys that
// collide.
var hashSeed = maphash.MakeSeed()

// HashKey returns the hash of a key that the tables of recent commits use. It is the same for the life of the
// process, and must not be stored.
func HashKey(key []byte) uint64 { return maphash.Bytes(hashSeed, key) }

// Hashes calls yield with the HashKey of each key, until yield returns false. Keys in memory come in the order in
// which they were first written.
func (w *Set) Hashes(yield func(hash uint64) bool) {
	if w.spill != nil && !w.spill.hashes(yield) {
		return
	}
	for id := range w.records.n {
		hash := w.firstHash
		if id > 0 {
			hash = HashKey(w.keyOf(id))
		}
		if !yield(hash) {
			return
		}
	}
}

// OnlyHash returns the HashKey of the only key of a set; ok is false if there is not exactly one.
func OnlyHash(w *Set) (hash uint64, ok bool) {
	return w.firstHash, w.records.n == 1 && w.spill == nil
}

// Keys calls yield with each key of the part in memory, in the order in which they were first written, until yield
// returns false. The slices are those of the set.
func (w *Set) Keys(yield func(key []byte) bool) {
	for id := range w.records.n {
		if !yield(w.keyOf(id)) {
			return
		}
	}
}

// Intersects reports whether the two sets have a key in common. For most pairs of small sets without one it
// compares one word of each.
func (w *Set) Intersects(o *Set) bool {
	if w.filter&o.filter == 0 {
		return false
	}
	if w.spill != nil || o.spill != nil {
		return w.intersectsLayers(o)
	}
	a, b := w.first(), o.first()
	for a.ok() && b.ok() {
		switch order := bytes.Compare(w.keyAt(a), o.keyAt(b)); {
		case order < 0:
			a = w.forward(a, o.keyAt(b))
		case order > 0:
			b = o.forward(b, w.keyAt(a))
		default:
			return true
		}
	}
	return false
}

// forward returns the first position at or after key, starting from p, which is before key. It tries a few steps,
// which are enough if the sets interleave, and then searches.
func (w *Set) forward(p position, key []byte) position {
	const steps = 4
	for range steps {
		p = w.next(p)
		if !p.ok() || bytes.Compare(w.keyAt(p), key) >= 0 {
			return p
		}
	}
	return w.seek(key)
}

// Overlaps reports whether the set has a key in [from, to). A nil to is no bound; an empty one is the empty key.
func (w *Set) Overlaps(from, to []byte) bool {
	if w.spill != nil {
		return w.overlapsLayers(from, to)
	}
	p := w.seek(from)
	return p.ok() && (to == nil || bytes.Compare(w.keyAt(p), to) < 0)
}
