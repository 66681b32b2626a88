package hydra

import (
	"fmt"

	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/wire"
)

// answered handles one message of a shard.
func (e *engine) answered(s *shard, m wire.Message) {
	if e.circle != nil && m.MapVersion > e.m.Version {
		e.stale = true
	}
	s.heard = e.now
	slot, gen := uint32(m.Request), uint32(m.Request>>32)
	if int64(slot) >= int64(len(e.slots)) || e.slots[slot] == nil || e.gens[slot] != gen || e.slots[slot].conn != s.conn {
		return // no such request: shards send no unsolicited messages
	}
	c := e.slots[slot]
	if protocol.Op(m.Op) != c.op {
		e.broken(s, fmt.Errorf("%w: a %v is answered by a %v", protocol.ErrMalformed, c.op, protocol.Op(m.Op)))
		return
	}
	if c.internal != nil {
		e.leave(c)
		c.internal(e, c, m)
		return
	}
	if c.abandoned {
		e.finish(c, nil)
		return
	}
	status := protocol.Status(m.Status)
	switch status {
	case protocol.StatusMoved, protocol.StatusUnavailable:
		// The shard has not applied this try. If it was the only try, the next one may go to another shard, with a
		// new number. An earlier try may have been applied by an earlier primary; the present primary can find that
		// out only by the number. But a shard looks up the number before it answers that it is not the owner: so it
		// has not applied the write, and never will.
		e.leave(c)
		if c.number != 0 && (c.tries <= 1 || status == protocol.StatusMoved) {
			e.numbers.settle(c.number)
			c.number, c.tries = 0, 0
		}
		e.later = append(e.later, c)
		if status == protocol.StatusMoved {
			if e.stale = true; !e.asking {
				e.askMapOf(s) // its node knows of the move
			}
		}
		return
	}
	if status == protocol.StatusTooLarge && c.op == protocol.OpGet && c.many {
		e.leave(c) // the answer had no room for this value besides the other parts
		c.many = false
		e.try(c)
		return
	}
	if err := e.result(s, c, status, m); err != nil {
		e.broken(s, err)
		return
	}
	e.finish(c, statusError(status))
}

// broken ends a connection with invalid messages. Its calls are sent again on the next connection.
func (e *engine) broken(s *shard, err error) { e.lost(s, err) }

// result decodes an answer. It keeps its pointer, or drops one of a former item.
func (e *engine) result(s *shard, c *call, status protocol.Status, m wire.Message) error {
	i, err := c.decode(status, protocol.Flags(m.Flags), m.Body, e.lasting)
	switch {
	case err != nil:
	case i.HasPointer:
		e.learn(s, c, &i)
	case c.op.IsWrite() && status == protocol.StatusOK:
		if p := e.cache.get(c.hash); p != nil { // the write has replaced its item
			e.cache.drop(p)
		}
	}
	return err
}

// askMap asks any connected shard for its map.
func (e *engine) askMap() {
	for _, s := range e.shards {
		if s.conn != nil {
			e.askMapOf(s)
			return
		}
	}
}

func (e *engine) askMapOf(s *shard) {
	e.asking = true
	e.start(&call{op: protocol.OpMap, shard: s, body: []byte{}, internal: func(e *engine, _ *call, m wire.Message) {
		e.asking = false
		e.gotMap(m)
	}})
}

// gotMap handles the answer to a request for the map.
func (e *engine) gotMap(m wire.Message) {
	var got protocol.Map
	if protocol.Status(m.Status) == protocol.StatusOK && got.Parse(m.Body) == nil {
		e.setMap(got)
	}
}
