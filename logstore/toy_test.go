package logstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"flashdbm/logstore/vfs"
)

// The toy is the smallest database that needs everything a store promises: a fixed number of slots, each with a
// value that follows from the slot and a version. Slots have pages, which are found by name through a table.
// Values too long for a page lie in runs, and very long ones in private segments. Commits are page groups or
// record groups. Record groups are followed by flushes, whose parts lie between other groups. Pages and runs
// move when their segment is cleaned, and some pages get new names.
const toySlots = 10

const (
	toyInline = iota // the value is in the page
	toyRun           // in a run
	toyLarge         // in private segments, listed by a run
)

// toyState is the version of each slot.
type toyState [toySlots]uint64

// toyValue is where the newest value of a slot is.
type toyValue struct {
	version uint64
	run     PageID // name of its run; 0 = inline
}

type toyDeath struct{ run PageID }

type toy struct {
	s        *Store
	r        *rand.Rand
	log      *lineage
	names    [toySlots]PageID
	place    map[PageID]Addr // the translation table
	values   [toySlots]toyValue
	dirty    map[int]bool    // slots changed since the base
	moves    map[PageID]bool // runs to be moved by the next flush
	deaths   []toyDeath      // runs dropped since the base
	seq      uint64          // of the newest commit
	base     uint64          // group after which redo starts
	baseSeq  uint64
	flush    *toyFlush
	check    *Checkpoint
	clock    uint64 // counts installations
	readers  []toyReader
	reserved int64 // pages promised to the present action
	owed     int64 // pages promised to the next flush
}

// A toyFlush writes the slots dirty at its base.
type toyFlush struct {
	base, baseSeq, first uint64
	owed                 int64
	work                 []int // slots left
	values               [toySlots]toyValue
	moves                []PageID
	deaths               []toyDeath
	placed               []toyPlaced
}

// toyPlaced is a page to be installed.
type toyPlaced struct {
	name PageID
	slot int // -1: a run
	addr Addr
	run  int64
}

// A toyReader looks at the pages that were installed at its clock.
type toyReader struct {
	clock uint64
	seen  []toySeen
}

type toySeen struct {
	slot    int
	version uint64
	page    Addr
	run     Addr
}

func mix(xs ...uint64) uint64 {
	h := uint64(0x9E3779B97F4A7C15)
	for _, x := range xs {
		h = (h ^ x) * 0xBF58476D1CE4E5B9
		h ^= h >> 29
	}
	return h
}

// form returns the length of a value, and where it belongs.
func toyForm(slot int, version uint64, s *Store) (kind int, n int64) {
	h := mix(uint64(slot), version, 1)
	switch h % 16 {
	case 0, 1, 2:
		return toyRun, int64(h>>8) % (s.MaxRun() + 1)
	case 3:
		return toyLarge, 1 + int64(h>>8)%(9*PageSize)
	}
	return toyInline, 64 + int64(h>>8)%(BodySize-128)
}

// toyFill makes the bytes of a value. Half of its sectors are zero, as in real pages, so sectors of different
// pages may be equal.
func toyFill(b []byte, slot int, version uint64) {
	for at := 0; at < len(b); at += vfs.SectorSize {
		sector := b[at:min(at+vfs.SectorSize, len(b))]
		h := mix(uint64(slot), version, uint64(at))
		if h&1 == 0 {
			clear(sector)
			continue
		}
		for i := range sector {
			sector[i] = byte(h >> (i % 8 * 8))
		}
	}
}

const toyHead = 32

// putPage makes the body of a slot's page: slot, version, run name, zero; then the value if it is inline.
func (d *toy) putPage(body []byte, slot int, v toyValue) {
	le := binary.LittleEndian
	le.PutUint64(body, uint64(slot))
	le.PutUint64(body[8:], v.version)
	le.PutUint64(body[16:], v.run)
	if kind, n := toyForm(slot, v.version, d.s); kind == toyInline {
		toyFill(body[toyHead:toyHead+n], slot, v.version)
	}
}

var errToy = errors.New("toy")

// getPage checks the page of a slot and returns its value.
func (d *toy) getPage(a Addr) (slot int, v toyValue, err error) {
	p, err := d.s.Page(a)
	if err != nil {
		return 0, v, err
	}
	le := binary.LittleEndian
	body := p[MuxSize:]
	slot = int(le.Uint64(body))
	v = toyValue{version: le.Uint64(body[8:]), run: le.Uint64(body[16:])}
	if uint(slot) >= toySlots {
		return 0, v, fmt.Errorf("%w: page %d holds slot %d", errToy, a, slot)
	}
	want := make([]byte, BodySize)
	d.putPage(want, slot, v)
	if !slices.Equal(want, body) {
		return 0, v, fmt.Errorf("%w: page %d differs from slot %d, version %d", errToy, a, slot, v.version)
	}
	return slot, v, nil
}

// checkRun compares the long value in the run at a.
func (d *toy) checkRun(a Addr, slot int, version uint64) error {
	payload, err := d.s.Run(a)
	if err != nil {
		return err
	}
	kind, n := toyForm(slot, version, d.s)
	want := make([]byte, n)
	toyFill(want, slot, version)
	if kind == toyLarge {
		extents, err := GetExtents(payload)
		if err != nil {
			return err
		}
		payload = nil
		for _, e := range extents {
			b, err := d.s.Raw(e)
			if err != nil {
				return err
			}
			payload = append(payload, b...)
		}
	}
	if !slices.Equal(payload, want) {
		return fmt.Errorf("%w: run %d differs from slot %d, version %d (%d bytes, %d wanted)", errToy, a, slot, version, len(payload), n)
	}
	return nil
}

// at returns the address of the newest image of a name.
func (d *toy) at(name PageID) Addr {
	if a, ok := d.place[name]; ok {
		return a
	}
	return name
}

func (d *toy) state() (st toyState) {
	for i, v := range d.values {
		st[i] = v.version
	}
	return st
}

// verify reads every installed value.
func (d *toy) verify() error {
	for slot := range toySlots {
		got, v, err := d.getPage(d.at(d.names[slot]))
		if err != nil {
			return err
		}
		if got != slot {
			return fmt.Errorf("%w: slot %d leads to the page of slot %d", errToy, slot, got)
		}
		if v.run != 0 {
			if err := d.checkRun(d.at(v.run), slot, v.version); err != nil {
				return err
			}
		}
	}
	for slot, v := range d.values {
		if v.run != 0 {
			if err := d.checkRun(d.at(v.run), slot, v.version); err != nil {
				return err
			}
		}
	}
	return d.checkLive()
}

// verifyFailed is verify of a store that may have failed: reading what was not synced before may be an error,
// but never gives wrong bytes.
func (d *toy) verifyFailed() error {
	if d.s.Failed() == nil {
		return d.verify()
	}
	spared := func(err error) error {
		if errors.Is(err, ErrFailed) {
			return nil
		}
		return err
	}
	for slot := range toySlots {
		got, v, err := d.getPage(d.at(d.names[slot]))
		if err == nil && got != slot {
			err = fmt.Errorf("%w: slot %d leads to the page of slot %d", errToy, slot, got)
		}
		if err == nil && v.run != 0 {
			err = d.checkRun(d.at(v.run), slot, v.version)
		}
		if v := d.values[slot]; spared(err) == nil && v.run != 0 {
			err = d.checkRun(d.at(v.run), slot, v.version)
		}
		if spared(err) != nil {
			return err
		}
	}
	return nil
}

// checkLive compares the live pages that the store counts with those in use.
func (d *toy) checkLive() error {
	live := map[Addr]bool{}
	add := func(a Addr, n int64) {
		for i := range n {
			live[a+uint64(i)] = true
		}
	}
	addRun := func(name PageID) error {
		if name == 0 {
			return nil
		}
		pages, err := d.pagesOf(name)
		for _, e := range pages {
			add(e.Addr, int64(e.Bytes))
		}
		return err
	}
	for slot := range toySlots {
		a := d.at(d.names[slot])
		add(a, 1)
		_, v, err := d.getPage(a)
		if err != nil {
			return err
		}
		if err := errors.Join(addRun(v.run), addRun(d.values[slot].run)); err != nil {
			return err
		}
	}
	for _, x := range d.deaths {
		if err := addRun(x.run); err != nil {
			return err
		}
	}
	if d.flush == nil {
		if n := d.s.SpaceStats().LiveBytes / PageSize; n != int64(len(live)) {
			return fmt.Errorf("%w: %d pages live, %d in use", errToy, n, len(live))
		}
	}
	for a := range live {
		if !d.s.IsLive(a) {
			return fmt.Errorf("%w: page %d is in use and not live", errToy, a)
		}
	}
	return d.s.CheckCounts()
}

// pagesOf returns the pages of a long value; Bytes counts pages.
func (d *toy) pagesOf(name PageID) ([]Extent, error) {
	a := d.at(name)
	payload, err := d.s.Run(a)
	if err != nil {
		return nil, err
	}
	pages := []Extent{{Addr: a, Bytes: uint32(RunPages(int64(len(payload))))}}
	extents, err := d.s.ListAt(a)
	for _, e := range extents {
		pages = append(pages, Extent{Addr: e.Addr, Bytes: uint32(e.Pages())})
	}
	return pages, err
}
