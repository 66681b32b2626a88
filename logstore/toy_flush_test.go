package logstore

import (
	"encoding/binary"
	"slices"
)

// startFlush takes what is dirty now.
func (d *toy) startFlush() error {
	if d.flush != nil || d.check != nil {
		return errToyBusy
	}
	if len(d.dirty) == 0 && len(d.moves) == 0 && len(d.deaths) == 0 {
		return nil
	}
	f := &toyFlush{base: d.s.CloseGroup(), baseSeq: d.seq, values: d.values, deaths: d.deaths}
	for slot := range toySlots {
		if d.dirty[slot] {
			f.work = append(f.work, slot)
		}
	}
	for _, v := range d.values { // in order of slots, so that a run can be repeated
		if v.run != 0 && d.moves[v.run] {
			f.moves = append(f.moves, v.run)
		}
	}
	f.owed, d.owed = d.owed, 0
	d.flush, d.dirty, d.moves, d.deaths = f, map[int]bool{}, map[PageID]bool{}, nil
	return nil
}

// flushStep writes the next part: one or two pages or runs. The last part ends with a stream and installs the
// flush.
func (d *toy) flushStep() error {
	f := d.flush
	if f == nil {
		return errToyBusy
	}
	defer d.give()
	pages := d.partPages(f)
	paid := min(f.owed, pages)
	d.s.Release(paid)
	f.owed -= paid
	if err := d.reserve(pages, true); err != nil {
		return err
	}
	g := d.s.Begin(FlushGroup)
	if f.first == 0 {
		f.first = g.Number()
	}
	for range 2 {
		switch {
		case len(f.work) > 0:
			slot := f.work[0]
			f.work = f.work[1:]
			f.placed = append(f.placed, d.addPages(g, d.r, []int{slot}, []toyValue{f.values[slot]})...)
		case len(f.moves) > 0:
			if err := d.moveRun(g, f); err != nil {
				return err
			}
		}
	}
	count := f.first
	last := len(f.work) == 0 && len(f.moves) == 0
	var dying []Extent
	var dead []PageID
	if last {
		count = 0
		for _, x := range f.deaths {
			pages, err := d.pagesOf(x.run)
			if err != nil {
				return err
			}
			dying = append(dying, pages...)
			dead = append(dead, x.run)
		}
		g.Write(KindFlush, toyFlushEnd(f, dying, dead))
	}
	if _, err := g.Commit(count); err != nil {
		return err
	}
	if last {
		d.s.Release(f.owed)
		d.install(f.placed, d.tick())
		d.bury(dying, dead, d.tick())
		d.base, d.baseSeq, d.flush = f.base, f.baseSeq, nil
		d.s.Rebase(f.base)
	}
	return nil
}

// partPages returns the number of pages to reserve for the next part.
func (d *toy) partPages(f *toyFlush) int64 {
	pages := int64(min(len(f.work), 2))
	if pages < 2 && len(f.moves) > 0 {
		pages = 2 * RunReserve(RunPages(d.s.MaxRun()))
	}
	if len(f.work)+len(f.moves) <= 2 {
		pages += 1 + int64(toyFlushFixed+len(f.deaths)*toyDeathSize)/BodySize
	}
	return pages
}

// moveRun writes a run again, elsewhere.
func (d *toy) moveRun(g *Group, f *toyFlush) error {
	name := f.moves[0]
	f.moves = f.moves[1:]
	payload, err := d.s.Run(d.at(name))
	if err != nil {
		return err
	}
	extents, err := d.s.ListAt(d.at(name))
	if err != nil {
		return err
	}
	var a Addr
	if extents != nil {
		a = g.List(name, nil, extents)
	} else {
		a = g.Run(name, slices.Clone(payload))
	}
	f.placed = append(f.placed, toyPlaced{name: name, slot: -1, addr: a, run: RunPages(int64(len(payload)))})
	return nil
}

// bury lets dropped runs die at the given moment: see install.
func (d *toy) bury(dying []Extent, dead []PageID, now uint64) {
	for _, e := range dying {
		d.s.Kill(e.Addr, int64(e.Bytes), now)
	}
	for _, name := range dead {
		d.retire(name)
	}
}

const (
	toyFlushFixed = 6 * 8
	toyDeathSize  = 8 + 4*16 // of a list with three extents
)

// toyFlushEnd is: 1, base, base seq, first part's group, dying pages, dead names.
func toyFlushEnd(f *toyFlush, dying []Extent, dead []PageID) []byte {
	le := binary.LittleEndian
	b := le.AppendUint64(nil, 1)
	b = le.AppendUint64(b, f.base)
	b = le.AppendUint64(b, f.baseSeq)
	b = le.AppendUint64(b, f.first)
	b = le.AppendUint64(b, uint64(len(dying)))
	for _, e := range dying {
		b = le.AppendUint64(b, e.Addr)
		b = le.AppendUint64(b, uint64(e.Bytes))
	}
	b = le.AppendUint64(b, uint64(len(dead)))
	for _, name := range dead {
		b = le.AppendUint64(b, name)
	}
	return b
}

func (d *toy) flushAll() error {
	for {
		if d.flush == nil {
			if err := d.startFlush(); err != nil || d.flush == nil {
				return err
			}
		}
		if err := d.flushStep(); err != nil {
			return err
		}
		if d.flush == nil {
			return nil
		}
	}
}

// clean moves the live pages of the segment with the fewest live pages, with the next flush.
func (d *toy) clean() {
	s := d.s
	victim, least := -1, 1<<30
	for n, g := range s.Segments() {
		if g.Live > 0 && g.Live < least && g.State != Tail && d.r.IntN(3) > 0 {
			victim, least = n, g.Live
		}
	}
	if victim < 0 {
		return
	}
	in := func(a Addr) bool { return s.segmentOf(a) == uint32(victim) }
	for slot := range toySlots {
		if in(d.at(d.names[slot])) {
			d.dirty[slot] = true
		}
		if run := d.values[slot].run; run != 0 && in(d.at(run)) {
			d.moves[run] = true
		}
	}
}

// startCheckpoint begins a checkpoint of the installed state.
func (d *toy) startCheckpoint() error {
	if d.flush != nil || d.check != nil {
		return errToyBusy
	}
	le := binary.LittleEndian
	b := le.AppendUint64(nil, d.base)
	b = le.AppendUint64(b, d.baseSeq)
	for _, name := range d.names {
		b = le.AppendUint64(b, name)
	}
	b = le.AppendUint64(b, uint64(len(d.place)))
	for name, a := range d.place {
		b = le.AppendUint64(b, name)
		b = le.AppendUint64(b, a)
	}
	b = append(b, make([]byte, d.r.IntN(2)*d.r.IntN(2*BodySize))...)
	d.check = d.s.BeginCheckpoint(b)
	d.check.part = 1 + d.r.IntN(2)
	return nil
}

// checkpointStep writes a part, and finishes the checkpoint after the last part.
func (d *toy) checkpointStep() error {
	c := d.check
	if c == nil {
		return errToyBusy
	}
	defer d.give()
	if err := d.reserve(int64(c.part)+1, true); err != nil {
		return err
	}
	done, err := c.WritePart()
	if err != nil {
		return err
	}
	if done {
		d.check = nil
		seq := d.seq
		if err := c.Finish(); err != nil {
			return err
		}
		d.log.acked = max(d.log.acked, seq)
	}
	return nil
}

func (d *toy) checkpoint() error {
	if err := d.startCheckpoint(); err != nil {
		return err
	}
	for d.check != nil {
		if err := d.checkpointStep(); err != nil {
			return err
		}
	}
	return nil
}
