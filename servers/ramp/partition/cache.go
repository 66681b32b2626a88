package partition

import (
	"errors"

	"flashdbm/servers/arena"
	"flashdbm/servers/guard"
	"flashdbm/servers/ramp/protocol"
	"flashdbm/servers/store"
)

// The mark of a slot says whether CLOCK may evict it: each use sets bit 0, and the others are the low bits of the
// entry after which the file has the version as committed. markKept stands for an entry that does not exist yet.
const (
	markUsed = 1
	markKept = 1<<32 - 2
)

func markOf(seq uint64) uint32 {
	if m := uint32(seq) << 1; m != markKept {
		return m
	}
	return uint32(seq+1) << 1
}

// parked is a request that waits until keys are known, or transactions decided.
type parked struct {
	missing int
	run     func()
	fail    func(s protocol.Status)
	pins    []*versions // of keys that stay known until the request has run
	failed  bool
}

func (p *Partition) park(run func(), fail func(s protocol.Status)) *parked {
	p.waiting++
	return &parked{run: run, fail: fail}
}

// resume ends one wait of each request in the list, and runs the requests that wait for nothing else.
func (p *Partition) resume(list *[]*parked) {
	all := *list
	*list = nil
	for _, w := range all {
		if w.missing--; w.missing > 0 || w.failed {
			continue
		}
		p.waiting--
		w.run()
		p.unpin(w)
	}
}

func (p *Partition) unpin(w *parked) {
	for _, x := range w.pins {
		x.pins--
		p.idle(x)
	}
}

// await keeps a key in memory until the request has run, and fetches it from the file if it is not there. Keys that
// are there are kept, too: otherwise two keys of the request could evict each other for ever.
func (p *Partition) await(h uint64, key []byte, w *parked) {
	_, known := p.latest(h, key)
	x := p.versionsOf(h, key)
	w.pins = append(w.pins, x)
	x.pins++
	if known {
		return
	}
	w.missing++
	x.parked = append(x.parked, w)
	if !x.fetching {
		x.fetching = true
		p.counts.Fetches++
		p.o.Store.Fetch(h, x.key)
	}
}

// arrivals handles the answers of the store.
func (p *Partition) arrivals() (worked bool) {
	if p.o.Store == nil {
		return false
	}
	if p.o.Store.Brought() {
		p.brought = append(p.brought, p.o.Store.Fetches()...)
	}
	for len(p.brought) > 0 && p.failed == nil {
		if !p.arrived(&p.brought[0]) { // wait until there is room
			if p.fullSince == 0 {
				p.fullSince = p.now
			}
			if p.now-p.fullSince < fullTime {
				break
			}
			if p.failLarge() {
				continue
			}
			break
		}
		p.fullSince = 0
		p.brought[0] = store.Fetched{}
		p.brought = p.brought[1:]
		worked = true
	}
	return worked
}

// failLarge fails a request that keeps other keys in memory while it waits for a key for which there is no room:
// several such requests may together need more memory than there is, and none of them could continue. The client
// then asks for fewer keys at once. failLarge reports whether there was such a request.
func (p *Partition) failLarge() bool {
	for i := range p.brought {
		for _, w := range p.active.find(p.brought[i].Hash, p.brought[i].Key).parked {
			if len(w.pins) > 1 && !w.failed {
				w.failed = true
				p.waiting--
				w.fail(protocol.StatusFull)
				p.unpin(w)
				return true
			}
		}
	}
	return false
}

// arrived puts a fetched version into its slot, and resumes the requests that have waited for it. It returns false if
// there is no room.
func (p *Partition) arrived(f *store.Fetched) bool {
	if f.Found && !p.load(&store.Version{TS: f.Version, Hash: f.Hash, Flags: f.Flags, Key: f.Key, Value: f.Value, Older: f.Older}) {
		return false
	}
	x := p.active.find(f.Hash, f.Key)
	x.fetching, x.known = false, true
	p.resume(&x.parked)
	p.idle(x)
	return true
}

// load puts the newest committed version of a key in the file into a slot, and deletes older ones, which a crash has
// left in the file: otherwise one of them would become the newest when this one is dropped. It returns false if
// there is no room.
func (p *Partition) load(v *store.Version) bool {
	at, err := p.room(guard.Size(len(v.Key), len(v.Value)))
	if err != nil {
		return false
	}
	p.loadAt(v, at)
	return true
}

// loadAt does what load does, with a given block.
func (p *Partition) loadAt(v *store.Version, at arena.Place) {
	b := p.arena.Bytes(at)[:guard.Size(len(v.Key), len(v.Value))]
	guard.Show(b, guard.Build(b, &guard.Item{Flags: v.Flags, Version: v.TS, Key: v.Key, Value: v.Value}))
	p.table.Insert(v.Hash, uint64(at))
	if v.Flags&guard.Removed != 0 {
		p.removed.add(p.now+versionTime, removedKey{v.Key, v.Hash, Timestamp(v.TS)})
	}
	if p.o.Shown != nil {
		p.o.Shown(v.Key, Timestamp(v.TS))
	}
	p.inFile(Timestamp(v.TS))
	var drop []store.Change
	for _, ts := range v.Older {
		drop = append(drop, store.DropVersion(v.Hash, v.Key, ts))
		p.horizon = max(p.horizon, Timestamp(ts))
	}
	if drop != nil {
		p.entry(drop...)
	}
	p.arena.SetMark(at, markOf(p.seq)|markUsed)
}

// room returns a block for an item of n bytes. If none is free, it evicts slots that the file has.
func (p *Partition) room(n int) (arena.Place, error) {
	at, err := p.arena.Alloc(n)
	if p.o.Store == nil {
		return at, err
	}
	for range 4 {
		if err == nil || !errors.Is(err, arena.ErrFull) || !p.evict(4*n) {
			return at, err
		}
		at, err = p.arena.Alloc(n)
	}
	return at, err
}

// roomBeyond returns a block for a version left from the last life, above the limit of memory if necessary: otherwise
// a table might not open with the memory limit that it had before.
func (p *Partition) roomBeyond(n int) (arena.Place, error) {
	at, err := p.arena.Alloc(n)
	if errors.Is(err, arena.ErrFull) {
		return p.arena.AllocBeyond(n)
	}
	return at, err
}

// evict gives up slots that were not used since the hand last passed, until at least bytes bytes are free. It reports
// whether there were any.
func (p *Partition) evict(bytes int) bool {
	freed := 0
	for range 3 * p.table.Buckets() {
		p.hand = (p.hand + 1) % p.table.Buckets()
		p.places = p.table.Chain(p.hand, p.places[:0])
		for _, place := range p.places {
			at := arena.Place(place)
			m := p.arena.Mark(at)
			if m&markUsed != 0 {
				p.arena.SetMark(at, m&^markUsed)
				continue
			}
			b := guard.Bytes(p.arena.Bytes(at))
			key := guard.Parse(b).Key
			if m == markKept || int32(uint32(p.o.Store.Applied())<<1-m) < 0 || p.active.find(p.hash(key), key) != nil {
				continue // invariants 12 and 13
			}
			freed += len(b)
			p.giveUp(at)
			p.complete = false
			p.counts.Evictions++
		}
		if freed >= bytes {
			return true
		}
	}
	return freed > 0
}

// giveUp frees a slot.
func (p *Partition) giveUp(at arena.Place) {
	b := guard.Bytes(p.arena.Bytes(at))
	guard.Hide(b)
	p.table.Remove(p.hash(guard.Parse(b).Key), uint64(at))
	p.arena.Retire(at, p.now)
}
