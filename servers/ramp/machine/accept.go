package machine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"flashdbm/servers/fabric"
	"flashdbm/servers/membership"
	"flashdbm/servers/ramp/partition"
	"flashdbm/servers/ramp/protocol"
	"flashdbm/servers/wire"
)

// accept hands the connections of a listener to the partitions that they ask for.
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
	release := func() {}
	if n.members == nil {
		w.Term = r.p.Term()
		if w.Number, release, err = n.numbers.give(h.Client, h.Number, time.Now()); err != nil {
			return err
		}
	} else {
		if w.Term = r.copy.Serves(); w.Term == 0 && h.Partition != protocol.AnyPartition {
			return fmt.Errorf("machine: %s does not serve partition %d", n.members.Self(), number)
		}
		// Nobody hands out numbers over all nodes. Two clients may have the same one: RAMP-Fast, the only algorithm here, stands that, as versions name the
		// keys of their transaction, and a partition refuses a timestamp that another client's transaction has.
		if w.Number = h.Number; w.Number >= protocol.MaxClients {
			w.Number = uint16(mathrand.IntN(protocol.MaxClients))
		}
	}
	rand.Read(w.Nonce[:])
	g := partition.Greeting{Number: w.Number, Auth: w.NeedsAuth}
	if w.NeedsAuth {
		w.Proof = protocol.Prove(n.o.Secret, protocol.ServerSide, &h, &w)
		g.Proof = protocol.Prove(n.o.Secret, protocol.ClientSide, &h, &w)
	}
	group := r.groups[r.groupOf[index]]
	c, err := group.Accept(in, w.Append(nil))
	if err != nil {
		release()
		return nil // Accept has refused it, or the peer has gone
	}
	select {
	case r.attach <- attachment{group: group, conn: c, release: release, greeting: g}:
		r.wake()
	case <-ctx.Done():
		c.Close()
	}
	return nil
}

// OwnNumber is the number in timestamps of the node's own client (ramp.Local). No other client gets it.
const OwnNumber = protocol.MaxClients - 1

// numbers are the client numbers of timestamps. A client has its number for as long as it has connections, and numberKept longer, so that it keeps it when it
// connects anew. No two clients have the same one: readers tell the transactions of two clients apart by timestamps alone.
type numbers struct {
	mu   sync.Mutex // guards what follows
	next uint16
	of   map[uint16]*numbered
	by   map[uint64]uint16 // the number of a client
}

type numbered struct {
	client uint64
	conns  int
	left   time.Time // when the last connection ended
}

// numberKept is for how long nobody else is given the number of a client that has left.
const numberKept = 10 * time.Minute

func (x *numbers) init() {
	x.next, x.of, x.by = uint16(mathrand.IntN(OwnNumber)), map[uint16]*numbered{}, map[uint64]uint16{}
}

// give returns the number of a client for one more connection: that of its other connections, else the one that it had if nobody else has it. release is called when the connection has ended.
func (x *numbers) give(client uint64, has uint16, now time.Time) (number uint16, release func(), err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	free := func(n uint16) bool {
		o := x.of[n]
		return o == nil || o.client == client || o.conns == 0 && now.Sub(o.left) > numberKept
	}
	if n, ok := x.by[client]; ok {
		has = n
	}
	if number = has; has >= OwnNumber || !free(has) {
		for tries := 0; !free(x.next); tries++ {
			if tries == OwnNumber {
				return 0, nil, fmt.Errorf("machine: no more than %d clients are possible within %v", OwnNumber, numberKept)
			}
			x.next = (x.next + 1) % OwnNumber
		}
		number = x.next
		x.next = (x.next + 1) % OwnNumber
	}
	o := x.of[number]
	if o == nil || o.client != client {
		if o != nil {
			delete(x.by, o.client)
		}
		o = &numbered{client: client}
		x.of[number], x.by[client] = o, number
	}
	o.conns++
	return number, sync.OnceFunc(func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if o.conns--; o.conns == 0 {
			o.left = time.Now()
		}
	}), nil
}
