package logstore

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
)

// reserve promises pages for one action of the toy; give returns the promise.
func (d *toy) reserve(pages int64, emergency bool) error {
	if err := d.s.Reserve(pages, emergency); err != nil {
		return err
	}
	d.reserved += pages
	return nil
}

func (d *toy) give() {
	d.s.Release(d.reserved)
	d.reserved = 0
}

// newRun adds a long value to a group. prepare has already written large values.
func (d *toy) newRun(g *Group, slot int, version uint64, p *Private) (PageID, error) {
	if p != nil {
		extents, err := p.Finish()
		if err != nil {
			return 0, err
		}
		return g.List(0, nil, extents), nil
	}
	_, n := toyForm(slot, version, d.s)
	b := make([]byte, n)
	toyFill(b, slot, version)
	cut := int(mix(version, 7) % uint64(n+1))
	return g.Run(0, b[:cut], b[cut:]), nil
}

// prepare writes the large value of a slot into private segments and syncs them.
func (d *toy) prepare(slot int, version uint64) (*Private, error) {
	kind, n := toyForm(slot, version, d.s)
	if kind != toyLarge {
		return nil, nil
	}
	b := make([]byte, n)
	toyFill(b, slot, version)
	p := d.s.NewPrivate()
	for len(b) > 0 {
		cut := 1 + int(mix(version, uint64(len(b)))%uint64(len(b)))
		if _, err := p.Write(b[:cut]); err != nil {
			p.Discard()
			return nil, err
		}
		b = b[cut:]
	}
	_, err := p.Finish()
	if err == nil {
		err = d.s.SyncPrivate()
	}
	if err != nil {
		p.Discard()
		return nil, err
	}
	return p, nil
}

// commit changes some slots: as a page group if that is legal and chosen at random, otherwise as a record group.
func (d *toy) commit() (err error) {
	version := d.seq + 1
	r := d.r
	if r.IntN(2) == 0 { // after a crash the same commit may come again, byte for byte
		r = rand.New(rand.NewPCG(version, 0))
	}
	changed := r.Perm(toySlots)[:1+r.IntN(3)]
	if d.log.small && r.IntN(8) > 0 {
		changed = slices.DeleteFunc(r.Perm(toySlots), func(slot int) bool {
			kind, _ := toyForm(slot, version, d.s)
			return kind != toyInline
		})[:1]
	}
	inline, open := true, d.log.small || r.IntN(4) > 0
	pageGroup := !d.log.small && r.IntN(2) == 0 && len(d.dirty) == 0 && len(d.deaths) == 0 && len(d.moves) == 0 && d.flush == nil && d.check == nil
	var pages int64 = 2
	private := map[int]*Private{}
	defer func() {
		d.give()
		for _, p := range private {
			if err != nil {
				p.Discard()
			}
		}
	}()
	for _, slot := range changed {
		pageGroup = pageGroup && d.values[slot].run == 0
		kind, n := toyForm(slot, version, d.s)
		inline = inline && kind == toyInline
		switch kind {
		case toyRun:
			pages += RunReserve(RunPages(n))
		case toyLarge:
			pages += 2
			p, err := d.prepare(slot, version)
			if err != nil {
				return err
			}
			private[slot] = p
		}
		pages += 2
	}
	if err := d.reserve(pages, false); err != nil {
		return err
	}
	d.log.issued = version
	d.log.hist[version] = d.after(changed, version)
	kind := RecordGroup
	if pageGroup {
		kind = PageGroup
	}
	g := d.s.Begin(kind)
	values := make([]toyValue, len(changed))
	for i, slot := range changed {
		values[i].version = version
		if kind, _ := toyForm(slot, version, d.s); kind != toyInline {
			if values[i].run, err = d.newRun(g, slot, version, private[slot]); err != nil {
				return err
			}
		}
	}
	var placed []toyPlaced
	var no uint64
	if pageGroup {
		placed = d.addPages(g, r, changed, values)
		no, err = g.Commit(version)
	} else {
		no, err = d.logRecords(g, toyRecords(changed, values), inline && open)
	}
	if err != nil {
		return err
	}
	d.log.written = version
	if !pageGroup { // their pages are still to be written
		d.reserved -= int64(len(changed))
		d.owed += int64(len(changed))
	}
	d.seq = version
	for i, slot := range changed {
		if p := private[slot]; p != nil {
			p.Publish(no, d.clock+1)
		}
		d.bear(values[i].run)
		if !pageGroup {
			d.record(slot, values[i])
		}
		d.values[slot] = values[i]
	}
	if pageGroup {
		d.install(placed, d.tick())
		d.base, d.baseSeq = no, version
		d.s.Rebase(no)
	}
	return nil
}

// logRecords writes the records of a commit: into the last page if share is set and there is room.
func (d *toy) logRecords(g *Group, records []byte, share bool) (uint64, error) {
	if share {
		if no, ok, err := d.s.Extend(records, 1); ok || err != nil {
			modelCounts.Extended++
			return no, err
		}
		g.KeepOpen()
	}
	g.Write(KindRecord, records)
	return g.Commit(1)
}

func (d *toy) after(changed []int, version uint64) toyState {
	st := d.state()
	for _, slot := range changed {
		st[slot] = version
	}
	return st
}

// addPages adds the pages of slots, a few of them under new names, which are their own addresses.
func (d *toy) addPages(g *Group, r *rand.Rand, changed []int, values []toyValue) (placed []toyPlaced) {
	for i, slot := range changed {
		name := d.names[slot]
		if r.IntN(6) == 0 {
			name = 0
		}
		a, body := g.Page(name)
		d.putPage(body, slot, values[i])
		placed = append(placed, toyPlaced{name: name, slot: slot, addr: a})
	}
	return placed
}

// bear marks the pages of a new run as live.
func (d *toy) bear(run PageID) {
	if run == 0 {
		return
	}
	payload, err := d.s.Run(run)
	if err != nil {
		panic(err)
	}
	d.s.MarkLive(run, RunPages(int64(len(payload))), d.clock+1) // no reader knows the run before something is installed
}

// record notes a change that is not in any page yet.
func (d *toy) record(slot int, v toyValue) {
	if old := d.values[slot].run; old != 0 {
		d.deaths = append(d.deaths, toyDeath{old})
		delete(d.moves, old)
	}
	d.values[slot] = v
	d.dirty[slot] = true
}

// toyRecords encodes redo records: count, then slot, version, run of each.
func toyRecords(slots []int, values []toyValue) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(slots)))
	for i, slot := range slots {
		b = binary.LittleEndian.AppendUint64(b, uint64(slot))
		b = binary.LittleEndian.AppendUint64(b, values[i].version)
		b = binary.LittleEndian.AppendUint64(b, values[i].run)
	}
	return b
}

// tick advances the clock of installations.
func (d *toy) tick() uint64 {
	d.clock++
	return d.clock
}

// install makes names lead to new pages. The pages to which they led die at the given moment, which is 0 in
// recovery, where there are no readers. A page that died at another moment would count as a node as long as its
// segment lives, so the raw pages of a value that comes there in a later life of the segment would never die
// (seeds 61002304, 61006051 and 61006349).
func (d *toy) install(placed []toyPlaced, now uint64) {
	for _, p := range placed {
		n := int64(1)
		if p.slot < 0 {
			n = p.run
		}
		name := p.name
		if name == 0 { // a new name for the slot
			if old := d.names[p.slot]; old != 0 {
				d.s.KillNode(d.at(old), now)
				d.retire(old)
			}
			d.names[p.slot] = p.addr
		} else {
			if p.slot >= 0 {
				d.names[p.slot] = name
			}
			old, listed := d.place[name]
			if !listed {
				d.s.AddName(name)
				old = name
			}
			if IsAddr(old) {
				d.s.Kill(old, n, now)
			}
			d.place[name] = p.addr
		}
		d.s.MarkLive(p.addr, n, now)
	}
}

func (d *toy) retire(name PageID) {
	if _, listed := d.place[name]; listed {
		delete(d.place, name)
		d.s.DropName(name)
	}
}

func (d *toy) sync() error {
	seq := d.seq
	if err := d.s.Sync(); err != nil {
		return err
	}
	d.log.acked = max(d.log.acked, seq)
	return nil
}

// makeRoom does what a database does when its file is full: it ends readers sooner or later, flushes,
// checkpoints and cleans.
func (d *toy) makeRoom() error {
	if d.r.IntN(4) == 0 {
		d.readers = nil
		d.s.SetSnapshots([]uint64{d.clock})
	}
	for d.check != nil {
		if err := d.checkpointStep(); err != nil {
			return err
		}
	}
	for range 2 {
		for _, do := range []func() error{d.flushAll, d.checkpoint, d.checkpoint} {
			if err := do(); err != nil {
				return err
			}
			if len(d.readers) == 0 {
				d.s.SetSnapshots([]uint64{d.clock})
			}
		}
		d.clean()
	}
	return d.flushAll()
}

var errToyBusy = errors.New("toy: not now")
