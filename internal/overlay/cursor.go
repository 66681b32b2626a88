package overlay

import (
	"bytes"

	"flashdbm/internal/btree"
	"flashdbm/internal/writeset"
)

// Cursor moves over the records of a view, as a writeset.Cursor: the records of a cursor of the tree, which it
// takes over, with the entries of the memtables on top. Over sorts the keys of memtables that are not sorted yet.
//
// Invariants while it is on a record: each source is on its first visible entry at or after key in the direction
// of the last move, or off its end. near is the source whose key comes first in that direction, the tree's cursor
// not counted; if several have the same key, the one of the newest table.
type Cursor struct {
	tree    writeset.Cursor
	base    uint64
	seq     uint64
	sources []source

	near    int    // index in sources; -1: all are off their ends
	treeOn  bool   // the tree's cursor is on a record
	treeKey []byte // the key of that record
	entry   *entry // the present record; nil if it is the tree's
	key     []byte
	at      whereabouts
	back    bool
	room    [4]source // memory for sources: four are usually enough
}

type whereabouts uint8

const (
	nowhere whereabouts = iota
	onRecord
	beforeStart
	pastEnd
)

// source is one sorted run of a memtable.
type source struct {
	table *Memtable
	run   []ordered
	place int    // index in run; -1 or len(run): off that end
	entry *entry // the visible entry at place; nil: off an end
}

// Over makes c a cursor over tree and the memtables of v, for a reader at seq.
func (c *Cursor) Over(tree writeset.Cursor, v *View, seq uint64) {
	*c = Cursor{tree: tree, base: v.Base, seq: seq, near: -1}
	c.sources = c.room[:0]
	for _, m := range v.Tables {
		if n := m.shown.Load(); n == 0 || m.at(n-1).seq <= v.Base {
			continue
		}
		for _, run := range m.ordered().runs {
			if len(run) > 0 {
				c.sources = append(c.sources, source{table: m, run: run})
			}
		}
	}
}

// step moves s from its present place on to an entry that the reader sees.
func (c *Cursor) step(s *source, back bool) {
	s.entry = nil
	for s.place >= 0 && s.place < len(s.run) {
		first := s.table.at(s.run[s.place].at)
		if s.entry = s.table.find(first.op.Key, first.tag, c.base, c.seq); s.entry != nil {
			return
		}
		if back {
			s.place--
		} else {
			s.place++
		}
	}
}

// nearest sets near.
func (c *Cursor) nearest() {
	c.near = -1
	for i := range c.sources {
		e := c.sources[i].entry
		if e == nil {
			continue
		}
		if c.near >= 0 {
			o := bytes.Compare(e.op.Key, c.sources[c.near].entry.op.Key)
			if c.back {
				o = -o
			}
			if o >= 0 { // at the same key the newer table's entry, whose source is first, wins
				continue
			}
		}
		c.near = i
	}
}

// Op returns the present record if it comes from a memtable, nil if it is the tree's.
func (c *Cursor) Op() *btree.Op {
	if c.entry == nil {
		return nil
	}
	return &c.entry.op
}

// Bound returns the least key of the memtables after the present record, nil if there is none. It may be called if
// the present record is the tree's and the last move went forward. The caller may then move the tree's cursor
// forward up to this key, and has to call TreeMoved.
func (c *Cursor) Bound() []byte {
	if c.near < 0 {
		return nil
	}
	return c.sources[c.near].entry.op.Key
}

// Forward reports whether the last move went forward.
func (c *Cursor) Forward() bool { return !c.back }

// TreeMoved tells the cursor that the caller has moved the tree's cursor: see Bound.
func (c *Cursor) TreeMoved() {
	c.treeKey = c.tree.Key()
	c.key = c.treeKey
}

// placed ends First, Last and Seek, when all sources and the tree's cursor are at their starting places.
func (c *Cursor) placed() bool {
	for i := range c.sources {
		c.step(&c.sources[i], c.back)
	}
	c.nearest()
	return c.skipDeleted()
}

// skipDeleted ends a move: it goes to the first candidate in the direction of the move that is not deleted.
func (c *Cursor) skipDeleted() bool {
	for {
		if c.treeOn {
			c.treeKey = c.tree.Key()
		}
		if c.Err() != nil {
			break
		}
		if c.near < 0 {
			if !c.treeOn {
				break
			}
			c.entry, c.key, c.at = nil, c.treeKey, onRecord
			return true
		}
		e := c.sources[c.near].entry
		if c.treeOn {
			o := bytes.Compare(c.treeKey, e.op.Key)
			if c.back {
				o = -o
			}
			if o < 0 {
				c.entry, c.key, c.at = nil, c.treeKey, onRecord
				return true
			}
		}
		c.entry, c.key = e, e.op.Key
		if !e.op.Delete {
			c.at = onRecord
			return true
		}
		c.pass()
	}
	c.entry, c.key, c.at = nil, nil, pastEnd
	if c.back {
		c.at = beforeStart
	}
	return false
}

// pass moves every source that is at the present key one record on, in the direction of the move.
func (c *Cursor) pass() {
	if c.entry != nil {
		key := c.key
		for i := range c.sources {
			s := &c.sources[i]
			if s.entry == nil || !bytes.Equal(s.entry.op.Key, key) {
				continue
			}
			if c.back {
				s.place--
			} else {
				s.place++
			}
			c.step(s, c.back)
		}
		c.nearest()
		if !c.treeOn || !bytes.Equal(c.treeKey, key) {
			return
		}
	}
	if c.back {
		c.treeOn = c.tree.Prev()
	} else {
		c.treeOn = c.tree.Next()
	}
}

// First moves to the first record and reports whether there is one.
func (c *Cursor) First() bool {
	c.back, c.treeOn = false, c.tree.First()
	for i := range c.sources {
		c.sources[i].place = 0
	}
	return c.placed()
}

// Last moves to the last record and reports whether there is one.
func (c *Cursor) Last() bool {
	c.back, c.treeOn = true, c.tree.Last()
	for i := range c.sources {
		c.sources[i].place = len(c.sources[i].run) - 1
	}
	return c.placed()
}

// Seek moves to the first record with a key >= key and reports whether there is one.
func (c *Cursor) Seek(key []byte) bool {
	c.back, c.treeOn = false, c.tree.Seek(key)
	for i := range c.sources {
		s := &c.sources[i]
		s.place = s.table.seek(s.run, key)
	}
	return c.placed()
}

// Next moves to the following record and reports whether there is one.
func (c *Cursor) Next() bool {
	switch {
	case c.Err() != nil || c.at == pastEnd:
		return false
	case c.at != onRecord:
		return c.First()
	case c.back:
		key := c.key
		return c.Seek(key) && (!bytes.Equal(c.key, key) || c.Next())
	}
	c.pass()
	return c.skipDeleted()
}

// Prev moves to the preceding record and reports whether there is one.
func (c *Cursor) Prev() bool {
	switch {
	case c.Err() != nil || c.at == beforeStart:
		return false
	case c.at != onRecord:
		return c.Last()
	case !c.back:
		key := c.key
		c.tree.Seek(key)
		if c.Err() != nil {
			return c.skipDeleted()
		}
		c.back, c.treeOn = true, c.tree.Prev()
		for i := range c.sources {
			s := &c.sources[i]
			s.place = s.table.seek(s.run, key) - 1
		}
		return c.placed()
	}
	c.pass()
	return c.skipDeleted()
}

// Key returns the key of the present record. It is valid until the reader leaves the registry.
func (c *Cursor) Key() []byte { return c.key }

// Err returns the error of the tree's cursor, including errors of moves by the caller of Bound.
func (c *Cursor) Err() error { return c.tree.Err() }
