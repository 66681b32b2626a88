package override

import (
	"flashdbm/internal/btree"
	"flashdbm/lockfree"
)

// modelReader is a registered snapshot that stays. It holds on to nodes that it has found, as cursors do.
type modelReader struct {
	slot  lockfree.Slot
	snap  Snapshot
	state modelState
	held  []heldCell
}

// heldCell is a record in a leaf that a reader has found earlier.
type heldCell struct {
	cell    btree.Cell
	key     int
	version uint32
}

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
	if err := m.readAll(r.snap, r.state); err != nil {
		return err
	}
	if m.r.IntN(2) == 0 {
		return m.hold(r)
	}
	return nil
}

// hold lets a reader keep every record that it finds now.
func (m *model) hold(r *modelReader) error {
	r.held = r.held[:0]
	var c btree.Cursor
	c.Reset(&r.snap, Root)
	for key, version := range r.state {
		if version == 0 {
			continue
		}
		if !c.Next() {
			return modelErr("key %d is gone: %v", key, c.Err())
		}
		r.held = append(r.held, heldCell{c.Cell(), key, version})
	}
	modelCounts.HeldNodes++
	return nil
}

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
			return modelErr("held node: %v", err)
		}
	}
	return m.readAll(r.snap, r.state)
}

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
