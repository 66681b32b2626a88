package machine

import (
	"context"
	"crypto/rand"
	"fmt"

	"flashdbm/servers/fabric"
	"flashdbm/servers/membership"
	"flashdbm/servers/ramp/partition"
	"flashdbm/servers/ramp/protocol"
	"flashdbm/servers/wire"
)

// accept passes the connections of a listener to the partitions that they ask for.
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
	number := h.Partition
	if number == protocol.AnyPartition {
		number = 0
	}
	if int64(number) >= int64(len(n.partitions)) {
		return fmt.Errorf("machine: no partition %d: there are %d", number, len(n.partitions))
	}
	r := n.partitions[number]
	w := protocol.Welcome{Partition: number, Partitions: uint32(len(n.partitions)), Seed: n.id.Seed, NeedsAuth: len(n.o.Secret) > 0, Replicas: n.members != nil}
	if n.members == nil {
		w.Term = r.p.Term()
		w.Life = w.Term
	} else {
		if w.Term = r.copy.Serves(); w.Term == 0 && h.Partition != protocol.AnyPartition {
			return fmt.Errorf("machine: %s does not serve partition %d", n.members.Self(), number)
		}
		w.Life = n.members.Record(number).Life
	}
	rand.Read(w.Nonce[:])
	g := partition.Greeting{Term: w.Term, Auth: w.NeedsAuth}
	if w.NeedsAuth {
		w.Proof = protocol.Prove(n.o.Secret, protocol.ServerSide, &h, &w)
		g.Proof = protocol.Prove(n.o.Secret, protocol.ClientSide, &h, &w)
	}
	group := r.groups.At(n.o.Listen[index].Domain)
	c, err := group.Accept(in, w.Append(nil))
	if err != nil {
		return nil // Accept has refused it, or the peer has gone
	}
	select {
	case r.attach <- attachment{group: group, conn: c, greeting: g}:
		r.groups.Wake()
	case <-ctx.Done():
		c.Close()
	}
	return nil
}
