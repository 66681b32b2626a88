package partition

import (
	"slices"

	"flashdbm/servers/arena"
	"flashdbm/servers/store"
)

// An overtakenVersion is an old version of its key. The key's versions are active while it exists.
type overtakenVersion struct {
	x  *versions
	ts Timestamp
}

type removedKey struct {
	key  []byte
	hash uint64
	ts   Timestamp
}

// Tidy does a little of the work that is due by time. A caller within the process does it with each call.
func (p *Partition) Tidy() { p.passing(workPerCall) }

// passing does the work that is due by time: at most so many pieces of each kind.
func (p *Partition) passing(pieces int) (worked bool) {
	if p.failed != nil {
		return false
	}
	for range pieces {
		ts, ok := p.asks.next(p.now)
		if !ok {
			break
		}
		if t := p.txns[ts]; t != nil && t.state != refused {
			p.pursue(t)
		}
		worked = true
	}
	for range pieces {
		v, ok := p.overtaken.next(p.now)
		if !ok {
			break
		}
		p.drop(&v)
		worked = true
	}
	for range pieces {
		k, ok := p.removed.next(p.now)
		if !ok {
			break
		}
		p.forgetRemove(&k)
		worked = true
	}
	for range pieces {
		ts, ok := p.refused.next(p.now)
		if !ok {
			break
		}
		worked = true
		if ts.Milli() > p.time { // the floor stays below the timestamps that clients use
			p.refused.add(p.now+refusalTime, ts)
			continue
		}
		delete(p.txns, ts)
		p.raise(ts, store.DropTransaction(uint64(ts)))
	}
	return worked
}

// unsettled reports whether the file does not have the commit yet.
func (p *Partition) unsettled(ts Timestamp) bool {
	t := p.txns[ts]
	return t != nil && t.settled == 0
}

// drop discards an overtaken version.
func (p *Partition) drop(v *overtakenVersion) {
	x := v.x
	i := find(x.old, v.ts)
	if p.o.Store != nil && (p.unsettled(v.ts) || p.unsettled(x.old[i].by)) { // invariant 12
		p.overtaken.add(p.now+versionTime, *v)
		return
	}
	p.arena.Retire(x.old[i].place, p.now)
	if i == 0 { // the usual case, because the oldest is the first; a key that is written often has thousands
		x.old = x.old[1:]
	} else {
		x.old = slices.Delete(x.old, i, i+1)
	}
	p.idle(x)
	p.horizon = max(p.horizon, v.ts)
	p.counts.Dropped++
	if p.o.Store != nil {
		p.entry(store.DropVersion(x.hash, x.key, uint64(v.ts)))
	}
}

// forgetRemove forgets that a key was removed. From then on the floor refuses older timestamps.
func (p *Partition) forgetRemove(k *removedKey) {
	place, ok := p.table.Find(k.hash, k.key)
	if !ok || Timestamp(p.item(arena.Place(place)).Version) != k.ts {
		return
	}
	if p.active.find(k.hash, k.key) != nil || p.txns[k.ts] != nil {
		p.removed.add(p.now+versionTime, *k)
		return
	}
	p.giveUp(arena.Place(place))
	p.raise(k.ts, store.DropVersion(k.hash, k.key, uint64(k.ts)))
}

// raise raises the floor to a timestamp. The changes delete what is forgotten with it.
func (p *Partition) raise(ts Timestamp, forgotten ...store.Change) {
	p.floor = max(p.floor, ts)
	p.entry(append(forgotten, store.PutFloor(uint64(p.floor)))...)
}
