package machine

import (
	"context"
	"errors"
	"os"
	"slices"

	"flashdbm/servers/membership"
	"flashdbm/servers/replica"
	"flashdbm/servers/shard"
	"flashdbm/servers/store"
	"flashdbm/servers/wire"
)

// ClusterOptions make a node one of several.
type ClusterOptions = membership.Options

// join makes the node one of a cluster. The listeners have been opened.
func (n *Node) join(ctx context.Context) error {
	at := n.peers()
	s := membership.Site{Peers: n.o.Listen[at].Domain, PeerAddr: membership.WithoutScheme(n.publicAddrs()[at]), Addrs: n.publicAddrs(), Secret: n.o.Secret}
	if n.o.Listen[at].Public == "" {
		s.PeerAddr = n.listeners[at].Addr()
	}
	t := membership.Table{Seed: n.id.Seed, Shards: n.id.Shards, Circle: n.id.Circle, Want: n.o.Shards, Durability: n.o.Durability.String(), Keeps: n.o.Durability == shard.Sync}
	m, err := membership.Join(ctx, *n.o.Cluster, t, s)
	if err != nil {
		return err
	}
	c := m.Config()
	n.id, err = adoptIdentity(n.o.Dir, identity{Layout: 1, Seed: c.Seed, Shards: c.Shards, Circle: c.Circle})
	n.members = m
	n.view.Store(viewOf(m.State()).Complete(nil))
	m.OnChange(n.see)
	return err
}

// peers returns the index of the listener for other nodes.
func (n *Node) peers() int {
	if at := slices.IndexFunc(n.o.Listen, func(l Listen) bool { return l.Peers }); at >= 0 {
		return at
	}
	return len(n.o.Listen) - 1
}

func viewOf(s membership.State) *shard.View {
	return &shard.View{Revision: s.Revision, Circle: s.Circle, Changed: s.Changed, Seed: s.Seed, Records: s.Records}
}

// see records new knowledge of the cluster, and tells the shards.
func (n *Node) see(s membership.State) {
	v := viewOf(s).Complete(n.view.Load())
	n.view.Store(v)
	n.keepShards(v)
	for _, r := range n.runners() {
		r.hand(func() { r.shard.See(v) })
	}
}

// Leave hands over the shards that this node serves and makes the other nodes go on without it, so that no client
// waits when the node is closed. If no other node can take over, it does nothing.
func (n *Node) Leave(ctx context.Context) {
	if n.members != nil {
		n.members.Leave(ctx)
	}
}

// copyPath is the path of a copy until it is whole.
func (r *runner) copyPath() string { return r.path() + ".copy" }

// membership makes the shard a replica.
func (r *runner) membership() (m shard.Membership, err error) {
	n := r.n
	at := n.peers()
	d := n.o.Listen[at].Domain
	r.copy = n.members.NewCopy(r.number, r.groups.At(d), r.hand)
	r.copy.Arrives(func(l replica.Link) { r.shard.Arrive(l) })
	c := n.members.Config()
	m = shard.Membership{
		Self: n.members.Self(), MinInSync: c.MinInSync, Ended: n.members.Ended(r.number), RingSize: n.o.Cluster.RingSize(), Memory: d,
	}
	switch {
	case n.o.Durability == shard.Sync:
		m.Mode = replica.Synced
	case c.Strict:
		m.Mode = replica.Strict
	}
	var seq uint64
	var terms []replica.Term
	if r.store != nil {
		os.Remove(r.copyPath()) // it was partial when the last life ended
		st := r.store.State()
		seq = st.Seq
		for _, t := range slices.Backward(st.Terms[:]) {
			if t.Term != 0 {
				terms = append(terms, replica.Term{Term: t.Term, First: t.First})
			}
		}
		if r.copy.Found.First = seq; len(terms) > 0 {
			r.copy.Found.Term = terms[len(terms)-1].Term
		}
		m.Fresh, m.Keep = r.fresh, r.keep
	}
	m.Log, err = replica.NewLog(d, m.RingSize, seq, terms)
	return m, err
}

// fresh gives the shard an empty file for a copy. The old file is kept until the copy is whole.
func (r *runner) fresh() (*store.Store, error) {
	if err := r.store.Discard(); err != nil {
		return nil, err
	}
	if err := os.Remove(r.copyPath()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	s, _, err := r.openStore(r.copyPath())
	if err != nil {
		return nil, err
	}
	r.store = s
	s.Start()
	return s, nil
}

// keep makes the copy the shard's file.
func (r *runner) keep() error {
	return store.Replace(r.copyPath(), r.path())
}

// hand passes a function to the shard's thread; false: the node is being closed.
func (r *runner) hand(do func()) bool { return r.give(r.n.ctx, attachment{do: do}) }

// give passes an attachment to the shard's thread; false: the thread has ended, and give has closed the connection.
func (r *runner) give(ctx context.Context, a attachment) bool {
	select {
	case r.attach <- a:
		r.groups.Wake()
		return true
	case <-ctx.Done():
	case <-r.ended:
	}
	if a.conn != nil {
		a.conn.Close()
	}
	return false
}

// peerShard returns the function that finds the shard for another node's connection, and the connection's group.
func (n *Node) peerShard(index int) func(number uint32) (*membership.Copy, *wire.Group) {
	return func(number uint32) (*membership.Copy, *wire.Group) {
		r := n.runner(number)
		if r == nil {
			return nil, nil
		}
		return r.copy, r.groups.At(n.o.Listen[index].Domain)
	}
}

// anyMap returns the map for clients.
func (n *Node) anyMap() (version uint32, body []byte) {
	if n.members != nil {
		return n.members.Map()
	}
	return n.places.Version, n.mapBody
}
