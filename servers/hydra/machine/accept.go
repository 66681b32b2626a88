package machine

import (
	"context"
	"crypto/rand"
	"fmt"

	"flashdbm/servers/fabric"
	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/membership"
	"flashdbm/servers/shard"
	"flashdbm/servers/wire"
)

// An attachment is something for the shard's thread: a new connection, a line, or a function.
type attachment struct {
	group    *wire.Group
	conn     wire.Conn
	line     wire.Line
	do       func() // a function for the thread to call
	greeting shard.Greeting
}

// accept passes the connections of a listener to the shards that they ask for.
func (n *Node) accept(ctx context.Context, index int, l fabric.Listener) {
	wire.AcceptAll(ctx, l, func(in fabric.Incoming) error { return n.greet(ctx, index, in) })
}

// greet answers a hello. If it returns an error, the connection was neither accepted nor refused.
func (n *Node) greet(ctx context.Context, index int, in fabric.Incoming) error {
	rest, err := wire.Hello(in)
	if err != nil {
		return err
	}
	if membership.IsPeer(rest) {
		if n.members == nil {
			return membership.ErrNoShard
		}
		return n.members.Accept(in, rest, n.peerShard(index))
	}
	var h protocol.Hello
	if err := h.Parse(rest); err != nil {
		return err
	}
	number := h.Shard
	if number == protocol.AnyShard {
		number = n.anyShard()
	}
	r := n.runner(number)
	if r == nil {
		return fmt.Errorf("%w: %d", errNoSuchShard, number)
	}
	w := protocol.Welcome{Shard: number, MapVersion: n.places.Version, NeedsAuth: len(n.o.Secret) > 0}
	if m := n.members; m == nil {
		w.Term = r.shard.Term() // does not change
	} else {
		w.MapVersion, _ = m.Map()
		w.Term = r.copy.Serves()
		if w.Term == 0 && h.Shard != protocol.AnyShard {
			return fmt.Errorf("machine: %s does not serve shard %d", m.Self(), number)
		}
	}
	rand.Read(w.Nonce[:])
	g := shard.Greeting{Client: h.Client, Next: h.Next, Term: w.Term, Auth: w.NeedsAuth}
	if w.NeedsAuth {
		w.Proof = protocol.Prove(n.o.Secret, protocol.ServerSide, &h, &w)
		g.Proof = protocol.Prove(n.o.Secret, protocol.ClientSide, &h, &w)
	}
	group := r.groups.At(n.o.Listen[index].Domain)
	c, err := group.Accept(in, w.Append(nil))
	if err != nil {
		return nil // Accept has refused it, or the peer has gone
	}
	r.give(ctx, attachment{group: group, conn: c, greeting: g})
	return nil
}

// anyShard returns a shard for a client that asks for any: one that this node serves, if there is one.
func (n *Node) anyShard() uint32 {
	list := n.runners()
	first := int(n.next.Add(1) % uint32(len(list)))
	for i := range list {
		if r := list[(first+i)%len(list)]; n.members == nil || r.copy.Serves() != 0 {
			return r.number
		}
	}
	return list[first].number
}
