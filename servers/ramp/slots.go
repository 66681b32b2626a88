package ramp

import (
	"flashdbm/servers/fabric"
	"flashdbm/servers/guard"
	"flashdbm/servers/ramp/protocol"
	"flashdbm/servers/wire"
)

// slots has the places of keys. A place is a hint: the copy made by a Read shows whether it is right. The hash of a
// key selects slotWays places for its hint. With a single place, one in seventy of a thousand keys was always read
// by message, because another key had its place.
type slots []slot

const slotWays = 4

type slot struct {
	protocol.Slot
	hash uint64
	term uint64
}

// find returns the hint of a key, nil if there is none.
func (s slots) find(hash uint64) *slot {
	if len(s) == 0 {
		return nil
	}
	for i, at := 0, hash%uint64(len(s)); i < slotWays; i++ {
		if x := &s[(at+uint64(i))%uint64(len(s))]; x.hash == hash && x.Length > 0 {
			return x
		}
	}
	return nil
}

// put keeps a hint. Without a free place it replaces the hint of another key, chosen by the hash.
func (s slots) put(n slot) {
	if len(s) == 0 {
		return
	}
	at := n.hash % uint64(len(s))
	into := &s[(at+n.hash>>60%slotWays)%uint64(len(s))]
	for i := range uint64(slotWays) {
		x := &s[(at+i)%uint64(len(s))]
		if x.Length == 0 && into.Length > 0 || x.hash == n.hash {
			into = x
		}
		if x.hash == n.hash {
			break
		}
	}
	*into = n
}

func (s slots) drop(hash uint64) {
	if x := s.find(hash); x != nil {
		*x = slot{}
	}
}

// A landing is the memory into which Reads copy slots, divided into places.
type landing struct {
	region fabric.Region
	under  []read // by place; t is nil if the place is free
	free   []uint64
}

// A read is a Read under way, or one that waits for a place and for room on its connection.
type read struct {
	t *get
	i int
	n uint32 // length in bytes
	k fabric.Key
	o uint64 // offset in the peer's region
}

// Sizes of a landing. With fewer places, Reads wait for others to complete.
const (
	landingPlaces = 256
	readsAtOnce   = 64       // Reads for each doorbell
	landingSize   = 16 << 10 // bytes of a place: the longest slot
)

func newLanding(d fabric.Domain, places int) (*landing, error) {
	r, err := d.Alloc(places*landingSize, 0)
	if err != nil {
		return nil, err
	}
	l := &landing{region: r, under: make([]read, places)}
	for i := range places {
		l.free = append(l.free, uint64(places-1-i))
	}
	return l, nil
}

// reign records the tenure in an answer. It counts from when the request was sent, less 1/64 because clocks run at
// different rates.
func (e *engine) reign(l *link, term uint64, sent int64, micros uint32) {
	d := int64(micros) * 1000
	end := sent + d - d/64
	switch {
	case term > l.term:
		l.term, l.tenure = term, end
		clear(l.extents)
	case term == l.term:
		l.tenure = max(l.tenure, end)
	}
}

// learn keeps the place of a key's slot.
func (e *engine) learn(l *link, term uint64, k *getKey, s protocol.Slot) {
	if len(e.slots) == 0 || s.Length > landingSize || s.Length%8 != 0 {
		return
	}
	e.slots.put(slot{s, k.hash, term})
	if l.extents[s.Extent] == nil {
		e.askExtent(l, s.Extent)
	}
}

// askExtent requests the fabric's key of an extent.
func (e *engine) askExtent(l *link, number uint32) {
	x := &extent{}
	l.extents[number] = x
	body := protocol.AppendExtentRequest(nil, number)
	e.send(l, &call{op: protocol.OpExtent, size: len(body), append: func(b []byte) []byte { return append(b, body...) },
		done: func(_ *call, s protocol.Status, b []byte, _ error) {
			var got protocol.Extent
			if s != protocol.StatusOK || got.Parse(b) != nil || got.Term != l.term {
				if l.extents[number] == x {
					delete(l.extents, number)
				}
				return
			}
			k := got.Key
			x.key, x.known = fabric.Key{ID: k[0], Rkey: k[1], Nonce: k[2], Base: k[3], Len: k[4]}, true
		}})
}

// readSlot queues a Read of a key's slot, if its place is known. pushReads posts it.
func (t *get) readSlot(e *engine, i int) bool {
	k := &t.keys[i]
	l := k.link
	if l.reader == nil {
		return false
	}
	s := e.slots.find(k.hash)
	if s == nil || s.term != l.term || k.term != l.term || e.now >= l.tenure { // the copy would not be valid: rule 1
		return false
	}
	x := l.extents[s.Extent]
	if x == nil || !x.known {
		return false
	}
	l.reads = append(l.reads, read{t, i, s.Length, x.key, s.Offset})
	k.tries++
	t.left++
	t.reading++
	t.expect += int(s.Length)
	return true
}

// pushReads posts the Reads that are queued for a partition, as many with one doorbell as there are places and room
// for.
func (e *engine) pushReads(l *link) (worked bool) {
	for len(l.reads) > 0 {
		if l.reader == nil {
			r := l.reads[0]
			l.reads = l.reads[1:]
			e.readFailed(&r)
			worked = true
			continue
		}
		land := l.land
		n := min(len(l.reads), len(land.free), readsAtOnce)
		if n == 0 {
			return worked
		}
		e.ops = e.ops[:0]
		for i := range l.reads[:n] {
			r := &l.reads[i]
			place := land.free[len(land.free)-1-i]
			e.ops = append(e.ops, wire.ReadOp{Offset: place * landingSize, Length: uint64(r.n), Key: r.k, At: r.o, Token: place})
		}
		taken, err := l.reader.Reads(land.region, e.ops)
		for i := range taken {
			land.under[e.ops[i].Token] = l.reads[i]
		}
		land.free = land.free[:len(land.free)-taken]
		clear(l.reads[:taken])
		if l.reads = l.reads[taken:]; len(l.reads) == 0 {
			l.reads = nil
		}
		worked = worked || taken > 0
		if err != nil {
			l.reader = nil // the connection has ended, which step notices: the other keys are requested by message
			continue
		}
		if taken < n {
			return worked
		}
	}
	return worked
}

// readDone handles a completed Read.
func (e *engine) readDone(land *landing, place uint64, err error) {
	r := land.under[place]
	land.under[place] = read{}
	land.free = append(land.free, place)
	t, k := r.t, &r.t.keys[r.i]
	if t.ended {
		return
	}
	if err != nil {
		e.readFailed(&r)
		return
	}
	b := land.region.Bytes()[place*landingSize:][:r.n]
	it, err := verify(b, k.key)
	if err == nil {
		e.counts.OneSided++
		s := protocol.StateFound
		if it.Flags&guard.Removed != 0 {
			s = protocol.StateAbsent
		}
		t.set(k, s, Timestamp(it.Version), it.Value)
		k.read = true
		t.reading--
		t.askFailed(e)
		t.arrived(e)
		return
	}
	e.counts.Refused++
	if err == guard.ErrStale && k.tries < maxReads {
		e.look()
		if t.readSlot(e, r.i) {
			t.left-- // the new Read counts for the same answer
			t.reading--
			e.pushReads(k.link)
			return
		}
	}
	e.readFailed(&r)
}

// readFailed requests a key that could not be Read by message.
func (e *engine) readFailed(r *read) {
	t := r.t
	if t.ended {
		return
	}
	t.reading--
	e.slots.drop(t.keys[r.i].hash)
	t.ask(r.i)
	t.askFailed(e)
	t.arrived(e)
}

// askFailed requests the keys whose Reads have failed, once the last Read is done: one message for each partition.
func (t *get) askFailed(e *engine) {
	if t.reading == 0 && len(t.groups) > 0 {
		t.sendGroups(e, protocol.FlagPointer, nil)
	}
}

// verify returns the item at the beginning of a copy of a slot, if it is whole, committed and of the key.
func verify(b, key []byte) (guard.Item, error) {
	n, ok := guard.SizeOf(b)
	if !ok {
		return guard.Item{}, guard.ErrStale
	}
	return guard.Verify(b[:n], key)
}
