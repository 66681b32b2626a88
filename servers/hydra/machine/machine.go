package machine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"flashdbm/servers/arena"
	"flashdbm/servers/circle"
	"flashdbm/servers/fabric"
	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/membership"
	"flashdbm/servers/shard"
	"flashdbm/servers/store"
	"flashdbm/servers/wire"
)

// Listen is an address for clients.
type Listen struct {
	Domain fabric.Domain // belongs to the caller, which closes it after the node
	Addr   string        // in the form of the domain's provider
	Public string        // the address in the map, such as "shm:/run/flashdbm/n1.sock"
	Peers  bool          // other nodes of a cluster connect here; if no Listen has it set, to the last one
}

// Options configure a node.
type Options struct {
	Dir        string // for node.json and the files; may be empty in memory mode
	Shards     int    // number of threads; 0: as in the directory, 1 if it is new
	Durability shard.Durability
	// Listen: at least one; items are in memory of the first one's domain, so one-sided Reads need a connection
	// through it
	Listen  []Listen
	Memory  int64           // bytes of items per shard; 0: no limit
	Extent  int             // bytes of a region of items; 0: 256 MiB
	MaxFile int64           // bytes of a shard's file; 0: no limit
	Evict   bool            // memory mode: a full shard evicts items that were not used recently
	Secret  []byte          // required of clients; empty: none
	Cluster *ClusterOptions // nil: the node is alone
	keep    time.Duration   // how long a shard without keys is kept; 0: retireAfter. Tests set a shorter time
	Pin     bool            // each shard's thread stays on one processor, from the last one down
}

// syncPause is the pause between two syncs in async mode: with the sync itself, the file is well below a second
// behind.
const syncPause = 200 * time.Millisecond

// A Node is open until Close.
type Node struct {
	o         Options
	id        identity
	members   *membership.Node           // nil: the node is alone
	view      atomic.Pointer[shard.View] // of the cluster
	failed    atomic.Pointer[error]      // an added shard could not be opened
	retiring  map[uint32]bool            // shards without keys that will be closed. Only the goroutine that follows the cluster uses it
	shards    atomic.Pointer[[]*runner]  // in ascending order of numbers; the list is immutable, and replaced as a whole
	changing  sync.Mutex                 // held while the list is replaced
	listeners []fabric.Listener
	circle    *circle.Circle
	places    protocol.Map
	mapBody   []byte
	next      atomic.Uint32   // for the next client that asks for any shard
	ctx       context.Context // until Close
	stop      context.CancelFunc
	done      sync.WaitGroup
	closed    sync.Once
	err       error
}

// mapVersion returns the version of the only map that a node without a cluster has in this life. A node in memory has
// another seed in its next life, and a client that outlives this life accepts the new seed only from a map with a
// higher version. So the version is the time, in tenths of a second since 2026; 32 bits are enough until 2039.
func mapVersion() uint32 { return uint32(max(1, time.Since(mapEpoch)/(time.Second/10))) }

var mapEpoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Open starts a node. It returns the errors of the files unchanged: dbm.ErrLocked if another node has the directory.
func Open(o Options) (*Node, error) {
	if len(o.Listen) == 0 {
		return nil, errors.New("machine: no address to listen on")
	}
	if o.Dir == "" && o.Durability != shard.Memory {
		return nil, errors.New("machine: durability async and sync need a directory")
	}
	if o.Shards < 0 || o.Shards > protocol.MaxShards {
		return nil, fmt.Errorf("machine: %d shards; 1 to %d are possible", o.Shards, protocol.MaxShards)
	}
	id := drawn(max(1, o.Shards))
	if o.Cluster == nil {
		var err error
		if id, err = readIdentity(o.Dir, o.Shards); err != nil {
			return nil, err
		}
	} else if err := o.Cluster.Check(); err != nil {
		return nil, err
		// from its first node, a new cluster takes the directory's identity
	} else if b, err := os.ReadFile(filepath.Join(o.Dir, nodeFile)); err == nil && o.Dir != "" {
		if err := json.Unmarshal(b, &id); err != nil {
			return nil, fmt.Errorf("machine: %s is not what this program has written: %w", filepath.Join(o.Dir, nodeFile), err)
		}
	}
	o.Listen = slices.Clone(o.Listen)
	n := &Node{o: o, id: id, retiring: map[uint32]bool{}}
	if err := n.open(); err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

func (n *Node) open() error {
	ctx, stop := context.WithCancel(context.Background())
	n.ctx, n.stop = ctx, stop
	for _, l := range n.o.Listen {
		listener, err := l.Domain.Listen(l.Addr)
		if err != nil {
			return fmt.Errorf("machine: %w", err)
		}
		n.listeners = append(n.listeners, listener)
	}
	if n.o.Cluster != nil {
		if err := n.join(ctx); err != nil {
			return err
		}
	}
	n.makeMap()
	numbers := n.id.circle().Shards
	if n.members != nil {
		n.deleteRetired()
		numbers = n.view.Load().Circle.All()
	}
	for _, i := range numbers {
		if err := n.add(i); err != nil {
			return err
		}
	}
	for _, r := range n.runners() {
		r.start()
	}
	for i, l := range n.listeners {
		n.done.Go(func() { n.accept(ctx, i, l) })
	}
	if n.members != nil {
		return n.members.Run()
	}
	return nil
}

// runners returns the shards, in ascending order of their numbers.
func (n *Node) runners() []*runner {
	if list := n.shards.Load(); list != nil {
		return *list
	}
	return nil
}

// runner returns a shard, nil if the node does not have it.
func (n *Node) runner(number uint32) *runner {
	for _, r := range n.runners() {
		if r.number == number {
			return r
		}
	}
	return nil
}

// add opens a shard.
func (n *Node) add(number uint32) error {
	r, err := n.newRunner(number)
	if err != nil {
		return fmt.Errorf("machine: shard %d: %w", number, err)
	}
	n.changeRunners(func(list []*runner) []*runner {
		list = append(list, r)
		slices.SortFunc(list, func(a, b *runner) int { return cmp.Compare(a.number, b.number) })
		return list
	})
	return nil
}

// changeRunners replaces the list of shards by change's result for a copy of it.
func (n *Node) changeRunners(change func([]*runner) []*runner) {
	n.changing.Lock()
	defer n.changing.Unlock()
	list := change(slices.Clone(n.runners()))
	n.shards.Store(&list)
}

// publicAddrs returns the addresses for clients.
func (n *Node) publicAddrs() (addrs []string) {
	for i, l := range n.listeners {
		if a := n.o.Listen[i].Public; a != "" {
			addrs = append(addrs, a)
		} else {
			addrs = append(addrs, l.Addr())
		}
	}
	return addrs
}

func (n *Node) makeMap() {
	m := protocol.Map{Version: mapVersion(), Seed: n.id.Seed}
	addrs := n.publicAddrs()
	for _, i := range n.id.circle().Shards {
		m.Shards = append(m.Shards, protocol.Place{Shard: i, Addrs: addrs})
	}
	n.circle = m.Circle()
	n.places, n.mapBody = m, m.AppendBody(nil)
}

// domains are those of the listeners, in their order.
func (n *Node) domains() (list []fabric.Domain) {
	for _, l := range n.o.Listen {
		list = append(list, l.Domain)
	}
	return list
}

// newRunner opens a shard's file and creates the shard.
func (n *Node) newRunner(number uint32) (*runner, error) {
	r := &runner{n: n, number: number, began: time.Now(), attach: make(chan attachment, 64), ended: make(chan struct{})}
	var err error
	if r.groups, err = wire.NewGroups(n.domains(), groupOps); err != nil {
		return nil, err
	}
	o := shard.Options{
		Shard: number, Term: uint64(time.Now().UnixNano()), Seed: n.id.Seed, Durability: n.o.Durability, Clock: r.clock, Evict: n.o.Evict,
		Arena: arena.Options{Extent: n.o.Extent, Limit: n.o.Memory}, Alloc: n.o.Listen[0].Domain.Alloc,
		Map: n.anyMap,
	}
	if n.members == nil && len(n.places.Shards) > 1 {
		o.Owns = func(hash uint64) bool {
			owner, _ := n.circle.Owner(hash)
			return owner == number
		}
	}
	var locked int64
	if n.o.Durability != shard.Memory {
		if r.store, locked, err = r.openStore(r.path()); err != nil {
			r.close()
			return nil, err
		}
		o.Store = r.store
	}
	if n.members != nil {
		if o.Membership, err = r.membership(); err != nil {
			r.close()
			return nil, err
		}
	}
	if r.shard, err = shard.New(o); err != nil {
		r.close()
		return nil, err
	}
	if r.store != nil {
		r.shard.AloneSince(locked)
	}
	if r.copy != nil {
		r.copy.SetShard(r.shard)
		r.shard.See(n.view.Load())
	}
	return r, nil
}

// path returns the path of the shard's file.
func (r *runner) path() string {
	return filepath.Join(r.n.o.Dir, shardFile(r.number))
}

func shardFile(number uint32) string { return fmt.Sprintf("shard-%d.fdbm", number) }

// openStore opens a file of the shard, and returns the time at which it had the file's lock, by the shard's clock.
func (r *runner) openStore(path string) (*store.Store, int64, error) {
	f, err := store.OpenFile(path, r.n.o.MaxFile)
	if err != nil {
		return nil, 0, err
	}
	locked := int64(store.Locked(f).Sub(r.began))
	pause := syncPause
	if r.n.o.Durability == shard.Sync {
		pause = 0
	}
	s, err := store.Open(f, r.stored, pause)
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return s, locked, nil
}

// Seed returns the seed of the hash of keys.
func (n *Node) Seed() uint64 { return n.id.Seed }

// Addrs returns the addresses of the listeners, in the order of Options.Listen.
func (n *Node) Addrs() []string {
	var a []string
	for _, l := range n.listeners {
		a = append(a, l.Addr())
	}
	return a
}

// Err returns why shards no longer serve, nil while all serve.
func (n *Node) Err() error {
	var all error
	for _, r := range n.runners() {
		if err := r.failure.Load(); err != nil {
			all = errors.Join(all, fmt.Errorf("shard %d: %w", r.number, *err))
		}
	}
	if n.members != nil {
		if err := n.failed.Load(); err != nil {
			all = errors.Join(all, *err)
		}
	}
	return all
}

// Status describes a node. Any goroutine may ask for it.
type Status struct {
	Durability string        `json:"durability"`
	Node       string        `json:"node,omitempty"`     // its name in records, in a cluster
	Replicas   int           `json:"replicas,omitempty"` // copies that each shard should have
	Drained    bool          `json:"drained,omitempty"`  // the node should have no shards
	Shards     []ShardStatus `json:"shards"`
	// Circle is the assignment of the cluster's shards, with the moves under way.
	Circle *circle.Assignment `json:"circle,omitempty"`
}

// ShardStatus is the state of a shard some 50 ms ago, 200 ms if it is idle.
type ShardStatus struct {
	Shard int `json:"shard"`
	shard.Stats
	Failure string `json:"failure,omitempty"`
}

// Status returns the node's status.
func (n *Node) Status() Status {
	s := Status{Durability: n.o.Durability.String()}
	if n.members != nil {
		s.Node, s.Replicas, s.Drained = n.members.Self(), n.members.Config().Replicas, n.members.Drained()
		s.Circle = &n.view.Load().Circle
	}
	for _, r := range n.runners() {
		x := ShardStatus{Shard: int(r.number)}
		if stats := r.stats.Load(); stats != nil {
			x.Stats = *stats
		}
		if err := r.failure.Load(); err != nil {
			x.Failure = (*err).Error()
		}
		s.Shards = append(s.Shards, x)
	}
	return s
}

// Close ends all connections, writes acknowledged entries to the files, and closes them. A second call does nothing.
func (n *Node) Close() error {
	n.closed.Do(func() {
		if n.stop != nil {
			n.stop()
		}
		for _, l := range n.listeners {
			n.err = errors.Join(n.err, l.Close())
		}
		n.done.Wait()
		if n.members != nil {
			n.members.Wait()
		}
		for _, r := range n.runners() {
			n.err = errors.Join(n.err, r.end())
		}
	})
	return n.err
}

// processor returns the processor of a pinned shard.
func (n *Node) processor(number uint32) int {
	cpus := runtime.NumCPU()
	return cpus - 1 - int(number)%cpus
}

var errNoSuchShard = errors.New("machine: no such shard")
