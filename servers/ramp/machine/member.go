package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"flashdbm/servers/membership"
	"flashdbm/servers/ramp/partition"
	"flashdbm/servers/replica"
	"flashdbm/servers/store"
	"flashdbm/servers/wire"
)

// checkCluster returns what is wrong with the options of a node in a cluster.
func (o *Options) checkCluster() error {
	if len(o.Listen) == 0 {
		return errors.New("machine: a node of several needs an address to listen on")
	}
	return o.Cluster.Check()
}

// join makes the node one of a cluster. The listeners have been opened.
func (n *Node) join() error {
	last := len(n.o.Listen) - 1
	s := membership.Site{Peers: n.o.Listen[last].Domain, PeerAddr: n.listeners[last].Addr(), Secret: n.o.Secret}
	for i, l := range n.listeners {
		public := n.o.Listen[i].Public
		if public == "" {
			return fmt.Errorf("machine: what are clients told of %s? A node of several needs Listen.Public", l.Addr())
		}
		s.Addrs = append(s.Addrs, public)
		if i == last {
			s.PeerAddr = membership.WithoutScheme(public)
		}
	}
	t := membership.Table{Kind: "ramp", Seed: n.id.Seed, Shards: n.id.Partitions, Want: n.o.Partitions, Durability: n.o.Durability.String(), Keeps: n.o.Durability == partition.Sync, Together: true}
	m, err := membership.Join(n.ctx, *n.o.Cluster, t, s)
	if err != nil {
		return err
	}
	c := m.Config()
	n.id, err = adoptIdentity(n.o.Dir, identity{layout, c.Seed, c.Shards})
	n.members = m
	return err
}

// Leave hands over the partitions that this node serves and makes the other nodes go on without it, so that no client
// waits when the node is closed. If no other node can take over, it does nothing.
func (n *Node) Leave(ctx context.Context) {
	if n.members != nil {
		n.members.Leave(ctx)
	}
}

// become makes the partition a replica that follows no primary yet.
func (r *runner) become(o partition.Options) error {
	n := r.n
	last := len(n.o.Listen) - 1
	d := n.o.Listen[last].Domain
	r.copy = n.members.NewCopy(r.number, r.groups.At(d), r.hand)
	if n.o.Durability != partition.Memory {
		os.Remove(r.copyPath()) // it was partial when the last life ended
	}
	st := r.store.State()
	var terms []replica.Term
	for _, t := range slices.Backward(st.Terms[:]) {
		if t.Term != 0 {
			terms = append(terms, replica.Term{Term: t.Term, First: t.First})
		}
	}
	if r.copy.Found.First = st.Seq; len(terms) > 0 {
		r.copy.Found.Term = terms[len(terms)-1].Term
	}
	size := n.o.Cluster.RingSize()
	log, err := replica.NewLog(d, size, st.Seq, terms)
	if err != nil {
		return err
	}
	mode := replica.Relaxed
	switch {
	case o.Durability == partition.Sync:
		mode = replica.Synced
	case n.members.Config().Strict:
		mode = replica.Strict
	}
	if o.Durability == partition.Memory {
		o.Durability = partition.Async // of a file in memory
	}
	m, err := partition.NewMember(partition.MemberOptions{
		Options: o, Mode: mode, Log: log, Self: n.members.Self(), MinInSync: n.members.Config().MinInSync, Ended: n.members.Ended(r.number), Memory: d,
		Inherit: r.inherit, Fresh: r.fresh, Keep: r.keep, Raw: r.raw,
		Places: func() []byte { _, body := n.members.Map(); return body },
	})
	if err != nil {
		return errors.Join(err, log.Close())
	}
	r.p = m
	r.copy.SetShard(m)
	r.copy.Hears(func(body []byte) {
		var note partition.Note
		if note.Parse(body) == nil {
			m.Hear(note)
		}
	})
	return nil
}

func (r *runner) raw() (mono int64, wall uint64) {
	r.read = time.Now()
	return int64(r.read.Sub(r.n.began)), uint64(r.read.UnixMilli())
}

// copyPath is the path of a copy until it is whole.
func (r *runner) copyPath() string { return r.path() + ".copy" }

// fresh gives the partition an empty file for a copy. The old file is kept until the copy is whole.
func (r *runner) fresh() (*store.Store, error) {
	if err := r.store.Discard(); err != nil {
		return nil, err
	}
	if r.n.o.Durability != partition.Memory {
		if err := os.Remove(r.copyPath()); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	f, err := r.openFile(r.copyPath())
	if err != nil {
		return nil, err
	}
	r.file = f
	s, err := r.openStore()
	if err != nil {
		return nil, err
	}
	r.store = s
	s.Start()
	return s, nil
}

// keep makes the copy the partition's file.
func (r *runner) keep() error {
	if r.n.o.Durability == partition.Memory {
		return nil
	}
	return store.Replace(r.copyPath(), r.path())
}

// hand passes a function to the partition's thread; false: the node is being closed.
func (r *runner) hand(do func()) bool {
	select {
	case r.attach <- attachment{do: do}:
		r.groups.Wake()
		return true
	case <-r.n.ctx.Done():
		return false
	}
}

// peerShard returns the function that finds the partition for another node's connection, and the connection's group.
func (n *Node) peerShard(index int) func(number uint32) (*membership.Copy, *wire.Group) {
	return func(number uint32) (*membership.Copy, *wire.Group) {
		if int64(number) >= int64(len(n.partitions)) {
			return nil, nil
		}
		r := n.partitions[number]
		return r.copy, r.groups.At(n.o.Listen[index].Domain)
	}
}
