package machine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"flashdbm/servers/fabric"
	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/shard"
	"flashdbm/servers/wire"
)

// An attachment is a connection on its way to the shard's thread, or a line.
type attachment struct {
	group    *wire.Group
	conn     wire.Conn
	line     wire.Line
	greeting shard.Greeting
}

// accept hands the connections of a listener to the shards that they ask for.
func (n *Node) accept(ctx context.Context, index int, l fabric.Listener) {
	for {
		in, err := l.Accept(ctx)
		if ctx.Err() != nil || errors.Is(err, fabric.ErrClosed) {
			return
		}
		if err != nil {
			continue // of that one connection
		}
		if err := n.greet(ctx, index, in); err != nil {
			in.Reject(err.Error())
		}
	}
}

// greet answers a hello. An error means that the connection was neither accepted nor refused yet.
func (n *Node) greet(ctx context.Context, index int, in fabric.Incoming) error {
	rest, err := wire.Hello(in)
	if err != nil {
		return err
	}
	var h protocol.Hello
	if err := h.Parse(rest); err != nil {
		return err
	}
	number := h.Shard
	if number == protocol.AnyShard {
		number = n.next.Add(1) % uint32(len(n.shards))
	}
	if int64(number) >= int64(len(n.shards)) {
		return fmt.Errorf("%w: %d of %d", errNoSuchShard, number, len(n.shards))
	}
	r := n.shards[number]
	w := protocol.Welcome{Shard: number, MapVersion: mapVersion, Term: r.shard.Term(), NeedsAuth: len(n.o.Secret) > 0}
	rand.Read(w.Nonce[:])
	g := shard.Greeting{Client: h.Client, Next: h.Next, Auth: w.NeedsAuth}
	if w.NeedsAuth {
		w.Proof = protocol.Prove(n.o.Secret, protocol.ServerSide, &h, &w)
		g.Proof = protocol.Prove(n.o.Secret, protocol.ClientSide, &h, &w)
	}
	group := r.groups[r.groupOf[index]]
	c, err := group.Accept(in, w.Append(nil))
	if err != nil {
		return nil // Accept has refused it, or the peer has gone
	}
	select {
	case r.attach <- attachment{group: group, conn: c, greeting: g}:
		r.groups[0].Wake()
	case <-ctx.Done():
		c.Close()
	}
	return nil
}
