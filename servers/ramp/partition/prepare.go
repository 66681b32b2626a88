package partition

import (
	"slices"

	"flashdbm/servers/arena"
	"flashdbm/servers/guard"
	"flashdbm/servers/ramp/protocol"
	"flashdbm/servers/store"
)

// txnState is the state of a transaction at a partition.
type txnState uint8

const (
	prepared txnState = 1 + iota
	committed
	refused
)

// A txn is a transaction about which a client or another partition may still
// ask.
type txn struct {
	ts       Timestamp
	client   uint64
	state    txnState
	hashes   []uint64
	items    []preparedItem // of this partition
	sharers  []sharer       // the other partitions with keys of the transaction
	prepared uint64         // number of its entry
	settled  uint64         // the entry that records the commit or the refusal in the file; 0: none yet
	since    int64          // when it entered its state
	asked    bool
	awaits   bool // the other partitions are asked once its PREPARE is durable
	// inherited: it was prepared when the last life ended, so its keys are not read before its outcome is known.
	inherited bool
	parked    []*parked
}

type preparedItem struct {
	*versions // of the key: active while one of them is prepared
}

// A sharer is another partition of a transaction, and what it has reported.
type sharer struct {
	partition          uint32
	prepared           bool // or committed
	preparedS, settled bool // synced: the PREPARE; the COMMIT
}

// Prepare serves a PREPARE. newest is the timestamp that the client's next one has to exceed; with StatusClock it is
// the partition's time. done may be called later than Prepare returns.
func (p *Partition) Prepare(q *protocol.Prepare, flags protocol.Flags, done func(s protocol.Status, newest Timestamp)) {
	if p.failed != nil {
		done(protocol.StatusUnavailable, 0)
		return
	}
	if t := p.txns[q.TS]; t != nil {
		p.prepareAgain(t, q, done)
		return
	}
	if s := p.ours(q); s != protocol.StatusOK {
		done(s, 0)
		return
	}
	if p.seat != nil && p.seat.lacks() {
		done(protocol.StatusUnavailable, 0)
		return
	}
	if m := q.TS.Milli(); m > p.time+clockWindow || m+clockWindow < p.time { // invariant 4
		p.counts.Refusals++
		done(protocol.StatusClock, protocol.MakeTimestamp(p.time, 0, 0))
		return
	}
	newest := p.floor
	ready := true
	p.touch(q.Parts)
	for i := range q.Parts {
		ts, known := p.latest(p.hashes[i], q.Parts[i].Key)
		ready = ready && known
		newest = max(newest, ts, p.inherited(p.written[i]))
	}
	if !ready {
		kept := q.Clone()
		w := p.park(func() { p.Prepare(kept, flags, done) }, func(s protocol.Status) { done(s, 0) })
		for i := range q.Parts {
			p.await(p.hashes[i], q.Parts[i].Key, w)
		}
		return
	}
	if q.TS <= newest { // it stays refused: newest never decreases
		p.counts.Refusals++
		done(protocol.StatusRefused, newest)
		return
	}
	t, s := p.add(q)
	if s != protocol.StatusOK {
		done(s, 0)
		return
	}
	p.counts.Prepares++
	p.after(t.prepared, func() {
		if flags&protocol.FlagOnePhase != 0 && t.state == prepared {
			p.commit(t)
		}
		done(protocol.StatusOK, newest)
	})
}

// touch finds the active versions of all keys, whose hashes ours has computed, and loads their buckets and items into
// the processor's cache before the first one is read, so that the processor waits for all of them together.
func (p *Partition) touch(parts []protocol.Part) {
	p.written = p.written[:0]
	for _, h := range p.hashes {
		p.touched += p.table.Touch(h)
	}
	for i, h := range p.hashes {
		p.written = append(p.written, p.active.find(h, parts[i].Key))
		if at, ok := p.table.Likely(h); ok {
			p.touched += uint64(p.arena.Touch(arena.Place(at)))
		}
	}
}

// prepareAgain answers a PREPARE with a known timestamp.
func (p *Partition) prepareAgain(t *txn, q *protocol.Prepare, done func(protocol.Status, Timestamp)) {
	if t.client != q.Client || t.state == refused {
		p.counts.Refusals++
		done(protocol.StatusRefused, t.ts)
		return
	}
	p.after(t.prepared, func() { done(protocol.StatusOK, 0) })
}

// ours checks the parts: keys of this partition and of the transaction, each once, in the order of their hashes.
func (p *Partition) ours(q *protocol.Prepare) protocol.Status {
	last := uint64(0)
	p.hashes = p.hashes[:0]
	for i := range q.Parts {
		h := p.hash(q.Parts[i].Key)
		p.hashes = append(p.hashes, h)
		if p.o.Owner(h) != p.o.Partition {
			return protocol.StatusMoved
		}
		if _, ok := slices.BinarySearch(q.Hashes, h); !ok || i > 0 && h <= last {
			return protocol.StatusMalformed
		}
		last = h
	}
	return protocol.StatusOK
}

// latest returns the timestamp of the key's newest committed version, 0 if there is none. known is false if the file
// has to be asked.
func (p *Partition) latest(h uint64, key []byte) (ts Timestamp, known bool) {
	if at, ok := p.table.Find(h, key); ok {
		return Timestamp(p.item(arena.Place(at)).Version), true
	}
	if p.complete {
		return 0, true
	}
	x := p.active.find(h, key)
	return 0, x != nil && x.known
}

// inherited returns the greatest timestamp of a key's versions that were prepared when the last life ended, which may
// have been acknowledged.
func (p *Partition) inherited(x *versions) (ts Timestamp) {
	if x == nil {
		return 0
	}
	for i := range x.prepared {
		if t := p.txns[x.prepared[i].ts]; t != nil && t.inherited {
			ts = max(ts, t.ts)
		}
	}
	return ts
}

// add adds the versions. Without room for all it changes nothing.
func (p *Partition) add(q *protocol.Prepare) (*txn, protocol.Status) {
	meta := protocol.MakeMeta(q.Kind, q.Client, q.Hashes)
	total := 0
	places := p.rooms[:0]
	giveUp := func(s protocol.Status) (*txn, protocol.Status) {
		for _, at := range places {
			p.arena.Retire(at, p.now)
		}
		return nil, s
	}
	for i, x := range p.written { // so that room for one key does not evict another
		if x == nil {
			x = p.active.add(p.hashes[i], q.Parts[i].Key)
			p.written[i] = x
		}
		x.pins++
	}
	defer func() {
		for _, x := range p.written {
			x.pins--
			p.idle(x)
		}
		clear(p.written)
	}()
	for i := range q.Parts {
		k := &q.Parts[i]
		n := guard.Size(len(k.Key), meta.Size(len(k.Value)))
		total += n
		if n > p.arena.MaxItem() || p.seat != nil && !p.seat.log.Fits(total+changesRoom*(len(q.Parts)+1)+8*len(q.Hashes)) {
			return giveUp(protocol.StatusTooLarge)
		}
		at, err := p.room(n)
		if err != nil {
			return giveUp(protocol.StatusFull)
		}
		places = append(places, at)
	}
	p.rooms = places
	if p.o.Store != nil && !p.o.Store.Fits(total) || p.seat != nil && !p.seat.reign.Fits(total) {
		return giveUp(protocol.StatusFull)
	}
	t := &txn{ts: q.TS, client: q.Client, state: prepared, hashes: slices.Clone(q.Hashes), since: p.now, items: make([]preparedItem, 0, len(q.Parts))}
	var changes []store.Change
	for i := range q.Parts {
		k := &q.Parts[i]
		content := meta.AppendContent(p.scratch[:0], k.Value)
		p.scratch = content
		x := p.written[i]
		v := store.Version{TS: uint64(t.ts), Hash: x.hash, Key: x.key, Value: content}
		if k.Removed {
			v.Flags = guard.Removed
		}
		p.place(t, x, &v, places[i])
		if p.o.Store != nil {
			changes = append(changes, store.PutVersion(&v))
		}
	}
	p.share(t)
	if p.o.Store != nil {
		changes = append(changes, p.record(t, store.Prepared))
	}
	t.prepared = p.entry(changes...)
	p.txns[t.ts] = t
	p.asks.add(p.now+askAfter, t.ts)
	return t, protocol.StatusOK
}

// place builds the item of a prepared version.
func (p *Partition) place(t *txn, x *versions, v *store.Version, at arena.Place) {
	n := guard.Size(len(v.Key), len(v.Value))
	guard.Build(p.arena.Bytes(at)[:n], &guard.Item{Flags: v.Flags, Version: v.TS, Key: v.Key, Value: v.Value})
	x.known = true
	x.prepared = append(x.prepared, version{ts: t.ts, place: at})
	t.items = append(t.items, preparedItem{x})
	p.counts.Prepared++
	p.hide(x)
}

// hide makes the slot of a key invalid while a version of the key is prepared, if HidePending was called, and valid
// again.
func (p *Partition) hide(x *versions) {
	if !p.hides {
		return
	}
	if at, ok := p.table.Find(x.hash, x.key); ok && len(x.prepared) > 0 {
		guard.Hide(guard.Bytes(p.arena.Bytes(arena.Place(at))))
	} else if ok {
		p.show(arena.Place(at))
	}
}

// share records which other partitions have keys of the transaction.
func (p *Partition) share(t *txn) {
	for _, h := range t.hashes {
		o := p.o.Owner(h)
		if o != p.o.Partition && !slices.ContainsFunc(t.sharers, func(s sharer) bool { return s.partition == o }) {
			t.sharers = append(t.sharers, sharer{partition: o})
		}
	}
}

// record returns the change that records a transaction's state in the file.
func (p *Partition) record(t *txn, s store.TransactionState) store.Change {
	return store.PutTransaction(&store.Transaction{TS: uint64(t.ts), Client: t.client, State: s, Hashes: t.hashes})
}
