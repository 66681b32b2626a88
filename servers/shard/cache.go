package shard

import (
	"bytes"
	"math"
	"time"

	"flashdbm/servers/arena"
	"flashdbm/servers/guard"
	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/store"
)

// cache has the state that makes the table a cache of the file.
type cache struct {
	complete   bool // the table has all records of the file
	toLoad     bool // the first sweep begins to load
	loading    bool // a piece that begins at loadFrom is under way
	loadFrom   uint64
	loaded     bool   // the load has covered all hashes; complete is set once loadedAt is shown
	loadedAt   uint64 // newest entry at that time
	evicted    bool   // an item was evicted since the load began
	pieceBytes int    // of a load; 0: the store's default. Only the simulator sets it
	stopped    bool   // the load has ended early because memory is full

	fetches  map[string]*fetch
	fetching map[uint64]int // by hash: the number of keys being fetched

	tombs  map[string]uint64 // removed keys, and the seq of their remove, which is not synced or may still be needed
	graves []grave           // the same, in the order of seqs

	waiting int // number of parked requests
	stalls  []stalled
	retried *stalled // the one being retried

	clock  uint64 // the chain at which eviction continues
	places []uint64
	scans  map[uint64]*scan
	ids    uint64 // the last ID given to a piece
}

type grave struct {
	key string
	seq uint64
}

// A fetch is a key that the fetcher is looking up.
type fetch struct{ parked []parked }

// parked is a request that waits for its key's state.
type parked struct {
	r reply
	q *request
}

// A hint is the file's record of a key, valid while the request that receives it is served for the first time.
type hint struct {
	found bool
	rec   store.Record
}

const loadID = 0

func (c *cache) init() {
	c.fetches, c.fetching = map[string]*fetch{}, map[uint64]int{}
	c.tombs, c.scans = map[string]uint64{}, map[uint64]*scan{}
}

// load begins to fill the table from the file.
func (s *Shard) load() {
	s.loading, s.loadFrom = true, 0
	s.o.Store.Load(loadID, 0, math.MaxUint64, s.pieceBytes)
}

// park keeps a request until the file has answered for its key.
func (s *Shard) park(h uint64, key []byte, r reply, q request) {
	f := s.fetches[string(key)]
	if f == nil {
		f = &fetch{}
		k := bytes.Clone(key)
		s.fetches[string(k)] = f
		s.fetching[h]++
		s.o.Store.Fetch(h, k)
	}
	f.parked = append(f.parked, parked{r, q.keep()})
	s.waiting++
}

// AwaitsFile reports whether requests wait for the file: for the lookup of a key, or, in a shard without replicas,
// for the sync of an entry.
func (s *Shard) AwaitsFile() bool {
	return s.waiting > 0 || s.o.Durability == Sync && s.o.Log == nil && len(s.pending) > 0
}

// arrivals handles the answers of the store.
func (s *Shard) arrivals() (worked bool) {
	if s.o.Store == nil || s.failed != nil {
		return false
	}
	if s.toLoad {
		s.toLoad = false
		s.load()
	}
	if !s.o.Store.Brought() {
		return false
	}
	for _, f := range s.o.Store.Fetches() {
		s.fetched(&f)
	}
	for _, p := range s.o.Store.Pieces() {
		if p.ID == loadID {
			s.pieceLoaded(&p)
		} else {
			s.pieceScanned(&p)
		}
	}
	s.commit()
	return true
}

func (s *Shard) fetched(f *store.Fetched) {
	list := s.fetches[string(f.Key)].parked
	s.waiting -= len(list)
	if e := s.pendingFor(f.Hash, f.Key); e != nil {
		// The file may be ahead: its record, or the lack of one, may not be committed.
		for _, p := range list {
			s.wait(e.seq, waiter{r: p.r, again: p.q})
		}
		s.fetchDone(f)
		return
	}
	if !s.has(f.Hash, f.Key) && f.Found && s.serves(f.Hash) == protocol.StatusOK {
		s.installRecord(f.Hash, &f.Record)
	}
	for _, p := range list {
		s.request(p.r, p.q.op, p.q.flags, p.q.body, &hint{f.Found, f.Record})
	}
	s.fetchDone(f) // after the requests, because until then the key is not evicted
}

func (s *Shard) fetchDone(f *store.Fetched) {
	delete(s.fetches, string(f.Key))
	if s.fetching[f.Hash]--; s.fetching[f.Hash] == 0 {
		delete(s.fetching, f.Hash)
	}
}

// has reports whether the shard knows the key's state without the file.
func (s *Shard) has(h uint64, key []byte) bool {
	if _, gone := s.tombs[string(key)]; gone {
		return true
	}
	_, ok := s.table.Find(h, key)
	return ok
}

// installRecord puts a record of the file into the table, if there is room without evicting items in use.
func (s *Shard) installRecord(h uint64, r *store.Record) bool {
	it := guard.Item{Flags: r.Flags, Version: r.Version, Expiry: r.Expiry, Key: r.Key, Value: r.Value}
	n := guard.Size(len(it.Key), len(it.Value))
	p, err := s.room(n)
	if err != nil {
		return false
	}
	b := s.arena.Bytes(p)[:n]
	guard.Show(b, guard.Build(b, &it))
	s.table.Insert(h, uint64(p))
	if it.Expiry != 0 {
		s.expiring++
	}
	return true
}

func (s *Shard) pieceLoaded(p *store.Piece) {
	for i := range p.Records {
		r, h := &p.Records[i], p.Hashes[i]
		if s.seqOf(r.Version) > s.shown || s.pendingFor(h, r.Key) != nil || s.has(h, r.Key) || s.wasDropped(h, p.Since) {
			continue // a pending entry will be shown; the table's state is newer
		}
		n := guard.Size(len(r.Key), len(r.Value))
		if s.arena.Live()+s.arena.Dead()+int64(2*n) > s.arena.Capacity()-s.arena.Capacity()/8 && s.o.Arena.Limit > 0 || !s.installRecord(h, r) {
			s.stopped = true
			break
		}
	}
	s.loading = false
	defer s.forgetDrops()
	switch {
	case s.stopped:
	case p.Last == math.MaxUint64:
		s.loaded, s.loadedAt = true, s.seq
		s.completed()
	default:
		s.loading, s.loadFrom = true, p.Last+1
		s.o.Store.Load(loadID, p.Last+1, math.MaxUint64, s.pieceBytes)
	}
}

// completed sets complete if the load has ended and all its conditions hold.
func (s *Shard) completed() {
	if s.loaded && !s.evicted && s.shown >= s.loadedAt {
		s.complete, s.loaded = true, false
	}
}

// pinned reports whether a fetch or a piece that covers the key is under way, and may have been read before now.
func (s *Shard) pinned(h uint64) bool {
	if s.fetching[h] > 0 || s.loading && h >= s.loadFrom || s.walked(h) {
		return true
	}
	for _, q := range s.scans {
		if q.First <= h && h <= q.Last {
			return true
		}
	}
	return false
}

// remember records that the key has no value.
func (s *Shard) remember(e *entry) {
	if s.o.Store == nil {
		return
	}
	s.tombs[string(e.key)] = e.seq
	s.graves = append(s.graves, grave{string(e.key), e.seq})
}

// forgetRemoves forgets removes that are synced, if no older state of the key can still come from the
// file.
func (s *Shard) forgetRemoves() {
	for len(s.graves) > 0 {
		g := s.graves[0]
		if s.tombs[g.key] == g.seq {
			if s.o.Store.Durable() < g.seq || s.pinned(s.hash([]byte(g.key))) {
				return
			}
			delete(s.tombs, g.key)
		}
		s.graves[0] = grave{}
		s.graves = s.graves[1:]
	}
	s.graves = nil
}

// A stalled request is a write for which there is no memory now: nothing can be evicted before it is synced, or
// before its lease ends. Nothing is polled while there are stalled requests.
type stalled struct {
	r     reply
	q     *request
	until int64
}

// stallTime is how long a write waits for memory before it is refused. It is above the second by which the file may
// be behind.
const stallTime = int64(1500 * time.Millisecond)

// stall keeps a write that found no memory, to retry it in the next sweep. It returns false if waiting would not
// help, or if the write has waited for stallTime.
func (s *Shard) stall(r reply, q request) bool {
	if s.o.Store == nil || s.o.Store.Full() {
		return false
	}
	until := s.now + stallTime
	if s.retried != nil {
		if until = s.retried.until; s.now >= until {
			return false
		}
	}
	s.stalls = append(s.stalls, stalled{r, q.keep(), until})
	return true
}

// retry serves the stalled writes again, until one finds no memory.
func (s *Shard) retry() (worked bool) {
	list := s.stalls
	s.stalls = nil
	for i := range list {
		if len(s.stalls) > 0 {
			s.stalls = append(s.stalls, list[i])
			continue
		}
		s.retried = &list[i]
		s.request(list[i].r, list[i].q.op, list[i].q.flags, list[i].q.body, nil)
		s.retried = nil
		worked = worked || len(s.stalls) == 0
	}
	return worked
}

const usedMark = 1

// evict passes over the table with a clock hand (the CLOCK algorithm), until at least n bytes have become free or
// the hand has passed all chains. Items used since the hand last passed them stay.
func (s *Shard) evict(n int) (any bool) {
	if s.o.Store == nil && (!s.o.Evict || s.passive()) {
		return false
	}
	was := s.arena.Live()
	for range 2 * s.table.Buckets() {
		if was-s.arena.Live() >= int64(2*n) {
			return true
		}
		s.clock = (s.clock + 1) % s.table.Buckets()
		for _, p := range s.table.Chain(s.clock, nil) {
			if s.evictOne(arena.Place(p)) {
				any = true
				if s.o.Store == nil {
					break // showing a remove may let a request continue, which changes the chain
				}
			}
		}
	}
	return any
}

func (s *Shard) evictOne(p arena.Place) bool {
	if m := s.arena.Mark(p); m&usedMark != 0 {
		s.arena.SetMark(p, m&^usedMark)
		return false
	}
	it := s.item(p)
	h := s.hash(it.Key)
	if s.arena.Lease(p) > s.now || s.pendingFor(h, it.Key) != nil {
		return false
	}
	if s.out != nil {
		if _, changed := s.out.changed[string(it.Key)]; changed {
			return false // the new owner receives the state in memory
		}
	}
	if s.o.Store == nil {
		if s.serves(h) != protocol.StatusOK {
			return false
		}
		s.appendEnd(h, &it)
		return s.commit()
	}
	if max(s.seqOf(it.Version), s.settles) > s.o.Store.Durable() || s.pinned(h) {
		return false
	}
	guard.Hide(guard.Bytes(s.arena.Bytes(p)))
	s.table.Remove(h, uint64(p))
	if it.Expiry != 0 {
		s.expiring--
	}
	s.arena.Retire(p, s.now)
	s.complete, s.evicted = false, true
	return true
}
