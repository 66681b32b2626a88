package machine

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"flashdbm/servers/circle"
	"flashdbm/servers/cluster"
	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/replica"
	"flashdbm/servers/shard"
)

// ClusterOptions make a node one of several.
type ClusterOptions struct {
	Cluster   cluster.Cluster // stays the caller's; it is closed after the node
	Node      string          // name of the node, which it keeps over its lives: letters, digits, - and _
	Replicas  int             // members of a shard, the primary included; 0: 3
	Strict    bool            // memory and async mode: an entry counts once all members have merged it, not only placed it
	MinInSync int             // members that a shard needs for writes; 0: most of the replicas
	LogBytes  int             // of each shard's log, and of its ring; 0: 64 MiB. A power of two from 64 KiB

	keep time.Duration // how long a shard without keys is kept; 0: retireAfter. Tests have less patience
}

const (
	// sessionTTL is how long a node that is silent counts as alive: etcd's least. Longer: a failure that nothing else tells is found later.
	sessionTTL  = 2 * time.Second
	defaultLog  = 64 << 20
	askTimeout  = time.Second
	configKey   = "config"
	nodePrefix  = "nodes/"
	shardPrefix = "shards/"
	circleKey   = "circle"
	leaderKey   = "swat"
	drainPrefix = "drains/"
)

// clusterConfig is what all nodes of a cluster have in common. The first node sets it.
type clusterConfig struct {
	Seed       uint64 `json:"seed"`
	Shards     int    `json:"shards"`
	Durability string `json:"durability"`
	Replicas   int    `json:"replicas"`
	Strict     bool   `json:"strict"`
	MinInSync  int    `json:"min_insync"`
	// Circle is which shards there were at first, if they were others than 0 to Shards-1: the cluster began with backups of one that had grown.
	Circle *circle.Assignment `json:"circle,omitempty"`
}

// A nodeEntry is what a living node says of itself.
type nodeEntry struct {
	Member string   `json:"member"` // its name in records
	Peer   string   `json:"peer"`   // where other nodes connect
	Addrs  []string `json:"addrs"`  // where clients do
	// Leaves says that this life is about to end: others go on without it before that.
	Leaves bool `json:"leaves,omitempty"`
	// Files tells of each shard's file as this life has found it: the term of its newest entry, and the entry.
	Files map[uint32]replica.Term `json:"files,omitempty"`
}

// members is what a node knows of the cluster.
type members struct {
	n       *Node
	o       ClusterOptions
	config  clusterConfig
	self    string // name of this life in records
	listen  int    // index of the listener for nodes
	ended   map[uint32]uint64
	leaving atomic.Bool           // this node is about to end
	failed  atomic.Pointer[error] // a shard that has come could not be opened
	// retiring are shards without keys that will be closed. The goroutine that follows the cluster uses it.
	retiring map[uint32]bool

	mu      sync.Mutex // guards what follows
	nodes   map[string]nodeEntry
	records map[uint32]replica.Record
	drained map[string]bool // nodes that shall have no shards
	leader  string          // the member that is elected; "" if none is
	circle  circle.Assignment
	changed uint64 // revision of circle
	session cluster.Session

	known atomic.Pointer[knowledge]
}

// knowledge is the members' at one moment. It does not change.
type knowledge struct {
	nodes   map[string]nodeEntry // by member
	drained map[string]bool      // members that shall have no shards: their nodes are drained, or about to end
	places  protocol.Map
	mapBody []byte
	view    *shard.View
}

// join makes the node one of a cluster. The listeners are there.
func (n *Node) join(ctx context.Context) error {
	m := &members{n: n, o: *n.o.Cluster, listen: len(n.o.Listen) - 1, ended: map[uint32]uint64{}, nodes: map[string]nodeEntry{}, records: map[uint32]replica.Record{}, drained: map[string]bool{}, retiring: map[uint32]bool{}}
	if err := m.configure(ctx); err != nil {
		return err
	}
	m.circle = n.id.circle()
	m.self = m.o.Node
	if n.o.Durability != shard.Sync { // what a new life has lost is not its file's: it is another member
		var b [4]byte
		rand.Read(b[:])
		m.self += "." + hex.EncodeToString(b[:])
	}
	revision, err := m.list(ctx)
	if err != nil {
		return err
	}
	for number, rec := range m.records {
		m.ended[number] = rec.Term
	}
	n.members = m
	m.publish(revision)
	return nil
}

// configure reads what all nodes have in common, or sets it.
func (m *members) configure(ctx context.Context) error {
	n := m.n
	c := clusterConfig{
		Seed: n.id.Seed, Shards: n.id.Shards, Durability: n.o.Durability.String(), Replicas: cmp.Or(m.o.Replicas, 3), Strict: m.o.Strict, MinInSync: m.o.MinInSync,
		Circle: n.id.Circle,
	}
	c.MinInSync = cmp.Or(c.MinInSync, c.Replicas/2+1)
	if c.MinInSync > c.Replicas {
		return fmt.Errorf("machine: %d members are needed for writes, and a shard has %d; lower the first, or raise the second", c.MinInSync, c.Replicas)
	}
	v, err := m.o.Cluster.Get(ctx, configKey)
	if err == nil && v.Revision == 0 {
		b, _ := json.Marshal(c)
		if _, err = m.o.Cluster.CompareAndSet(ctx, configKey, 0, b); err == nil || errors.Is(err, cluster.ErrChanged) {
			v, err = m.o.Cluster.Get(ctx, configKey)
		}
	}
	if err != nil {
		return fmt.Errorf("machine: the cluster's settings: %w", err)
	}
	if err := json.Unmarshal(v.Data, &m.config); err != nil {
		return fmt.Errorf("machine: the cluster's settings: %w", err)
	}
	if m.config.Durability != c.Durability {
		return fmt.Errorf("machine: the cluster has durability %s, and this node was told %s", m.config.Durability, c.Durability)
	}
	if n.o.Shards != 0 && n.o.Shards != m.config.Shards {
		return fmt.Errorf("machine: the cluster began with %d shards, and this node was told %d", m.config.Shards, n.o.Shards)
	}
	if n.id, err = adoptIdentity(n.o.Dir, identity{Layout: 1, Seed: m.config.Seed, Shards: m.config.Shards, Circle: m.config.Circle}); err != nil {
		return err
	}
	return nil
}

// list reads all that the cluster knows.
func (m *members) list(ctx context.Context) (revision uint64, err error) {
	values, revision, err := m.o.Cluster.List(ctx, "")
	if err != nil {
		return 0, fmt.Errorf("machine: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nodes, m.drained, m.leader = map[string]nodeEntry{}, map[string]bool{}, ""
	there := map[string]bool{}
	for _, v := range values {
		there[v.Name] = true
	}
	for number := range m.records {
		if m.retired(number) && !there[shardKey(number)] {
			delete(m.records, number)
		}
	}
	for _, v := range values {
		m.take(v)
	}
	return revision, nil
}

// take takes one value. mu is held. What is not understood is left out: a newer version may have written it.
func (m *members) take(v cluster.Value) {
	if v.Name == leaderKey {
		m.leader = string(v.Data)
	}
	if v.Name == circleKey && v.Revision > m.changed { // one that is gone is not forgotten: it went with etcd, and the shards are there
		var a circle.Assignment
		if json.Unmarshal(v.Data, &a) == nil && len(a.Shards) > 0 {
			m.circle, m.changed = a, v.Revision
		}
	}
	if name, ok := strings.CutPrefix(v.Name, nodePrefix); ok {
		var e nodeEntry
		if v.Data == nil || json.Unmarshal(v.Data, &e) != nil {
			delete(m.nodes, name)
			return
		}
		m.nodes[name] = e
	}
	if name, ok := strings.CutPrefix(v.Name, drainPrefix); ok {
		m.drained[name] = v.Data != nil
	}
	if name, ok := strings.CutPrefix(v.Name, shardPrefix); ok {
		number, err := strconv.ParseUint(name, 10, 32)
		if err == nil && v.Data == nil && m.retired(uint32(number)) {
			delete(m.records, uint32(number))
			return
		}
		if rec, rerr := replica.ParseRecord(v.Data, v.Revision); err == nil && rerr == nil && rec.Revision > m.records[uint32(number)].Revision {
			m.records[uint32(number)] = rec
		}
	}
}

// register begins a session and says where the node is.
func (m *members) register(ctx context.Context) error {
	s, err := m.o.Cluster.Session(ctx, sessionTTL)
	if err != nil {
		return fmt.Errorf("machine: a session: %w", err)
	}
	if err := m.present(ctx, s); err != nil {
		s.Close()
		return fmt.Errorf("machine: cannot register the node: %w", err)
	}
	m.mu.Lock()
	m.session = s
	m.mu.Unlock()
	return nil
}

// present says what the node is.
func (m *members) present(ctx context.Context, s cluster.Session) error {
	e := nodeEntry{Member: m.self, Peer: m.peerAddr(), Addrs: m.n.publicAddrs(), Files: map[uint32]replica.Term{}, Leaves: m.leaving.Load()}
	for _, r := range m.n.runners() {
		e.Files[r.number] = r.found
	}
	b, _ := json.Marshal(e)
	_, err := s.Put(ctx, nodePrefix+m.o.Node, b)
	return err
}

// peerAddr returns where other nodes connect: what clients are told of the same listener, without its scheme.
func (m *members) peerAddr() string {
	if _, addr, ok := strings.Cut(m.n.o.Listen[m.listen].Public, ":"); ok {
		return addr
	}
	return m.n.listeners[m.listen].Addr()
}

// publish makes what is known what everybody sees, as of the revision, and tells the shards.
func (m *members) publish(revision uint64) {
	m.mu.Lock()
	k := &knowledge{nodes: map[string]nodeEntry{}, drained: map[string]bool{}}
	for name, e := range m.nodes {
		k.nodes[e.Member] = e
		k.drained[e.Member] = m.drained[name] || e.Leaves
	}
	k.places = protocol.Map{Version: uint32(revision), Seed: m.n.id.Seed}
	k.view = &shard.View{Revision: revision, Circle: m.circle, Changed: m.changed, Seed: m.n.id.Seed, Records: maps.Clone(m.records)}
	if m.circle.Moving() {
		k.places.Moving = m.circle
	}
	for _, i := range m.circle.Owners() {
		rec := m.records[i]
		p := protocol.Place{Shard: i}
		for _, name := range append([]string{rec.Primary}, rec.Set...) {
			for _, a := range k.nodes[name].Addrs {
				if !slices.Contains(p.Addrs, a) && len(p.Addrs) < maxPlaceAddrs {
					p.Addrs = append(p.Addrs, a)
				}
			}
		}
		if len(p.Addrs) == 0 {
			p.Addrs = m.n.publicAddrs() // nobody that is known lives: whoever asks comes back
		}
		k.places.Shards = append(k.places.Shards, p)
	}
	m.mu.Unlock()
	var last *shard.View
	if was := m.known.Load(); was != nil {
		last = was.view
	}
	k.view.Complete(last)
	k.mapBody = k.places.AppendBody(nil)
	m.known.Store(k)
	if last != nil {
		m.keepShards(k.view)
	}
	for _, r := range m.n.runners() {
		r.hand(m.n.ctx, attachment{view: k.view})
	}
}

// maxPlaceAddrs is how many addresses of a shard the map has.
const maxPlaceAddrs = 16

// follow keeps up with the cluster until the context ends.
func (m *members) follow(ctx context.Context) {
	for ctx.Err() == nil {
		revision, err := m.list(ctx)
		if err != nil {
			sleep(ctx, 100*time.Millisecond)
			continue
		}
		m.publish(revision)
		for v := range m.o.Cluster.Watch(ctx, "", revision) {
			m.mu.Lock()
			m.take(v)
			m.mu.Unlock()
			m.publish(v.Revision)
		}
	}
}

// live keeps the node registered, and a candidate.
func (m *members) live(ctx context.Context) {
	for ctx.Err() == nil {
		m.mu.Lock()
		s := m.session
		m.mu.Unlock()
		leading, stop := context.WithCancel(ctx)
		var done sync.WaitGroup
		done.Go(func() { s.Campaign(leading, leaderKey, []byte(m.self)) })
		select {
		case <-ctx.Done():
		case <-s.Done():
		}
		stop()
		done.Wait()
		s.Close()
		for ctx.Err() == nil && m.register(ctx) != nil {
			sleep(ctx, 100*time.Millisecond)
		}
	}
	m.session.Close()
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// ranked returns the members that live and may have shards, in an order that each shard has of its own.
func (m *members) ranked(number uint32) (list []string) {
	k := m.known.Load()
	for name := range k.nodes {
		if !k.drained[name] {
			list = append(list, name)
		}
	}
	rank := func(name string) uint64 {
		node, _, _ := strings.Cut(name, ".")
		return circle.Hash(uint64(number), []byte(node))
	}
	slices.SortFunc(list, func(a, b string) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b)) })
	return list
}

// change makes a compare-and-set of a shard's record, and tells the shard what the record is then, if that is known.
func (m *members) change(ctx context.Context, r *runner, next replica.Record) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	key := shardKey(r.number)
	if revision, err := m.o.Cluster.CompareAndSet(ctx, key, next.Revision, next.Data()); err == nil {
		next.Revision = revision
		r.hand(m.n.ctx, attachment{record: &next})
		return
	}
	v, err := m.o.Cluster.Get(ctx, key)
	if err != nil {
		return // it is proposed again
	}
	if rec, err := replica.ParseRecord(v.Data, v.Revision); err == nil {
		r.hand(m.n.ctx, attachment{record: &rec})
	}
}

func shardKey(number uint32) string { return shardPrefix + strconv.FormatUint(uint64(number), 10) }
