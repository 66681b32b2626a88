package hydra

import (
	"bytes"

	"flashdbm/servers/fabric"
	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/wire"
)

// flagShift is the position of the protocol's flags among an item's: the bit below says that the item is a remove.
const flagShift = 1

// learn keeps the pointer of an answer, if it has a lease.
func (e *engine) learn(s *shard, c *call, i *protocol.Item) {
	at := i.Pointer
	if at.Length > readSize || at.Lease == 0 || c.sentWall != e.wall {
		return
	}
	e.reign(s, at.Term, c.sent, at.Tenure)
	x := s.extents[at.Extent]
	if x == nil || x.term != at.Term {
		x = e.askExtent(s, at.Extent, at.Term)
	}
	e.cache.put(&pointer{
		hash: c.hash, key: bytes.Clone(c.key), version: i.Version, offset: at.Offset, length: at.Length, shard: s, extent: x,
		begin: c.sent, end: lasting(c.sent, at.Lease), wall: e.wall,
	})
}

// reign records the tenure of a reign, and the end of an older reign.
func (e *engine) reign(s *shard, term uint64, sent int64, micros uint32) {
	switch {
	case term < s.term:
	case term > s.term:
		s.term, s.tenure = term, lasting(sent, micros)
	default:
		s.tenure = max(s.tenure, lasting(sent, micros))
	}
	s.show()
}

// askExtent requests the fabric's key of an extent.
func (e *engine) askExtent(s *shard, number uint32, term uint64) *extent {
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
		x.key = fabric.Key{ID: k[0], Rkey: k[1], Nonce: k[2], Base: k[3], Len: k[4]}
		x.known.Store(true)
	}})
	return x
}

// readOneSided posts a Read for the call if there is a valid pointer, and room.
func (e *engine) readOneSided(c *call) bool {
	s := c.shard
	if s.sided == nil {
		return false
	}
	p := e.cache.get(c.hash)
	if p == nil || p.shard != s {
		return false
	}
	now := e.look()
	n := s.net
	if !e.counts(p, s.sight.Load(), now) || len(n.places) == 0 {
		return false
	}
	place := n.places[len(n.places)-1]
	if err := s.sided.Read(n.land, place*readSize, uint64(p.length), p.extent.key, p.offset, place); err != nil {
		return false
	}
	n.places = n.places[:len(n.places)-1]
	n.under[place] = c
	c.reading = p
	p.note(now)
	return true
}

// readsDone handles the Reads that the group has found complete. It is called after the group's Step and after its
// Arm, because the group reports them only until its next Step.
func (e *engine) readsDone(n *network) (worked bool) {
	for _, d := range n.group.Done() {
		e.readDone(n, d)
		worked = true
	}
	return worked
}

// readDone handles a completed Read.
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
	e.look()
	if d.Err == nil && e.accept(c, p, n.land.Bytes()[place*readSize:][:p.length], e.now) {
		e.finish(c, nil)
		return
	}
	e.refuse(p)
	e.route(c) // by message, because the pointer is gone, and to another shard if the key has moved
}

// askRenewals requests longer leases of pointers that were used twice, and a tenure while Reads are made.
func (e *engine) askRenewals(s *shard) {
	if s.conn == nil || s.asked || !s.renew.any() && !(s.used.Load() && s.tenure-e.now < int64(tenureAhead)) {
		return
	}
	list := s.renew.take(protocol.MaxRenew)
	s.asked = true
	s.used.Store(false)
	body := []byte{}
	for i, p := range list {
		if len(body) > 1<<20 { // the others are requested next time
			s.renew.add(list[i:]...)
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
			if got.Leases[i] == 0 || got.Term != p.extent.term {
				e.cache.drop(p)
				continue
			}
			q := &pointer{
				hash: p.hash, key: p.key, version: p.version, offset: p.offset, length: p.length, shard: s, extent: p.extent,
				begin: c.sent, end: lasting(c.sent, got.Leases[i]), wall: e.wall,
			}
			q.end = max(q.end, p.end)
			e.cache.put(q)
		}
	}})
}

// tenureAhead is how long before its end, in nanoseconds, a tenure is renewed: longer than a Tick and an answer take.
const tenureAhead = 500e6
