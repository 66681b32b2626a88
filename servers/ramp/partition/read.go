package partition

import (
	"flashdbm/servers/arena"
	"flashdbm/servers/guard"
	"flashdbm/servers/ramp/protocol"
)

// Get serves a GET. It calls each for every key in order, with contents that are valid during the call, and then
// done. That may be later than Get returns, with the same keys.
func (p *Partition) Get(q *protocol.Get, flags protocol.Flags, each func(i int, v *protocol.Version), done func(protocol.Status)) {
	p.read(q, flags, false, each, done)
}

// read serves a GET. outcomes: it waits until no key has a prepared version.
func (p *Partition) read(q *protocol.Get, flags protocol.Flags, outcomes bool, each func(i int, v *protocol.Version), done func(protocol.Status)) {
	if p.failed != nil {
		done(protocol.StatusUnavailable)
		return
	}
	ready := true
	for i := range q.Keys {
		k := &q.Keys[i]
		h := p.hash(k.Key)
		if p.o.Owner(h) != p.o.Partition {
			done(protocol.StatusMoved)
			return
		}
		_, known := p.latest(h, k.Key)
		ready = ready && known && p.undecided(h, k, q.Among, outcomes) == nil
	}
	if !ready {
		p.parkGet(q.Clone(), flags, outcomes, each, done)
		return
	}
	if !p.mayTell() { // reads the clock after the request, and before the state that it returns
		done(protocol.StatusUnavailable)
		return
	}
	var v protocol.Version
	for i := range q.Keys {
		p.version(&q.Keys[i], q.Among, flags, &v)
		each(i, &v)
	}
	done(protocol.StatusOK)
}

// parkGet makes a GET wait for keys that have to be fetched from the file, and for transactions of the last life.
func (p *Partition) parkGet(q *protocol.Get, flags protocol.Flags, outcomes bool, each func(int, *protocol.Version), done func(protocol.Status)) {
	w := p.park(func() { p.read(q, flags, outcomes, each, done) }, done)
	for i := range q.Keys {
		k := &q.Keys[i]
		h := p.hash(k.Key)
		p.await(h, k.Key, w)
		if t := p.undecided(h, k, q.Among, outcomes); t != nil {
			w.missing++
			t.parked = append(t.parked, w)
		}
	}
}

// undecided returns a transaction on whose outcome the newest version of the key depends: one of the last life
// (invariant 11), or any one if all is set.
func (p *Partition) undecided(h uint64, k *protocol.Wanted, among []protocol.Transaction, all bool) *txn {
	x := p.active.find(h, k.Key)
	if x == nil || k.TS != 0 || len(among) > 0 {
		return nil
	}
	for i := range x.prepared {
		if t := p.txns[x.prepared[i].ts]; t != nil && (t.inherited || all) {
			return t
		}
	}
	return nil
}

// version looks up a version of a known key.
func (p *Partition) version(k *protocol.Wanted, among []protocol.Transaction, flags protocol.Flags, v *protocol.Version) {
	p.counts.Gets++
	*v = protocol.Version{}
	h := p.hash(k.Key)
	x := p.active.find(h, k.Key)
	place, ok := p.table.Find(h, k.Key)
	slot := arena.Place(place)
	latest := Timestamp(0)
	if ok {
		latest = Timestamp(p.item(slot).Version)
		p.arena.SetMark(slot, p.arena.Mark(slot)|markUsed)
	}
	switch {
	case k.TS != 0:
		p.counts.Repairs++
		p.exactly(x, slot, ok, latest, k.TS, v)
	case len(among) > 0:
		p.counts.Repairs++
		p.newestAmong(x, slot, latest, among, v)
	case !ok:
		v.State, v.TS = protocol.StateNever, p.absent(x)
	default:
		p.content(slot, v)
		if n := len(p.arena.Bytes(slot)); flags&protocol.FlagPointer != 0 && n <= MaxSlot {
			v.Slot = protocol.Slot{Extent: slot.Extent(), Offset: slot.Offset(), Length: uint32(n)}
		}
	}
	if flags&protocol.FlagTimestamps != 0 && len(v.Content) > 0 {
		p.scratch = protocol.AppendWithoutValue(p.scratch[:0], v.Content)
		v.Content = p.scratch
	}
}

// absent returns the timestamp for a key without a committed version: the floor, because a forgotten remove has at
// most the floor's timestamp. A prepared version is newer.
func (p *Partition) absent(x *versions) Timestamp {
	ts := p.floor
	if x != nil {
		for i := range x.prepared {
			ts = min(ts, x.prepared[i].ts-1)
		}
	}
	return ts
}

// writer returns the client that wrote the version at a place.
func (p *Partition) writer(at arena.Place) uint64 {
	m, _, _ := protocol.ParseContent(p.item(at).Value)
	return m.Client
}

func (p *Partition) content(at arena.Place, v *protocol.Version) {
	it := p.item(at)
	v.TS, v.Content = Timestamp(it.Version), it.Value
	if v.State = protocol.StateFound; it.Flags&guard.Removed != 0 {
		v.State = protocol.StateAbsent
	}
}

// exactly looks up the version with a timestamp, also among prepared versions: a reader that asks for it has seen
// another part of its transaction, so all partitions have prepared it.
func (p *Partition) exactly(x *versions, slot arena.Place, ok bool, latest, ts Timestamp, v *protocol.Version) {
	switch at, found := p.locate(x, slot, latest, ts); {
	case found:
		p.content(at, v)
	case ts > max(latest, p.absentIf(!ok, x)): // only versions that a newer one has overtaken are ever dropped
		v.State = protocol.StateNever
	default:
		v.State = protocol.StateGone
	}
}

func (p *Partition) absentIf(absent bool, x *versions) Timestamp {
	if !absent {
		return 0
	}
	return p.absent(x)
}

func (p *Partition) locate(x *versions, slot arena.Place, latest, ts Timestamp) (arena.Place, bool) {
	if ts == latest {
		return slot, true
	}
	if x == nil {
		return 0, false
	}
	if i := find(x.prepared, ts); i >= 0 {
		return x.prepared[i].place, true
	}
	if i := find(x.old, ts); i >= 0 {
		return x.old[i].place, true
	}
	return 0, false
}

// newestAmong looks up the newest of the versions that certain transactions wrote. A key has at most one version with
// a given timestamp: if that is another client's, the transaction in question did not write the key. Each transaction
// is considered separately: even if the newest one did not write the key, an older one may have written it, and its
// version may have been dropped. For a key without a slot, only a remove may have been forgotten, up to the timestamp
// in the answer.
func (p *Partition) newestAmong(x *versions, slot arena.Place, latest Timestamp, among []protocol.Transaction, v *protocol.Version) {
	best, at, dropped := Timestamp(0), arena.Place(0), Timestamp(0)
	for i := range among {
		ts := among[i].TS
		switch place, found := p.locate(x, slot, latest, ts); {
		case found && p.writer(place) != among[i].Client:
		case found && ts > best:
			best, at = ts, place
		case !found && ts < latest && ts <= p.horizon:
			dropped = max(dropped, ts)
		}
	}
	switch {
	case dropped > best:
		v.State = protocol.StateGone
	case best == 0:
		if v.State = protocol.StateNever; latest == 0 {
			v.TS = p.absent(x)
		}
	default:
		p.content(at, v)
	}
}
