package writeset

import "bytes"

// Cursor moves over the records of a fixed snapshot in key order. Each move reports whether it has found a record;
// if not, Err tells whether there was an error. After Next or Seek has run off the end, Prev moves to the last
// record; after Prev has run off the start, Next moves to the first.
type Cursor interface {
	First() bool
	Last() bool
	Next() bool
	Prev() bool

	// Seek moves to the first record with a key >= key.
	Seek(key []byte) bool

	// Key returns the key of the record that the last move has found. It is valid until the transaction ends.
	Key() []byte

	Err() error
}

// Merge is a cursor over a snapshot overlaid by a transaction's writes. It shows each key once, with the
// value that was written last, and skips deleted keys.
//
// The position of a Merge is a key. Writes between two moves, even of the present key, never make it skip or repeat
// a record: Next moves to the record that is then the first after the present key, Prev to the one that is then the
// last before it. Past the end, Next stays there and Prev moves to the last record; before the start, Prev stays
// and Next moves to the first. A failed Seek is past the end. A new Merge is on no record: Next moves to the first
// record, Prev to the last.
//
// After an error of the snapshot's cursor, moves find nothing.
//
// A Merge must be used by the goroutine of its transaction. While the write set is empty, it only passes on the
// moves of the snapshot's cursor.
//
// Invariants while laid is set and the Merge is on a key:
//
//  1. If the last move went forward, base is on the first record at or after key; if it went back, on the last
//     record at or before key; or off that end. onBase says whether base is at key itself.
//  2. The same holds for pos in the write set, unless the set has changed since: then pos is stale, and is found
//     again by key.
//  3. onBase or onSet is true. If both are, the record is the one of the write set.
type Merge struct {
	base Cursor
	set  *Set
	at   whereabouts

	// laid: the write set was not empty at the last move, and the fields below are valid. Otherwise only base knows
	// the position.
	laid    bool
	back    bool
	baseOK  bool // base is on a record
	onBase  bool
	onSet   bool
	key     []byte
	pos     position
	version uint64 // version of the write set for which pos is valid
}

type whereabouts uint8

const (
	nowhere whereabouts = iota
	onRecord
	beforeStart
	pastEnd
)

// noWrites is the write set of a transaction that cannot write.
var noWrites Set

// NewMerge returns a cursor over base and set. It takes over base. A nil set is an empty one.
func NewMerge(base Cursor, set *Set) Merge {
	if set == nil {
		set = &noWrites
	}
	return Merge{base: base, set: set}
}

// Set returns the write set.
func (m *Merge) Set() *Set { return m.set }

// OnRecord reports whether the last move has found a record.
func (m *Merge) OnRecord() bool { return m.at == onRecord }

// Place is a position of a Merge.
type Place struct {
	at  whereabouts
	key []byte // if on a record
}

// Place returns the position of the Merge. It is valid until the write set is Reset.
func (m *Merge) Place() Place { return Place{m.at, m.Key()} }

// Return moves a new Merge to the position of another one: to the first record at or after its key, or beyond
// either end.
func (m *Merge) Return(to Place) {
	if to.at == onRecord {
		m.Seek(to.key)
	} else {
		m.at = to.at
	}
}

// First moves to the first record and reports whether there is one.
func (m *Merge) First() bool {
	if m.set.Len() == 0 {
		return m.arrive(m.base.First(), pastEnd)
	}
	m.back, m.baseOK, m.pos = false, m.base.First(), m.set.first()
	return m.skipDeleted()
}

// Last moves to the last record and reports whether there is one.
func (m *Merge) Last() bool {
	if m.set.Len() == 0 {
		return m.arrive(m.base.Last(), beforeStart)
	}
	m.back, m.baseOK, m.pos = true, m.base.Last(), m.set.last()
	return m.skipDeleted()
}

// Seek moves to the first record with a key >= key and reports whether there is one.
func (m *Merge) Seek(key []byte) bool {
	if m.set.Len() == 0 {
		return m.arrive(m.base.Seek(key), pastEnd)
	}
	m.back, m.baseOK, m.pos = false, m.base.Seek(key), m.set.seek(key)
	return m.skipDeleted()
}

// Next moves to the first record after the present key and reports whether there is one.
func (m *Merge) Next() bool {
	if m.at != onRecord {
		return m.at != pastEnd && m.First()
	}
	if m.set.Len() == 0 {
		return m.arrive(m.base.Next(), pastEnd)
	}
	m.lay()
	if m.onBase || m.back {
		m.baseOK = m.base.Next()
	}
	switch {
	case m.back || m.version != m.set.Version():
		m.pos = m.set.seekAfter(m.key)
	case m.onSet:
		m.pos = m.set.next(m.pos)
	}
	m.back = false
	return m.skipDeleted()
}

// Prev moves to the last record before the present key and reports whether there is one.
func (m *Merge) Prev() bool {
	if m.at != onRecord {
		return m.at != beforeStart && m.Last()
	}
	if m.set.Len() == 0 {
		return m.arrive(m.base.Prev(), beforeStart)
	}
	m.lay()
	if m.onBase || !m.back {
		m.baseOK = m.base.Prev()
	}
	switch {
	case !m.back || m.version != m.set.Version():
		m.pos = m.set.seekBefore(m.key)
	case m.onSet:
		m.pos = m.set.prev(m.pos)
	}
	m.back = true
	return m.skipDeleted()
}

// Key returns the present key, nil if the last move found none. It is valid until the transaction ends and must not
// be modified.
func (m *Merge) Key() []byte {
	switch {
	case m.at != onRecord:
		return nil
	case m.laid:
		return m.key
	default:
		return m.base.Key()
	}
}

// Entry returns the present entry of the write set for the present key; it may have been deleted since the last
// move. If the set has none, Entry returns false, and the record is the one under the snapshot's cursor.
func (m *Merge) Entry() (Entry, bool) {
	switch {
	case m.at != onRecord || m.set.Len() == 0:
		return Entry{}, false
	case !m.laid || m.version != m.set.Version():
		return m.set.Get(m.Key())
	case m.onSet:
		return m.set.entryAt(m.pos), true
	default:
		return Entry{}, false
	}
}

// Err returns the error of the snapshot's cursor.
func (m *Merge) Err() error { return m.base.Err() }

// arrive ends a move for which only base was moved.
func (m *Merge) arrive(found bool, otherwise whereabouts) bool {
	if found {
		m.at = onRecord
	} else {
		m.at = otherwise
	}
	return found
}

// lay makes the fields below laid valid if the first write came after the last move. version is then older than any
// write, so pos will be found by key.
func (m *Merge) lay() {
	if !m.laid {
		m.laid, m.baseOK, m.onBase, m.key = true, true, true, m.base.Key()
	}
}

// skipDeleted ends a move. base and pos are on the first candidates in the direction of the move; skipDeleted continues to
// the first candidate that is not deleted.
func (m *Merge) skipDeleted() bool {
	m.laid, m.version = true, m.set.Version()
	for {
		if !m.baseOK && m.base.Err() != nil {
			return m.leave()
		}
		order, any := m.nearer()
		if !any || m.base.Err() != nil { // a long key could not be read
			return m.leave()
		}
		m.onBase, m.onSet = order <= 0, order >= 0
		if order < 0 {
			m.at, m.key = onRecord, m.base.Key()
			if m.key == nil && m.base.Err() != nil {
				return m.leave()
			}
			return true
		}
		if !m.set.deletes(m.pos) {
			m.at, m.key = onRecord, m.set.keyAt(m.pos)
			return true
		}
		m.pass()
	}
}

// nearer returns which candidate comes first in the direction of the move: that of base if order is negative, that
// of the write set if it is positive, both if it is 0. any is false if there is none.
func (m *Merge) nearer() (order int, any bool) {
	switch {
	case !m.pos.ok():
		return -1, m.baseOK
	case !m.baseOK:
		return 1, true
	}
	order = bytes.Compare(m.base.Key(), m.set.keyAt(m.pos))
	if m.back {
		order = -order
	}
	return order, true
}

// pass moves past a deleted key.
func (m *Merge) pass() {
	if m.back {
		m.pos = m.set.prev(m.pos)
	} else {
		m.pos = m.set.next(m.pos)
	}
	if !m.onBase {
		return
	}
	if m.back {
		m.baseOK = m.base.Prev()
	} else {
		m.baseOK = m.base.Next()
	}
}

// leave ends a move that has found nothing.
func (m *Merge) leave() bool {
	m.key = nil
	if m.back {
		return m.arrive(false, beforeStart)
	}
	return m.arrive(false, pastEnd)
}
