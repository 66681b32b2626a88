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
	w := protocol.Welcome{
		Partition: number, Partitions: uint32(len(n.partitions)), Seed: n.id.Seed, Term: r.p.Term(), NeedsAuth: len(n.o.Secret) > 0,
		Number: n.numbers.give(h.Client, h.Number, time.Now()),
	}
	rand.Read(w.Nonce[:])
	g := partition.Greeting{Auth: w.NeedsAuth}
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
		r.wake()
	case <-ctx.Done():
		c.Close()
	}
	return nil
}

// numbers are the client numbers of timestamps. A client keeps its number over its connections. A number that two clients share costs refusals, and no
// more: a transaction is known by its client's random id, too.
type numbers struct {
	mu   sync.Mutex // guards what follows
	next uint16
	of   map[uint16]*numbered
}

type numbered struct {
	client uint64
	seen   time.Time
}

// numberKept is for how long after a client's last greeting nobody else is given its number, unless all are in use.
const numberKept = 10 * time.Minute

func (x *numbers) init() {
	x.next, x.of = uint16(mathrand.IntN(protocol.MaxClients)), map[uint16]*numbered{}
}

// give returns the number of a client: the one that it has, if nobody else has got it.
func (x *numbers) give(client uint64, has uint16, now time.Time) uint16 {
	x.mu.Lock()
	defer x.mu.Unlock()
	if o := x.of[has]; has < protocol.MaxClients && (o == nil || o.client == client) {
		x.of[has] = &numbered{client, now}
		return has
	}
	number := x.next
	for range protocol.MaxClients {
		o := x.of[x.next]
		x.next = (x.next + 1) % protocol.MaxClients
		if o == nil || now.Sub(o.seen) > numberKept {
			break
		}
		number = x.next
	}
	x.of[number] = &numbered{client, now}
	return number
}
