package machine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"flashdbm/servers/arena"
	"flashdbm/servers/circle"
	"flashdbm/servers/fabric"
	"flashdbm/servers/membership"
	"flashdbm/servers/ramp/partition"
	"flashdbm/servers/ramp/protocol"
	"flashdbm/servers/store"
	"flashdbm/servers/wire"
)

// Listen is an address for clients.
type Listen struct {
	Domain fabric.Domain // belongs to the caller, which closes it after the node
	Addr   string        // in the form of the domain's provider
	Public string        // the address for clients of a table of several nodes, such as "shm:/run/flashdbm/n1.sock"
}

// Options configure a node.
type Options struct {
	Dir        string // for ramp.json and the files; may be empty in memory mode
	Partitions int    // 0: as in the directory, 1 if it is new
	Durability partition.Durability
	// Listen: may be empty; slots are in memory of the first one's domain, so one-sided Reads need a connection
	// through it
	Listen  []Listen
	Memory  int64                                               // bytes of versions per partition; 0: no limit
	Extent  int                                                 // bytes of a region of versions; 0: 256 MiB
	MaxFile int64                                               // bytes of a partition's file; 0: no limit
	Secret  []byte                                              // required of clients; empty: none
	Alloc   func(n int, a fabric.Access) (fabric.Region, error) // of a node without listeners
	Hides   bool                                                // see partition.HidePending
	Cluster *membership.Options                                 // nil: the node is alone
}

// syncPause is the pause between two syncs in async mode: with the sync itself, the file is well below a second
// behind.
const syncPause = 200 * time.Millisecond

// A Node is open until Close.
type Node struct {
	o          Options
	id         identity
	partitions []*runner
	members    *membership.Node // nil: the node is alone
	listeners  []fabric.Listener
	circle     *circle.Circle
	began      time.Time
	ahead      atomic.Int64    // the least date at began, in milliseconds since 1970, that partitions have asked for
	ctx        context.Context // until Close
	stop       context.CancelFunc
	done       sync.WaitGroup
	closed     sync.Once
	err        error
}

// Open starts a node. It returns the errors of the files unchanged: dbm.ErrLocked if another node has the directory.
func Open(o Options) (*Node, error) {
	if o.Dir == "" && o.Durability != partition.Memory {
		return nil, errors.New("machine: durability async and sync need a directory")
	}
	if o.Partitions < 0 || o.Partitions > protocol.MaxPartitions {
		return nil, fmt.Errorf("machine: %d partitions; 1 to %d are possible", o.Partitions, protocol.MaxPartitions)
	}
	if len(o.Listen) > 0 {
		o.Alloc = o.Listen[0].Domain.Alloc
	}
	if o.Alloc == nil {
		return nil, errors.New("machine: neither an address to listen on nor memory")
	}
	id := drawn(max(1, o.Partitions))
	var err error
	if o.Cluster == nil {
		id, err = readIdentity(o.Dir, o.Partitions)
	} else if err = o.checkCluster(); err == nil {
		err = knownIdentity(o.Dir, &id)
	}
	if err != nil {
		return nil, err
	}
	o.Listen = slices.Clone(o.Listen)
	n := &Node{o: o, id: id, began: time.Now()}
	n.ctx, n.stop = context.WithCancel(context.Background())
	if err := n.open(); err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

func (n *Node) open() error {
	for _, l := range n.o.Listen {
		listener, err := l.Domain.Listen(l.Addr)
		if err != nil {
			return fmt.Errorf("machine: %w", err)
		}
		n.listeners = append(n.listeners, listener)
	}
	if n.o.Cluster != nil {
		if err := n.join(); err != nil {
			return err
		}
	}
	var ids []uint32
	for i := range n.id.Partitions {
		ids = append(ids, uint32(i))
	}
	n.circle = circle.New(n.id.Seed, ids)
	n.partitions = make([]*runner, n.id.Partitions)
	for i := range n.partitions { // partitions that are not open yet may receive notes, too
		n.partitions[i] = &runner{n: n, number: uint32(i), attach: make(chan attachment, 64)}
	}
	for _, r := range n.partitions {
		if err := n.openPartition(r); err != nil {
			return fmt.Errorf("machine: partition %d: %w", r.number, err)
		}
	}
	for _, r := range n.partitions {
		r.start()
	}
	for i, l := range n.listeners {
		n.done.Go(func() { n.accept(n.ctx, i, l) })
	}
	if n.members != nil {
		return n.members.Run()
	}
	return nil
}

// date returns the clocks at a time: all partitions have the same date, which is not below the dates that any of them
// has found in its file.
func (n *Node) date(now time.Time, least uint64) (mono int64, wall uint64) {
	mono = int64(now.Sub(n.began))
	for want := int64(least) - mono/1e6; ; {
		if is := n.ahead.Load(); is >= want || n.ahead.CompareAndSwap(is, want) {
			break
		}
	}
	return mono, max(uint64(now.UnixMilli()), uint64(max(0, n.ahead.Load()+mono/1e6)))
}

func (n *Node) owner(hash uint64) uint32 {
	p, _ := n.circle.Owner(hash)
	return p
}

// domains are those of the listeners, in their order.
func (n *Node) domains() (list []fabric.Domain) {
	for _, l := range n.o.Listen {
		list = append(list, l.Domain)
	}
	return list
}

// openPartition opens a partition's file and creates the partition.
func (n *Node) openPartition(r *runner) error {
	var err error
	if r.groups, err = wire.NewGroups(n.domains(), groupOps); err != nil {
		return err
	}
	o := partition.Options{
		Partition: r.number, Term: uint64(time.Now().UnixNano()), Seed: n.id.Seed, Durability: n.o.Durability, Clock: r.clock, Owner: n.owner,
		Arena: arena.Options{Extent: n.o.Extent, Limit: n.o.Memory}, Alloc: n.o.Alloc,
		Tell: n.tell,
	}
	// in a cluster, each member copies from, and continues with, a file, in memory mode a file in memory
	if n.o.Durability != partition.Memory || n.members != nil {
		if r.file, err = r.openFile(r.path()); err != nil {
			return err
		}
		if n.members == nil {
			if o.Inherited, err = r.inherit(); err != nil {
				return errors.Join(err, r.file.Close())
			}
		}
		if r.store, err = r.openStore(); err != nil {
			return err
		}
		o.Store = r.store
	}
	if n.members != nil {
		return r.become(o)
	}
	p, err := partition.New(o)
	if err == nil {
		if r.p, r.alone = p, p; n.o.Hides {
			p.HidePending()
		}
	}
	return err
}

// path returns the path of the partition's file.
func (r *runner) path() string {
	return filepath.Join(r.n.o.Dir, fmt.Sprintf("partition-%d.fdbm", r.number))
}

// openFile opens a file of the partition, and creates it if it does not exist. In memory mode the file is new, and in
// memory.
func (r *runner) openFile(path string) (store.VersionFile, error) {
	if r.n.o.Durability == partition.Memory {
		return store.OpenMemoryVersions(r.n.o.MaxFile)
	}
	return store.OpenVersions(path, r.n.o.MaxFile)
}

// inherit reads the unfinished work from the file.
func (r *runner) inherit() (store.Inherited, error) {
	return r.file.Inherit(func(h uint64) bool { return r.n.owner(h) == r.number })
}

// openStore begins a life of the file. If it fails, it closes the file.
func (r *runner) openStore() (*store.Store, error) {
	pause := time.Duration(0)
	if r.n.o.Durability == partition.Async {
		pause = syncPause
	}
	s, err := store.Open(r.file, r.stored, pause)
	if err != nil {
		return nil, errors.Join(err, r.file.Close())
	}
	return s, nil
}

// tell sends a note to a partition, on this node or another one.
func (n *Node) tell(to uint32, note partition.Note) {
	r := n.partitions[to]
	if n.members == nil || r.copy.Serves() != 0 {
		r.mail(note)
		return
	}
	n.members.Tell(to, note.Append(nil))
}

// Table returns the seed of the hash of keys, and the number of partitions. Both are immutable.
func (n *Node) Table() (seed uint64, partitions uint32) { return n.id.Seed, uint32(n.id.Partitions) }

// Addrs returns the addresses of the listeners, in the order of Options.Listen.
func (n *Node) Addrs() (list []string) {
	for _, l := range n.listeners {
		list = append(list, l.Addr())
	}
	return list
}

// Err returns why partitions no longer serve, nil while all serve.
func (n *Node) Err() error {
	var all error
	for _, r := range n.partitions {
		r.own.Lock()
		err := r.p.Err()
		r.own.Unlock()
		if err != nil {
			all = errors.Join(all, fmt.Errorf("partition %d: %w", r.number, err))
		}
	}
	return all
}

// Status describes a node.
type Status struct {
	Durability string            `json:"durability"`
	Node       string            `json:"node,omitempty"`     // its name in records, of one of several
	Replicas   int               `json:"replicas,omitempty"` // copies that each partition should have
	Drained    bool              `json:"drained,omitempty"`  // the node should have no partitions
	Partitions []partition.Stats `json:"partitions"`
}

// Status returns the node's status. Any goroutine may call it.
func (n *Node) Status() Status {
	s := Status{Durability: n.o.Durability.String()}
	if n.members != nil {
		s.Node, s.Replicas, s.Drained = n.members.Self(), n.members.Config().Replicas, n.members.Drained()
	}
	for _, r := range n.partitions {
		r.own.Lock()
		s.Partitions = append(s.Partitions, r.p.Stats())
		r.own.Unlock()
	}
	return s
}

// Close ends all connections, writes acknowledged transactions to the files, and closes them. A second call does
// nothing.
func (n *Node) Close() error {
	n.closed.Do(func() {
		n.stop()
		for _, l := range n.listeners {
			n.err = errors.Join(n.err, l.Close())
		}
		n.done.Wait()
		if n.members != nil {
			n.members.Wait()
		}
		for _, r := range n.partitions {
			r.stopThread()
		}
		for _, r := range n.partitions {
			n.err = errors.Join(n.err, r.close())
		}
	})
	return n.err
}
