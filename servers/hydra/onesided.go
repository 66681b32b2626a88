package hydra

import (
	"bytes"

	"flashdbm/servers/fabric"
	"flashdbm/servers/guard"
	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/wire"
)

// flagShift is where the flags that travel in messages begin in an item's: the lower one says that the item is a remove.
const flagShift = 1

// learn keeps the pointer that came with an answer, if it lasts at all.
func (e *engine) learn(s *shard, c *call, i *protocol.Item) {
	at := i.Pointer
	if at.Length > readSize || at.Lease == 0 || c.sentWall != e.wall {
		return
	}
	e.reign(s, at.Term, c.sent, at.Tenure)
	p := &pointer{
		hash: c.hash, key: bytes.Clone(c.key), version: i.Version, at: at, shard: s,
		begin: c.sent, end: lasting(c.sent, at.Lease), wall: e.wall,
	}
	e.cache.put(p)
	if x := s.extents[at.Extent]; x == nil || x.term != at.Term {
		e.askExtent(s, at.Extent, at.Term)
	}
}

// reign takes the tenure that a reign has left, and what a new reign ends.
func (e *engine) reign(s *shard, term uint64, sent int64, micros uint32) {
	switch {
	case term < s.term:
	case term > s.term:
		s.term, s.tenure = term, lasting(sent, micros)
	default:
		s.tenure = max(s.tenure, lasting(sent, micros))
	}
}

// askExtent asks for the fabric's key of an extent.
func (e *engine) askExtent(s *shard, number uint32, term uint64) {
	x := &extent{term: term}
	s.extents[number] = x
	r := protocol.Request{Op: protocol.OpExtent, Extent: number}
	e.start(&call{op: protocol.OpExtent, shard: s, body: r.AppendBody(nil), internal: func(_ *engine, _ *call, m wire.Message) {
		var got protocol.Extent
		if protocol.Status(m.Status) != protocol.StatusOK || got.Parse(m.Body) != nil || got.Term != term {
			if s.extents[number] == x {
				delete(s.extents, number)
			}
			return
		}
		k := got.Key
		x.key, x.known = fabric.Key{ID: k[0], Rkey: k[1], Nonce: k[2], Base: k[3], Len: k[4]}, true
	}})
}

// readOneSided posts a Read for the call if there is a pointer that counts, and room.
func (e *engine) readOneSided(c *call) bool {
	s := c.shard
	if s.sided == nil {
		return false
	}
	p := e.cache.get(c.hash)
	if p == nil || p.shard != s || !bytes.Equal(p.key, c.key) {
		return false
	}
	now := e.look()
	if now >= p.end {
		e.cache.drop(p)
		return false
	}
	if p.at.Term != s.term || now >= s.tenure { // rule 1: before the Read is posted
		if p.at.Term < s.term {
			e.cache.drop(p)
		}
		s.used = true // so that a tenure is asked for
		return false
	}
	x := s.extents[p.at.Extent]
	n := s.net
	if x == nil || !x.known || x.term != p.at.Term || len(n.places) == 0 {
		return false
	}
	place := n.places[len(n.places)-1]
	if err := s.sided.Read(n.land, place*readSize, uint64(p.at.Length), x.key, p.at.Offset, place); err != nil {
		return false
	}
	n.places = n.places[:len(n.places)-1]
	n.under[place] = c
	c.reading = p
	s.used = true
	if uses := p.uses.Add(1); uses >= 2 && now-p.begin > (p.end-p.begin)/2 && p.renewed.CompareAndSwap(false, true) {
		s.renew = append(s.renew, p)
	}
	return true
}

// readDone looks at what a Read has brought.
func (e *engine) readDone(n *network, d wire.ReadDone) {
	place := d.Token
	c := n.under[place]
	n.under[place] = nil
	n.places = append(n.places, place)
	p := c.reading
	c.reading = nil
	if c.abandoned {
		e.finish(c, nil)
		return
	}
	if d.Err == nil && e.look() < p.end && p.wall == e.wall { // rules 2 and 5: after the completion
		b := n.land.Bytes()[place*readSize:][:p.at.Length]
		if it, err := guard.Verify(b, c.key); err == nil { // rule 3
			e.oneSided++
			c.version, c.expires, c.itemFlags = it.Version, it.Expiry, protocol.ItemFlags(it.Flags>>flagShift)
			c.out = append(c.dst, it.Value...)
			e.finish(c, nil)
			return
		}
	}
	e.refused++
	e.cache.drop(p)
	e.route(c) // by message, as the pointer is gone, and to another shard if the key has moved
}

// renewals asks for longer leases of what was used twice, and for a tenure while Reads are made.
func (e *engine) renewals(s *shard) {
	if s.conn == nil || s.asked || len(s.renew) == 0 && !(s.used && s.tenure-e.now < int64(tenureAhead)) {
		return
	}
	list := s.renew
	if len(list) > protocol.MaxRenew {
		list = list[:protocol.MaxRenew]
	}
	s.renew = append([]*pointer(nil), s.renew[len(list):]...)
	s.asked, s.used = true, false
	body := []byte{}
	for i, p := range list {
		if len(body) > 1<<20 { // the rest next time
			s.renew = append(s.renew, list[i:]...)
			list = list[:i]
			break
		}
		body = protocol.AppendRenew(body, p.version, p.key)
	}
	e.start(&call{op: protocol.OpRenew, shard: s, body: body, internal: func(e *engine, c *call, m wire.Message) {
		s.asked = false
		var got protocol.Renewed
		if protocol.Status(m.Status) != protocol.StatusOK || got.Parse(m.Body) != nil || len(got.Leases) != len(list) ||
			c.sentWall != e.wall {
			return
		}
		e.reign(s, got.Term, c.sent, got.Tenure)
		for i, p := range list {
			if got.Leases[i] == 0 || got.Term != p.at.Term {
				e.cache.drop(p)
				continue
			}
			q := &pointer{
				hash: p.hash, key: p.key, version: p.version, at: p.at, shard: s, begin: c.sent, end: lasting(c.sent, got.Leases[i]), wall: e.wall,
			}
			q.end = max(q.end, p.end)
			e.cache.put(q)
		}
	}})
}

// tenureAhead is how long before its end, in nanoseconds, a tenure is asked for anew. It is above what a Tick and an answer take.
const tenureAhead = 500e6
