package ramp

import (
	"flashdbm/servers/fabric"
	"flashdbm/servers/guard"
	"flashdbm/servers/ramp/protocol"
)

// slots are where keys were found: hints, which what a Read brings proves right or wrong. A key's hint has one place, by the hash of the key: of two
// keys that share a place the last one has it.
type slots []slot

type slot struct {
	protocol.Slot
	hash uint64
	term uint64
}

func (s slots) at(hash uint64) *slot { return &s[hash%uint64(len(s))] }

func (s slots) drop(hash uint64) {
	if x := s.at(hash); x.hash == hash {
		*x = slot{}
	}
}

// A landing is memory that Reads bring slots to, in places.
type landing struct {
	region fabric.Region
	under  []*read
	free   []uint64
}

// A read is a Read that is under way.
type read struct {
	t *get
	i int
	n uint32 // bytes
}

// Sizes of a landing. With fewer places more keys go by message while many are under way.
const (
	landingPlaces = 512
	landingSize   = 16 << 10 // bytes of a place: the longest slot
)

func newLanding(d fabric.Domain, places int) (*landing, error) {
	r, err := d.Alloc(places*landingSize, 0)
	if err != nil {
		return nil, err
	}
	l := &landing{region: r, under: make([]*read, places)}
	for i := range places {
		l.free = append(l.free, uint64(places-1-i))
	}
	return l, nil
}

// reign takes the tenure that came with an answer to a request. It counts from when the request was sent, less what clocks may differ in rate.
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

// learn keeps where a key's slot is.
func (e *engine) learn(l *link, term uint64, k *getKey, s protocol.Slot) {
	if len(e.slots) == 0 || s.Length > landingSize || s.Length%8 != 0 {
		return
	}
	*e.slots.at(k.hash) = slot{s, k.hash, term}
	if l.extents[s.Extent] == nil {
		e.askExtent(l, s.Extent)
	}
}

// askExtent asks for the fabric's key of an extent.
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

// readSlot posts a Read of a key's slot, if it is known where that is.
func (t *get) readSlot(e *engine, i int) bool {
	k := &t.keys[i]
	l := k.link
	if len(e.slots) == 0 || l.reader == nil {
		return false
	}
	s := e.slots.at(k.hash)
	if s.hash != k.hash || s.Length == 0 {
		return false
	}
	if s.term != l.term || k.life != l.term || e.now >= l.tenure { // it would not count: rule 1
		return false
	}
	x, land := l.extents[s.Extent], l.land
	if x == nil || !x.known || len(land.free) == 0 {
		return false
	}
	place := land.free[len(land.free)-1]
	if l.reader.Read(land.region, place*landingSize, uint64(s.Length), x.key, s.Offset, place) != nil {
		return false
	}
	land.free = land.free[:len(land.free)-1]
	land.under[place] = &read{t, i, s.Length}
	k.tries++
	t.left++
	t.reading++
	return true
}

// readDone looks at what a Read has brought.
func (e *engine) readDone(land *landing, place uint64, err error) {
	r := land.under[place]
	land.under[place] = nil
	land.free = append(land.free, place)
	t, k := r.t, &r.t.keys[r.i]
	if t.reading--; t.ended {
		return
	}
	if err == nil {
		b := land.region.Bytes()[place*landingSize:][:r.n]
		it, verr := verify(b, k.key)
		if err = verr; err == nil {
			e.counts.OneSided++
			s := protocol.StateFound
			if it.Flags&guard.Removed != 0 {
				s = protocol.StateAbsent
			}
			t.set(k, s, Timestamp(it.Version), it.Value, true)
			k.read = true
			t.askFailed(e)
			t.arrived(e)
			return
		}
		e.counts.Refused++
		if err == guard.ErrStale && k.tries < maxReads {
			e.look()
			if t.readSlot(e, r.i) {
				t.left-- // it goes on for the same answer
				return
			}
		}
	}
	e.slots.drop(k.hash)
	t.ask(r.i)
	t.askFailed(e)
	t.arrived(e)
}

// askFailed asks for the keys whose Reads have brought nothing, once the last Read is done: one message for each partition.
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
