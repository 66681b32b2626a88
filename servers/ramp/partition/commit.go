package partition

import (
	"slices"

	"flashdbm/servers/arena"
	"flashdbm/servers/guard"
	"flashdbm/servers/ramp/protocol"
	"flashdbm/servers/store"
)

// Commit serves a COMMIT.
func (p *Partition) Commit(d protocol.Transaction, done func(protocol.Status)) {
	t := p.txns[d.TS]
	switch {
	case p.failed != nil || !p.mayTell():
		done(protocol.StatusUnavailable)
	case t == nil || t.client != d.Client:
		done(protocol.StatusUnknown)
	case t.state == refused:
		done(protocol.StatusRefused)
	default:
		if t.state == prepared {
			p.commit(t)
		}
		done(protocol.StatusOK)
	}
}

// Finished is called when all partitions of a transaction have answered its COMMIT. The caller is a client that sends
// its transactions only to partitions of this process. Without files all partitions have the transaction then, and it
// is forgotten (invariant 6). Otherwise the partitions tell each other when their files have it.
func (p *Partition) Finished(d protocol.Transaction) {
	if t := p.txns[d.TS]; t != nil && t.client == d.Client && t.state == committed && p.o.Store == nil {
		delete(p.txns, t.ts)
	}
}

// Abort serves an ABORT: a partition has refused the transaction. A committed transaction stays committed. A
// timestamp that is far ahead is not remembered: it would raise the floor above all future dates.
func (p *Partition) Abort(d protocol.Transaction, done func(protocol.Status)) {
	t := p.txns[d.TS]
	switch {
	case p.failed != nil:
		done(protocol.StatusUnavailable)
		return
	case t == nil && d.TS > p.floor && d.TS.Milli() <= p.time+clockWindow+uint64(refusalTime/1e6):
		p.refuse(d.TS, d.Client, nil) // a later timestamp is refused because of its date, for longer than a PREPARE may be under way
	case t != nil && t.client == d.Client && t.state == prepared:
		p.abort(t)
	}
	done(protocol.StatusOK)
}

// commit makes the versions of a prepared transaction visible.
func (p *Partition) commit(t *txn) {
	for i := range t.items {
		p.install(t, &t.items[i])
	}
	p.counts.Commits++
	t.state, t.since = committed, p.now
	p.settle(t)
	p.resume(&t.parked)
	p.finish(t)
}

// settle records the commit in the file, if that is allowed. In sync mode all partitions have synced the PREPARE
// before any commits. In async mode they have to report first that they have synced it (invariant 10).
func (p *Partition) settle(t *txn) {
	if t.settled != 0 {
		return
	}
	if p.o.Durability == Async {
		if t.prepared > p.durable() && len(t.sharers) > 0 {
			return
		}
		for i := range t.sharers {
			if !t.sharers[i].preparedS {
				return
			}
		}
	}
	if p.o.Store == nil {
		t.settled = p.seq
		return
	}
	t.settled = p.entry(p.record(t, store.Committed))
	for i := range t.items {
		k := &t.items[i]
		if at, ok := p.table.Find(k.hash, k.key); ok && Timestamp(p.item(arena.Place(at)).Version) == t.ts {
			p.arena.SetMark(arena.Place(at), markOf(t.settled))
		}
	}
}

// install puts the transaction's version of a key into the slot, if it is the newest.
func (p *Partition) install(t *txn, k *preparedItem) {
	x := k.versions
	i := find(x.prepared, t.ts)
	place := x.prepared[i].place
	x.prepared = slices.Delete(x.prepared, i, i+1)
	p.counts.Prepared--
	defer p.hide(x)
	at, ok := p.table.Find(k.hash, k.key)
	if !ok {
		p.show(place)
		p.table.Insert(k.hash, uint64(place))
		p.newest(x, place)
		return
	}
	slot := arena.Place(at)
	was := Timestamp(p.item(slot).Version)
	if t.ts < was { // invariant 3
		p.overtake(x, version{ts: t.ts, by: was, place: place})
		return
	}
	if !p.exchange(slot, place) {
		guard.Hide(guard.Bytes(p.arena.Bytes(slot)))
		p.show(place)
		p.table.Replace(k.hash, uint64(slot), uint64(place))
		slot, place = place, slot
	}
	p.overtake(x, version{ts: was, by: t.ts, place: place})
	p.newest(x, slot)
}

// show makes the item at a place valid for Reads.
func (p *Partition) show(at arena.Place) {
	b := guard.Bytes(p.arena.Bytes(at))
	it := guard.Parse(b)
	p.scratch = append(append(p.scratch[:0], it.Key...), it.Value...)
	n := len(it.Key)
	it.Key, it.Value = p.scratch[:n:n], p.scratch[n:]
	guard.Show(b, guard.Build(b, &it))
}

// exchange swaps the items of slot and place. It does nothing if one of them does not fit.
func (p *Partition) exchange(slot, place arena.Place) bool {
	s, b := p.arena.Bytes(slot), p.arena.Bytes(place)
	old, fresh := guard.Bytes(s), guard.Bytes(b)
	if len(fresh) > len(s) || len(old) > len(b) {
		return false
	}
	p.scratch = append(p.scratch[:0], old...)
	was := guard.Parse(p.scratch)
	guard.Hide(old)
	it := guard.Parse(fresh)
	g := guard.Build(s[:len(fresh)], &it)
	guard.Build(b[:len(old)], &was)
	guard.Show(s[:len(fresh)], g)
	return true
}

// newest is called when a version is in its slot. Until the file has the commit, the slot is not evicted.
func (p *Partition) newest(x *versions, slot arena.Place) {
	p.arena.SetMark(slot, markKept)
	it := p.item(slot)
	if it.Flags&guard.Removed != 0 {
		p.removed.add(p.now+versionTime, removedKey{x.key, x.hash, Timestamp(it.Version)})
	}
	p.idle(x)
	if p.o.Shown != nil {
		p.o.Shown(x.key, Timestamp(it.Version))
	}
}

// overtake keeps a committed version that is not the newest.
func (p *Partition) overtake(x *versions, v version) {
	x.old = append(x.old, v)
	p.overtaken.add(p.now+versionTime, overtakenVersion{x, v.ts})
}

// abort discards the versions of a prepared transaction, and refuses its timestamp from now on.
func (p *Partition) abort(t *txn) {
	var changes []store.Change
	for i := range t.items {
		x := t.items[i].versions
		v := find(x.prepared, t.ts)
		p.arena.Retire(x.prepared[v].place, p.now)
		x.prepared = slices.Delete(x.prepared, v, v+1)
		p.counts.Prepared--
		p.hide(x)
		p.idle(x)
		changes = append(changes, store.DropVersion(x.hash, x.key, uint64(t.ts)))
	}
	p.counts.Aborts++
	t.items, t.state, t.since = nil, refused, p.now
	t.settled = p.entry(append(changes, p.record(t, store.Refused))...)
	p.refused.add(p.now+refusalTime, t.ts)
	p.resume(&t.parked)
}

// refuse records that a transaction which is not prepared here will never be
// prepared here.
func (p *Partition) refuse(ts Timestamp, client uint64, hashes []uint64) *txn {
	t := &txn{ts: ts, client: client, state: refused, hashes: hashes, since: p.now}
	p.txns[ts] = t
	p.counts.Refusals++
	t.settled = p.entry(p.record(t, store.Refused))
	p.refused.add(p.now+refusalTime, ts)
	return t
}
