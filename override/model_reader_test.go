package override

import (
	"bytes"
	"fmt"

	"flashdbm/internal/btree"
	"flashdbm/lockfree"
	"flashdbm/logstore"
)

// reading is what one goroutine needs to read a database and to know what the result should be.
type reading struct {
	s       *logstore.Store
	p       *Pages
	records recordMaker
}

// checkCell compares a record in a leaf with a key's version.
func (d *reading) checkCell(s Snapshot, c btree.Cell, key int, version uint32) error {
	want := d.records.keys[key]
	got, err := c.WholeKey(&s)
	if err != nil {
		return fmt.Errorf("key %d: %w", key, err)
	}
	if !bytes.Equal(got, want) {
		return modelErr("key %.8q where %.8q belongs", got, want)
	}
	value := c.Value()
	switch c.Kind() {
	case btree.Run:
		value, err = s.Run(c.Ref())
	case btree.Extents:
		value, err = d.assemble(s, c.Ref())
	}
	if err != nil {
		return fmt.Errorf("key %d: %w", key, err)
	}
	if kind, _ := d.records.form(key, version); kind != c.Kind() || !bytes.Equal(value, d.records.valueOf(key, version)) {
		return modelErr("key %d does not have the value of version %d", key, version)
	}
	return nil
}

func (d *reading) assemble(s Snapshot, ref btree.Ref) (value []byte, err error) {
	extents, err := s.Extents(ref)
	if err != nil {
		return nil, err
	}
	for _, x := range extents {
		b, err := d.s.Raw(x)
		if err != nil {
			return nil, err
		}
		value = append(value, b...)
	}
	return value, nil
}

// heldCell is a record in a leaf that a reader found.
type heldCell struct {
	cell    btree.Cell
	key     int
	version uint32
}

// readAll compares the tree at a snapshot with a state. It calls found, if that is not nil, for each record.
func (d *reading) readAll(s Snapshot, st modelState, found func(heldCell)) error {
	var c btree.Cursor
	c.Reset(&s, Root)
	for key, version := range st {
		if version == 0 {
			continue
		}
		if !c.Next() {
			if err := c.Err(); err != nil {
				return err
			}
			return modelErr("key %d is not there at Seq %d", key, s.Seq())
		}
		if err := d.checkCell(s, c.Cell(), key, version); err != nil {
			return fmt.Errorf("at Seq %d: %w", s.Seq(), err)
		}
		if found != nil {
			found(heldCell{c.Cell(), key, version})
		}
	}
	if c.Next() {
		return modelErr("a record too many at Seq %d: %.8q", s.Seq(), c.Key())
	}
	return c.Err()
}

// verifyNewest reads the tree as of the newest batch.
func (m *model) verifyNewest() error {
	seq := m.appliedSeq.Load()
	return m.readAll(m.p.At(seq), m.state(seq), nil)
}

// modelReader is a registered snapshot that stays. It may hold records that it has found, as cursors do.
type modelReader struct {
	slot  lockfree.Slot
	snap  Snapshot
	state modelState
	held  []heldCell
}

// openReader opens a reader, of three at most.
func (m *model) openReader() error {
	if len(m.readers) == 3 {
		return nil
	}
	watermark := m.view
	if m.r.IntN(2) == 0 {
		watermark = &m.appliedSeq
	}
	slot := m.registry.Acquire(watermark)
	r := &modelReader{slot: slot, snap: m.p.At(slot.Seq()), state: m.state(slot.Seq())}
	m.readers = append(m.readers, r)
	if m.r.IntN(2) == 0 {
		return m.hold(r)
	}
	return m.readAll(r.snap, r.state, nil)
}

// hold makes a reader keep every record that it finds now.
func (m *model) hold(r *modelReader) error {
	modelCounts.Holds++
	r.held = r.held[:0]
	return m.readAll(r.snap, r.state, func(h heldCell) { r.held = append(r.held, h) })
}

// reread makes all readers compare the records that they hold, and everything that they see.
func (m *model) reread() error {
	for _, r := range m.readers {
		modelCounts.Reads++
		if err := m.recheck(r); err != nil {
			return err
		}
		if m.r.IntN(4) == 0 {
			if err := m.hold(r); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *model) recheck(r *modelReader) error {
	for _, h := range r.held {
		if err := m.checkCell(r.snap, h.cell, h.key, h.version); err != nil {
			return fmt.Errorf("%w: a record held since Seq %d: %w", errModel, r.snap.Seq(), err)
		}
	}
	return m.readAll(r.snap, r.state, nil)
}

// closeReader ends one of the readers.
func (m *model) closeReader() error {
	if len(m.readers) == 0 {
		return nil
	}
	i := m.r.IntN(len(m.readers))
	r := m.readers[i]
	m.readers = append(m.readers[:i], m.readers[i+1:]...)
	err := m.recheck(r)
	r.slot.Release()
	return err
}
