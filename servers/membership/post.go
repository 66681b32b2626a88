package membership

import (
	"context"
	"time"

	"flashdbm/servers/wire"
)

// Notes are short messages between the shards of a table, sent to a shard's primary. They may be lost: a shard that
// needs an answer asks again.

const (
	// postRoom is the most notes that wait. More are lost: a node that does not receive notes must not use up the
	// memory of others.
	postRoom = 4096
	// postLook is how often connections are checked while notes come, postIdle while none come.
	postLook = 2 * time.Millisecond
	postIdle = time.Second
)

type note struct {
	shard uint32
	body  []byte
}

// A postbox is the connection to a shard's primary.
type postbox struct {
	member string
	link   *peerLink
	dials  bool
	failed time.Time
}

type openedBox struct {
	shard  uint32
	member string
	conn   wire.Conn
}

// Tell sends a note to the primary of a shard; there, the function given to Hears receives it. The node keeps body.
// Any goroutine may call Tell.
func (m *Node) Tell(shard uint32, body []byte) {
	select {
	case m.post <- note{shard, body}:
	default:
	}
}

// Hears sets the function that receives notes for the shard. The shard's thread calls it; the body is valid during
// the call.
func (c *Copy) Hears(hear func(body []byte)) { c.hears = hear }

// deliver sends notes until the context ends.
func (m *Node) deliver(ctx context.Context) {
	group, err := wire.NewGroup(m.site.Peers, 4096)
	if err != nil {
		return
	}
	defer group.Close()
	opened := newDials[openedBox]()
	boxes := map[uint32]*postbox{}
	tick := time.NewTicker(postIdle)
	defer tick.Stop()
	for looks := 0; ; {
		select {
		case <-ctx.Done():
			for _, b := range boxes {
				if b.link != nil {
					b.link.Close()
				}
			}
			opened.end(func(o openedBox) {
				if o.conn != nil {
					o.conn.Close()
				}
			})
			return
		case n := <-m.post:
			if looks == 0 {
				tick.Reset(postLook)
			}
			looks = 100
			m.send(ctx, group, boxes, &n, &opened)
		case o := <-opened.made:
			opened.left--
			b := boxes[o.shard]
			b.dials = false
			if o.conn == nil {
				b.failed = time.Now()
				continue
			}
			group.Add(o.conn.(*provingConn).Conn)
			b.link = &peerLink{conn: prove(o.conn).(wire.Writer)}
		case <-tick.C:
			if looks = max(0, looks-1); looks == 0 {
				tick.Reset(postIdle)
			}
			group.Step()
			group.Check(time.Now())
			for _, b := range boxes {
				if b.link != nil && b.link.Err() != nil {
					b.link.Close()
					b.link, b.failed = nil, time.Now()
				}
			}
		}
		if len(m.post) == 0 {
			group.Flush()
		}
	}
}

// send sends a note; without a connection it drops the note and makes one for the next notes.
func (m *Node) send(ctx context.Context, group *wire.Group, boxes map[uint32]*postbox, n *note, opened *dials[openedBox]) {
	b := boxes[n.shard]
	if b == nil {
		b = &postbox{}
		boxes[n.shard] = b
	}
	primary := m.Record(n.shard).Primary
	if b.link != nil && b.member != primary {
		b.link.Close()
		b.link = nil
	}
	if b.link != nil {
		b.link.next() // the peer sends no messages: this only updates the room for more
		b.link.put(opNote, 0, n.body)
		return
	}
	if b.dials || time.Since(b.failed) < lookEveryMember {
		return
	}
	b.dials, b.member = true, primary
	opened.start(func() openedBox {
		ctx, cancel := context.WithTimeout(ctx, dialWait)
		defer cancel()
		o := openedBox{shard: n.shard, member: primary}
		if e, ok := m.knows.Load().nodes[primary]; ok {
			if c, err := m.dialPeer(ctx, group, e.Peer, peerHello{kind: peerNotes, shard: n.shard, member: primary}); err == nil {
				o.conn = c
			}
		}
		return o
	})
}
