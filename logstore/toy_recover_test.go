package logstore

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"flashdbm/logstore/vfs"
)

const toyPath = "toy.db"

// openToy creates or recovers the toy in a file system. The lineage says what it must find, and records what it
// found.
func openToy(fs vfs.FS, opts Options, r *rand.Rand, log *lineage) (*toy, error) {
	s, rec, err := Open(fs, toyPath, opts)
	if err != nil {
		return nil, err
	}
	d := &toy{s: s, r: r, log: log, place: map[PageID]Addr{}, dirty: map[int]bool{}, moves: map[PageID]bool{}}
	if rec.Created {
		err = d.create(rec)
	} else {
		err = d.recover(rec)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return d, nil
}

// create writes version 0 of each slot, half of them under born names.
func (d *toy) create(rec *Recovery) error {
	if d.log.acked > 0 || d.log.created {
		return fmt.Errorf("%w: the database is gone", errToy)
	}
	d.log.reset()
	if err := d.s.EndRecovery(rec); err != nil {
		return err
	}
	if err := d.reserve(toySlots, false); err != nil {
		return err
	}
	g := d.s.Begin(PageGroup)
	var placed []toyPlaced
	for slot := range toySlots {
		name := PageID(0)
		if slot%2 == 0 {
			name = BornBit | PageID(slot+1)
		}
		a, body := g.Page(name)
		d.putPage(body, slot, toyValue{})
		placed = append(placed, toyPlaced{name: name, slot: slot, addr: a})
	}
	no, err := g.Commit(0)
	if err != nil {
		return err
	}
	d.give()
	d.install(placed, 0)
	d.base = no
	d.s.Rebase(no)
	for range 2 {
		if err := d.checkpoint(); err != nil {
			return err
		}
	}
	d.log.created = true
	return nil
}

// words takes 64-bit words off a stream.
type words struct{ b []byte }

func (w *words) next() uint64 {
	v := binary.LittleEndian.Uint64(w.b)
	w.b = w.b[8:]
	return v
}

func (d *toy) recover(rec *Recovery) error {
	w := &words{rec.Table}
	d.base, d.baseSeq = w.next(), w.next()
	for slot := range d.names {
		d.names[slot] = w.next()
	}
	for range w.next() {
		name, a := w.next(), w.next()
		d.place[name] = a
		d.s.AddName(name)
	}
	if err := d.redoPages(rec); err != nil {
		return err
	}
	for slot := range toySlots {
		got, v, err := d.getPage(d.at(d.names[slot]))
		if err != nil {
			return err
		}
		if got != slot {
			return fmt.Errorf("%w: recovered slot %d leads to the page of slot %d", errToy, slot, got)
		}
		d.values[slot] = v
	}
	d.seq = d.baseSeq
	if err := d.redoRecords(rec); err != nil {
		return err
	}
	d.s.RebaseRecovered(rec, d.base)
	if err := d.s.EndRecovery(rec); err != nil {
		return err
	}
	if err := d.log.recovered(d); err != nil {
		return err
	}
	d.log.created = true
	return d.verify()
}

// redoPages installs page groups and complete flushes, and marks the runs that groups carry as live.
func (d *toy) redoPages(rec *Recovery) error {
	tableBase := d.base
	parts := map[uint64][]toyPlaced{}
	for i := range rec.Groups {
		g := &rec.Groups[i]
		switch g.Kind {
		case RecordGroup, PageGroup:
			for _, p := range g.Pages {
				if p.Kind == KindRun {
					d.s.MarkLive(p.Addr, p.Run, 0)
					extents, err := d.s.ListAt(p.Addr)
					if err != nil {
						return err
					}
					if err := d.s.NoteListed(extents, g.No); err != nil {
						return err
					}
				}
			}
			if g.Kind == PageGroup {
				placed, err := d.placed(g)
				if err != nil {
					return err
				}
				d.install(placed, 0)
				d.base, d.baseSeq = g.No, g.Count
			}
		case FlushGroup:
			placed, err := d.placed(g)
			if err != nil {
				return err
			}
			if g.Count != 0 {
				parts[g.Count] = append(parts[g.Count], placed...)
				continue
			}
			if err := d.redoFlush(g, tableBase, placed, parts); err != nil {
				return err
			}
		}
	}
	return nil
}

// placed lists the pages and runs of a group that replace others.
func (d *toy) placed(g *ScannedGroup) (placed []toyPlaced, err error) {
	for _, p := range g.Pages {
		switch {
		case p.Kind == KindTree:
			slot, _, err := d.getPage(p.Addr)
			if err != nil {
				return nil, err
			}
			placed = append(placed, toyPlaced{name: p.Name, slot: slot, addr: p.Addr})
		case p.Kind == KindRun && p.Name != 0:
			placed = append(placed, toyPlaced{name: p.Name, slot: -1, addr: p.Addr, run: p.Run})
		}
	}
	return placed, nil
}

func (d *toy) redoFlush(g *ScannedGroup, tableBase uint64, placed []toyPlaced, parts map[uint64][]toyPlaced) error {
	stream, err := d.stream(g, KindFlush)
	if err != nil {
		return err
	}
	w := &words{stream}
	if w.next() != 1 {
		return fmt.Errorf("%w: end of a flush", errToy)
	}
	base, baseSeq, first := w.next(), w.next(), w.next()
	if base <= tableBase { // the table already includes the flush, and the space of pages that died then may have been given back
		return nil
	}
	d.install(append(parts[first], placed...), 0)
	var dying []Extent
	var dead []PageID
	for range w.next() {
		dying = append(dying, Extent{Addr: w.next(), Bytes: uint32(w.next())})
	}
	for range w.next() {
		dead = append(dead, w.next())
	}
	d.bury(dying, dead, 0)
	d.base, d.baseSeq = base, baseSeq
	return nil
}

func (d *toy) stream(g *ScannedGroup, kind Kind) (stream []byte, err error) {
	for _, p := range g.Pages {
		if p.Kind == kind {
			body, err := d.s.Body(p)
			if err != nil {
				return nil, err
			}
			stream = append(stream, body...)
		}
	}
	return stream, nil
}

// redoRecords redoes the commits after the base.
func (d *toy) redoRecords(rec *Recovery) error {
	for i := range rec.Groups {
		g := &rec.Groups[i]
		if g.Kind != RecordGroup || g.No <= d.base {
			continue
		}
		stream, err := d.stream(g, KindRecord)
		if err != nil {
			return err
		}
		w := &words{stream}
		for range g.Count {
			d.seq++
			for range w.next() {
				slot := int(w.next())
				v := toyValue{version: w.next(), run: w.next()}
				if v.version != d.seq {
					return fmt.Errorf("%w: version %d in commit %d", errToy, v.version, d.seq)
				}
				d.record(slot, v)
			}
		}
	}
	return nil
}
