package shard

import (
	"bytes"
	"math/bits"
	"slices"
	"time"

	"flashdbm/servers/arena"
	"flashdbm/servers/guard"
	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/store"
)

func (s *Shard) get(r reply, h uint64, q *protocol.Request, again request, hi *hint) {
	if status := s.serves(h); status != protocol.StatusOK {
		s.refuse(r, status)
		return
	}
	if s.unsure() {
		s.refuse(r, protocol.StatusUnavailable)
		return
	}
	st := s.shownState(h, q.Key, hi)
	switch {
	case !st.known:
		s.park(h, q.Key, r, again)
		return
	case st.expired:
		if e := s.pendingFor(h, q.Key); e != nil {
			s.wait(e.seq, waiter{r: r, again: again.keep()})
			return
		}
		seq := s.appendEnd(h, &st.item)
		s.commit()
		s.wait(seq, waiter{r: r, status: protocol.StatusNotFound})
		return
	case !st.found:
		s.refuse(r, protocol.StatusNotFound)
		return
	}
	if r.parts != nil {
		if st.placed {
			s.arena.Hit(st.place)
			s.arena.SetMark(st.place, usedMark)
		}
		r.parts.Read(r.part, protocol.ItemFlags(st.item.Flags>>itemFlagShift), st.item.Version, st.item.Expiry, st.item.Value)
		return
	}
	a := protocol.Item{
		Version: st.item.Version, Expiry: st.item.Expiry, ItemFlags: protocol.ItemFlags(st.item.Flags >> itemFlagShift), Value: st.item.Value,
	}
	flags := protocol.Flags(0)
	if st.placed {
		hits := s.arena.Hit(st.place)
		s.arena.SetMark(st.place, usedMark)
		if q.Flags&protocol.FlagPointer != 0 && s.points(h, uint64(st.place)) {
			if lease := s.lease(&st, hits); lease > 0 {
				flags, a.HasPointer = protocol.FlagPointer, true
				a.Pointer = protocol.Pointer{
					Term: s.term, Offset: st.place.Offset(), Extent: st.place.Extent(),
					Length: uint32(guard.Size(len(st.item.Key), len(st.item.Value))), Lease: lease, Tenure: s.tenureLeft(),
				}
			}
		}
	}
	s.end(r, flags, protocol.StatusOK, a.AppendBody(s.begin(r, a.BodySize())))
}

// lease extends the lease of a shown item that has been used hits times, and returns its length in microseconds; 0 if
// the item lasts for less than a microsecond.
func (s *Shard) lease(st *state, hits uint32) uint32 {
	length := int64(time.Second) << min(6, bits.Len64(uint64(hits)+1)-1)
	if s.arena.Pressed() {
		length = int64(time.Second)
	}
	if st.item.Expiry != 0 {
		length = min(length, int64(min(st.item.Expiry-s.wall, 1<<32))*int64(time.Millisecond))
	}
	us := micros(length)
	if us > 0 {
		s.arena.Extend(st.place, s.now+length)
	}
	return us
}

func (s *Shard) renew(r reply, body []byte) {
	n, err := protocol.CheckRenew(body)
	if err == nil && s.unsure() {
		s.refuse(r, protocol.StatusUnavailable)
		return
	}
	if err != nil {
		s.refuse(r, protocol.StatusMalformed)
		return
	}
	a := protocol.Renewed{Term: s.term, Tenure: s.tenureLeft(), Leases: make([]uint32, 0, n)}
	for k := range protocol.Renewals(body) {
		us := uint32(0)
		h := s.hash(k.Key)
		if p, ok := s.table.Find(h, k.Key); ok {
			st := state{item: s.item(arena.Place(p)), place: arena.Place(p)}
			if st.item.Version == k.Version && !s.isExpired(&st.item) && s.serves(h) == protocol.StatusOK && s.points(h, p) {
				s.arena.SetMark(st.place, usedMark)
				us = s.lease(&st, s.arena.Hit(st.place))
			}
		}
		a.Leases = append(a.Leases, us)
	}
	s.end(r, 0, protocol.StatusOK, a.AppendBody(s.begin(r, 16+4*n)))
}

// Limits of a scan's answer: items and bytes.
const (
	scanItems = 1000
	scanBytes = 256 << 10
)

// A scan waits for a piece of the file.
type scan struct {
	protocol.Scan
	r     reply
	flags protocol.Flags
	upTo  uint64 // the Last of the request; Scan.Last is the last hash of this shard up to there
}

func (s *Shard) scan(r reply, flags protocol.Flags, body []byte) {
	q := &scan{r: r, flags: flags}
	if err := q.Parse(body); err != nil {
		s.refuse(r, protocol.StatusMalformed)
		return
	}
	if s.unsure() {
		s.refuse(r, protocol.StatusUnavailable)
		return
	}
	q.upTo = q.Last
	last, status := s.servesFrom(q.First, q.Last)
	if status != protocol.StatusOK {
		s.refuse(r, status)
		return
	}
	q.Last = last
	if q.Items == 0 || q.Items > scanItems {
		q.Items = scanItems
	}
	if q.Bytes == 0 || q.Bytes > scanBytes {
		q.Bytes = scanBytes
	}
	if !s.complete {
		s.ids++
		s.scans[s.ids] = q
		s.o.Store.Load(s.ids, q.First, q.Last, int(q.Bytes))
		return
	}
	out := scanAnswer{q: q, body: protocol.AppendScanStart(nil)}
	for from := q.First; ; {
		list, last := s.chain(from, q.Last)
		if next, ok := out.addAll(list, s.isExpired); !ok {
			s.endScan(&out, next, true)
			return
		}
		if last == q.Last {
			s.endScan(&out, q.Last+1, q.Last < q.upTo)
			return
		}
		from = last + 1
	}
}

// hashed is an item and the hash of its key.
type hashed struct {
	hash uint64
	guard.Item
}

// chain returns the shown items with from <= hash <= most in the table's chain of from, in the order of hashes, and
// the last hash covered.
func (s *Shard) chain(from, most uint64) (list []hashed, last uint64) {
	s.places, last = s.table.Scan(from, s.places[:0])
	last = min(last, most)
	for _, p := range s.places {
		it := s.item(arena.Place(p))
		if h := s.hash(it.Key); from <= h && h <= last {
			list = append(list, hashed{h, it})
		}
	}
	slices.SortFunc(list, byHash)
	return list, last
}

func byHash(a, b hashed) int {
	switch {
	case a.hash < b.hash:
		return -1
	case a.hash > b.hash:
		return 1
	}
	return bytes.Compare(a.Key, b.Key)
}

type scanAnswer struct {
	q    *scan
	body []byte
	n    int
}

// addAll adds items, in the order of hashes, until the answer is long enough; it does not separate items of one hash.
// If some did not fit, ok is false and next is the first hash that is missing.
func (a *scanAnswer) addAll(list []hashed, skip func(*guard.Item) bool) (next uint64, ok bool) {
	for i := range list {
		it := &list[i]
		if skip(&it.Item) {
			continue
		}
		c := protocol.Scanned{
			Version: it.Version, Expiry: it.Expiry, ItemFlags: protocol.ItemFlags(it.Flags >> itemFlagShift), Key: it.Key, Value: it.Value,
		}
		if a.q.flags&protocol.FlagKeysOnly != 0 || c.ItemFlags&protocol.ItemChunk != 0 {
			c.Value = nil
		}
		long := a.n >= int(a.q.Items) || len(a.body)+len(c.Key)+len(c.Value) >= int(a.q.Bytes)
		if long && a.n > 0 && (i == 0 || list[i-1].hash != it.hash) {
			return it.hash, false
		}
		a.body = c.AppendBody(a.body)
		a.n++
	}
	return 0, true
}

// dropScans forgets scans that wait for a piece of the file, and withdraws their loads.
func (s *Shard) dropScans(gone func(*scan) bool) {
	ids := map[uint64]bool{}
	for id, q := range s.scans {
		if gone(q) {
			ids[id] = true
			delete(s.scans, id)
		}
	}
	if len(ids) > 0 {
		s.o.Store.Unload(func(id uint64) bool { return ids[id] })
	}
}

func (s *Shard) endScan(a *scanAnswer, next uint64, more bool) {
	flags := protocol.Flags(0)
	if more {
		flags = protocol.FlagMore
		protocol.SetScanNext(a.body, next)
	}
	s.end(a.q.r, flags, protocol.StatusOK, append(s.begin(a.q.r, len(a.body)), a.body...))
}

// pieceScanned answers a scan from a piece of the file and the table's content of that range. If the file was ahead,
// the scan starts again once its entries are committed.
func (s *Shard) pieceScanned(p *store.Piece) {
	if s.pieceForCopy(p) || s.pieceForWalk(p) {
		return
	}
	q := s.scans[p.ID]
	if q == nil {
		return // it was refused meanwhile
	}
	if s.unsure() {
		delete(s.scans, p.ID)
		s.refuse(q.r, protocol.StatusUnavailable)
		return
	}
	if last, status := s.servesFrom(p.First, p.Last); status != protocol.StatusOK || last < p.Last {
		delete(s.scans, p.ID)
		s.refuse(q.r, max(status, protocol.StatusUnavailable)) // the range has moved, or begun to
		return
	}
	if p.Applied > s.shown {
		q.Last = q.upTo
		s.wait(p.Applied, waiter{r: q.r, again: &request{op: protocol.OpScan, flags: q.flags, body: q.AppendBody(nil), own: true}})
		delete(s.scans, p.ID)
		return
	}
	delete(s.scans, p.ID)
	var list []hashed
	for i := range p.Records {
		if r := &p.Records[i]; !s.has(p.Hashes[i], r.Key) {
			list = append(list, hashed{p.Hashes[i], guard.Item{Flags: r.Flags, Version: r.Version, Expiry: r.Expiry, Key: r.Key, Value: r.Value}})
		}
	}
	for from := p.First; ; {
		part, last := s.chain(from, p.Last)
		list = append(list, part...)
		if last == p.Last {
			break
		}
		from = last + 1
	}
	slices.SortFunc(list, byHash)
	out := scanAnswer{q: q, body: protocol.AppendScanStart(nil)}
	if next, ok := out.addAll(list, s.isExpired); !ok {
		s.endScan(&out, next, true)
		return
	}
	s.endScan(&out, p.Last+1, p.Last < q.upTo)
}
