package membership

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"slices"
	"sync/atomic"
	"time"

	"flashdbm/servers/replica"
	"flashdbm/servers/wire"
)

// A Shard is this node's replica of a shard. Only the shard's thread calls it.
type Shard interface {
	// Follower returns the shard's part as a secondary. Reign returns its part as the primary, nil if it is not the
	// primary.
	Follower() *replica.Follower
	Reign() *replica.Reign
	// Learn tells the shard the content of its record.
	Learn(rec replica.Record)
	// Stop obeys the order to follow no primary of the record's term; false if the order is invalid, or this member
	// is the primary.
	Stop(rec *replica.Record) bool
}

// A Copy is what a shard's thread does for a replicated shard: connections to other members, orders of the leader,
// and changes of the record, which goroutines make.
type Copy struct {
	// Found is the newest entry in the shard's file when it was opened, and the entry's term.
	Found replica.Term

	m      *Node
	number uint32
	group  *wire.Group // for connections to other nodes
	// hand makes the shard's thread call a function soon; false: never, because the node is ending.
	hand   func(do func()) bool
	serves atomic.Uint64 // the term in which this node serves the shard; 0: it does not serve it

	// Fields of the shard's thread.
	shard     Shard
	orders    []*peerLink // from leaders
	links     []*peerLink // to other members, for the messages that they hold back
	notes     []*peerLink // from nodes that send notes to the shard
	hears     func([]byte)
	arrives   func(replica.Link)
	knows     *knowledge // the knowledge from which the present plan was made
	planned   time.Time  // when the plan was last made; heirSince: since when the plan has an heir
	heirSince time.Time
	read      time.Time // the clock, as read by the last call of Confer
}

// NewCopy returns a Copy for a shard's thread. SetShard sets its shard.
func (m *Node) NewCopy(number uint32, group *wire.Group, hand func(do func()) bool) *Copy {
	return &Copy{m: m, number: number, group: group, hand: hand}
}

// SetShard gives the copy its shard, and registers it with the node.
func (c *Copy) SetShard(s Shard) {
	c.shard = s
	c.m.copyMu.Lock()
	defer c.m.copyMu.Unlock()
	c.m.copies = append(c.m.copies, c)
}

// Arrives sets the function that receives links over which a part of the circle comes. The shard's thread calls it.
func (c *Copy) Arrives(arrive func(replica.Link)) { c.arrives = arrive }

// Serves returns the term in which this node serves the shard, 0 if it does not. Any goroutine may call it.
func (c *Copy) Serves() uint64 { return c.serves.Load() }

// Confer carries out the shard's requests to other nodes, and theirs to the shard.
func (c *Copy) Confer(now time.Time) (worked bool) {
	c.read = now
	reign := c.shard.Reign()
	serves := uint64(0)
	if reign != nil && reign.Serving() {
		serves = reign.Term()
	}
	if c.serves.Load() != serves {
		c.serves.Store(serves)
	}
	worked = c.obey()
	for _, l := range c.links {
		if len(l.held) > 0 {
			l.flush()
		}
	}
	if reign == nil {
		c.knows, c.heirSince = nil, time.Time{}
		return worked
	}
	if k := c.m.knows.Load(); k != c.knows || c.read.Sub(c.planned) >= planEvery {
		c.knows, c.planned = k, c.read
		c.plan(reign)
	}
	if next, ok := reign.Proposal(); ok {
		go c.m.change(c, next)
	}
	if name := reign.Dial(); name != "" {
		c.link(name, c.number, peerFollows, func(l *peerLink) {
			if l == nil {
				reign.NoLink(name)
				return
			}
			reign.Attach(name, l)
		})
	}
	return worked
}

// LinkTo connects to the primary of another shard, for a part of the circle, and passes the link to this shard's
// thread; nil: no connection now.
func (c *Copy) LinkTo(shard uint32, linked func(replica.Link)) {
	c.link(c.m.State().Records[shard].Primary, shard, peerMoves, func(l *peerLink) {
		if l == nil {
			linked(nil)
			return
		}
		linked(l)
	})
}

// link connects to a member, possibly of another shard, and passes the link to the shard's thread; nil: no connection
// now.
func (c *Copy) link(name string, shard uint32, kind uint16, linked func(*peerLink)) {
	e, lives := c.m.knows.Load().nodes[name]
	go func() {
		var conn wire.Conn
		if lives {
			ctx, cancel := context.WithTimeout(c.m.ctx, dialWait)
			defer cancel()
			if x, err := c.m.dialPeer(ctx, c.group, e.Peer, peerHello{kind: kind, shard: shard, member: name}); err == nil {
				conn = x
			}
		}
		if !c.hand(func() {
			if conn == nil {
				linked(nil)
				return
			}
			bare := conn.(*provingConn).Conn
			c.group.Add(bare)
			l := &peerLink{conn: prove(conn).(wire.Writer)}
			c.links = append(c.links, l)
			linked(l)
		}) && conn != nil {
			conn.Close()
		}
	}()
}

// obey handles the orders and questions of leaders.
func (c *Copy) obey() (worked bool) {
	f := c.shard.Follower()
	stopped := f.Stopped()
	for _, revision := range stopped {
		c.report(revision, true)
	}
	gone := func(l *peerLink) bool {
		if l.Err() != nil {
			l.Close()
			return true
		}
		return false
	}
	c.orders = slices.DeleteFunc(c.orders, gone)
	if len(c.links) > 8 {
		c.links = slices.DeleteFunc(c.links, func(l *peerLink) bool { return l.Err() != nil })
	}
	for _, l := range c.orders {
		for {
			m, ok := l.next()
			if !ok {
				break
			}
			worked = true
			switch m.Op {
			case opStatus:
				s := memberStatus{Follows: f.Following(), Followed: f.Followed(), Barred: f.Barred()}
				if g := c.shard.Reign(); g != nil && !g.Over() {
					s.Reigns = g.Term()
				}
				b, _ := json.Marshal(s)
				l.put(opStatus, 0, b)
			case opStop:
				l.stop = 0
				if len(m.Body) < 8 {
					continue
				}
				revision := binary.LittleEndian.Uint64(m.Body)
				if rec, err := replica.ParseRecord(m.Body[8:], revision); err == nil {
					l.stop = revision
					if !c.shard.Stop(&rec) {
						c.report(revision, false)
					}
				}
			}
		}
	}
	return c.listen() || worked || len(stopped) > 0
}

// listen handles notes.
func (c *Copy) listen() (worked bool) {
	if len(c.notes) == 0 {
		return false
	}
	c.notes = slices.DeleteFunc(c.notes, func(l *peerLink) bool {
		for {
			m, ok := l.next()
			if !ok {
				break
			}
			worked = true
			if m.Op == opNote && c.hears != nil {
				c.hears(m.Body)
			}
		}
		if l.Err() != nil {
			l.Close()
			return true
		}
		return false
	})
	return worked
}

// report answers orders to stop that name the revision.
func (c *Copy) report(revision uint64, stopped bool) {
	b, _ := json.Marshal(reportBody{Stopped: stopped, Report: c.shard.Follower().Report()})
	for _, l := range c.orders {
		if l.stop == revision {
			l.stop = 0
			l.put(opStop, revision, b)
		}
	}
}
