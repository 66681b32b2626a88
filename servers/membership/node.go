package membership

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"flashdbm/servers/circle"
	"flashdbm/servers/cluster"
	"flashdbm/servers/fabric"
	"flashdbm/servers/replica"
)

// Options make a node one of several.
type Options struct {
	Cluster   cluster.Cluster // belongs to the caller, which closes it after the node
	Node      string          // name of the node, the same in all its lives: letters, digits, - and _
	Replicas  int             // members of a shard, the primary included; 0: 3
	Strict    bool            // memory and async mode: an entry is committed once all members have merged it, not only placed it
	MinInSync int             // members that a shard needs for writes; 0: a majority of Replicas
	LogBytes  int             // size of each shard's log, and of its ring; 0: 64 MiB. A power of two from 64 KiB

}

const (
	// sessionTTL is how long a silent node counts as alive: the least that etcd allows. Longer: a failure that has
	// no other sign is found later.
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

var nodeName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Check returns what is wrong with the options, or nil.
func (o *Options) Check() error {
	switch {
	case !nodeName.MatchString(o.Node):
		return fmt.Errorf("membership: a node's name has 1 to 64 letters, digits, - and _; %q is none", o.Node)
	case o.Cluster == nil:
		return errors.New("membership: no cluster to join")
	case o.Replicas < 0 || o.Replicas > 7:
		return fmt.Errorf("membership: %d replicas; 1 to 7 are possible", o.Replicas)
	case o.MinInSync < 0:
		return fmt.Errorf("membership: %d members are needed for writes; want 1 or more, or 0 for a majority", o.MinInSync)
	case o.LogBytes != 0 && (o.LogBytes < 64<<10 || o.LogBytes&(o.LogBytes-1) != 0):
		return fmt.Errorf("membership: a log of %d bytes; want a power of two from 65,536", o.LogBytes)
	}
	return nil
}

// RingSize returns the size of a shard's log, and of its ring, in bytes.
func (o *Options) RingSize() int { return cmp.Or(o.LogBytes, defaultLog) }

// A Table has the settings that the node gives the cluster if it is the first node.
type Table struct {
	Kind       string // the kind of the table, as its nodes name it; "" stands for hydra
	Seed       uint64 // of the hash of keys
	Shards     int
	Want       int                // the shards with which the cluster must have begun; 0: any number
	Circle     *circle.Assignment // the shards, if they are others than 0 to Shards-1
	Durability string
	// Keeps says that the files of a new life of a node have all that the last life has acknowledged. Otherwise the
	// new life is another member.
	Keeps bool
	// Together says that transactions span shards: if one shard loses entries, the others must not keep theirs.
	Together bool
}

// A Site has the addresses of a node.
type Site struct {
	Peers    fabric.Domain // the domain through which other nodes connect
	PeerAddr string        // the address at which they connect
	Addrs    []string      // addresses for clients
	Secret   []byte        // the cluster's secret
}

// WithoutScheme returns the address of a public "scheme:address" without its scheme, as other nodes need it.
func WithoutScheme(public string) string {
	_, addr, _ := strings.Cut(public, ":")
	return addr
}

// Config has the settings that all nodes of a cluster share. The first node sets them.
type Config struct {
	Table      string `json:"table,omitempty"`
	Seed       uint64 `json:"seed"`
	Shards     int    `json:"shards"`
	Durability string `json:"durability"`
	Replicas   int    `json:"replicas"`
	Strict     bool   `json:"strict"`
	MinInSync  int    `json:"min_insync"`
	// Circle has the first shards, if they were others than 0 to Shards-1: the cluster began with backups of a
	// cluster that had grown.
	Circle *circle.Assignment `json:"circle,omitempty"`
}

// First returns the first assignment of shards.
func (c *Config) First() circle.Assignment {
	if c.Circle != nil {
		return *c.Circle
	}
	return circle.First(c.Shards)
}

// A State is what a node knows of its cluster as of a revision; it includes every change up to that revision. It is
// immutable.
type State struct {
	Revision uint64
	Circle   circle.Assignment
	Changed  uint64 // revision of Circle, 0 if the cluster has stored none yet
	Seed     uint64
	Records  map[uint32]replica.Record // by shard
}

// A nodeEntry is what a live node publishes about itself.
type nodeEntry struct {
	Member string   `json:"member"` // its name in records
	Peer   string   `json:"peer"`   // address for other nodes
	Addrs  []string `json:"addrs"`  // addresses for clients
	// Leaves says that this life is about to end: the other nodes go on without it before that.
	Leaves bool `json:"leaves,omitempty"`
	// Files has for each shard the newest entry in the node's file, and its term, as this life has found them.
	Files map[uint32]replica.Term `json:"files,omitempty"`
}

// A Node is this node's view of the cluster, and its part in it.
type Node struct {
	o       Options
	table   Table
	site    Site
	config  Config
	self    string // name of this life in records
	ended   map[uint32]uint64
	post    chan note
	leaving atomic.Bool     // this node is about to end
	ctx     context.Context // until the node ends
	done    sync.WaitGroup
	changes func(State) // receives new states; nil: copies learn their records instead

	copyMu sync.Mutex // guards copies; no other lock is taken while it is held
	copies []*Copy

	mu      sync.Mutex // guards the fields below
	nodes   map[string]nodeEntry
	records map[uint32]replica.Record
	drained map[string]bool // nodes that should have no shards
	leader  string          // the elected member; "" if there is none
	circle  circle.Assignment
	changed uint64 // revision of circle
	session cluster.Session

	knows atomic.Pointer[knowledge]
}

// knowledge is what a Node knows at one moment. It is immutable.
type knowledge struct {
	nodes   map[string]nodeEntry // by member
	drained map[string]bool      // members that should have no shards: their nodes are drained, or about to end
	places  circle.Map
	mapBody []byte
	state   State
}

// joinTimeout is how long a starting node tries to reach the cluster.
const joinTimeout = 10 * time.Second

// Join makes a node one of a cluster, until the context ends. The node does not take part
// before Run.
func Join(ctx context.Context, o Options, t Table, s Site) (*Node, error) {
	m := &Node{o: o, table: t, site: s, ctx: ctx, post: make(chan note, postRoom), ended: map[uint32]uint64{}, nodes: map[string]nodeEntry{}, records: map[uint32]replica.Record{}, drained: map[string]bool{}}
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	if err := m.configure(ctx); err != nil {
		return nil, err
	}
	m.circle = m.config.First()
	m.self = m.o.Node
	if !t.Keeps { // a new life lacks what the old one had in memory: it is another member
		var b [4]byte
		rand.Read(b[:])
		m.self += "." + hex.EncodeToString(b[:])
	}
	revision, err := m.list(ctx)
	if err != nil {
		return nil, err
	}
	for number, rec := range m.records {
		m.ended[number] = rec.Term
	}
	m.publish(revision)
	return m, nil
}

// Run registers the node, and takes part in the cluster until the context of Join ends. The caller has created all
// copies before.
func (m *Node) Run() error {
	if err := m.register(m.ctx); err != nil {
		return err
	}
	m.done.Go(func() { m.follow(m.ctx) })
	m.done.Go(func() { m.live(m.ctx) })
	m.done.Go(func() { m.lead(m.ctx) })
	m.done.Go(func() { m.deliver(m.ctx) })
	return nil
}

// Wait waits until the goroutines of Run have ended.
func (m *Node) Wait() { m.done.Wait() }

// Config returns the settings that all nodes share. Self returns the name of this life in records.
func (m *Node) Config() Config { return m.config }
func (m *Node) Self() string   { return m.self }

// Ended returns the term of the shard's record when this life began: the life does not reign in it.
func (m *Node) Ended(shard uint32) uint64 { return m.ended[shard] }

// State returns the present state.
func (m *Node) State() State { return m.knows.Load().state }

// OnChange sets a function that receives every new state from Run on, in place of the copies. The goroutine that
// follows the cluster calls it.
func (m *Node) OnChange(changes func(State)) { m.changes = changes }

// Copies returns the shards of this node.
func (m *Node) Copies() []*Copy {
	m.copyMu.Lock()
	defer m.copyMu.Unlock()
	return slices.Clone(m.copies)
}

// Remove removes a shard that this node no longer has.
func (m *Node) Remove(c *Copy) {
	m.copyMu.Lock()
	defer m.copyMu.Unlock()
	m.copies = slices.DeleteFunc(m.copies, func(x *Copy) bool { return x == c })
}

// Present publishes the node's entry again, with the contents of its files, if the node is registered.
func (m *Node) Present() {
	m.mu.Lock()
	s := m.session
	m.mu.Unlock()
	if s != nil {
		m.present(m.ctx, s)
	}
}

// Map returns the version of the present map, and the encoded map.
func (m *Node) Map() (version uint32, body []byte) {
	k := m.knows.Load()
	return k.places.Version, k.mapBody
}

// Drained reports whether this node should have no shards.
func (m *Node) Drained() bool { return m.knows.Load().drained[m.self] }

// Record returns the newest known record of a shard.
func (m *Node) Record(shard uint32) replica.Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.records[shard]
}

// configure reads the settings that all nodes share, or sets them.
func (m *Node) configure(ctx context.Context) error {
	c := Config{
		Table: m.table.Kind, Seed: m.table.Seed, Shards: m.table.Shards, Durability: m.table.Durability, Replicas: cmp.Or(m.o.Replicas, 3), Strict: m.o.Strict, MinInSync: m.o.MinInSync,
		Circle: m.table.Circle,
	}
	c.MinInSync = cmp.Or(c.MinInSync, c.Replicas/2+1)
	if c.MinInSync > c.Replicas {
		return fmt.Errorf("membership: %d members are needed for writes, and a shard has %d; lower the first, or raise the second", c.MinInSync, c.Replicas)
	}
	v, err := m.o.Cluster.Get(ctx, configKey)
	if err == nil && v.Revision == 0 {
		b, _ := json.Marshal(c)
		if _, err = m.o.Cluster.CompareAndSet(ctx, configKey, 0, b); err == nil || errors.Is(err, cluster.ErrChanged) {
			v, err = m.o.Cluster.Get(ctx, configKey)
		}
	}
	if err != nil {
		return fmt.Errorf("membership: the cluster's settings: %w", err)
	}
	if err := json.Unmarshal(v.Data, &m.config); err != nil {
		return fmt.Errorf("membership: the cluster's settings: %w", err)
	}
	switch {
	case m.config.Table != c.Table:
		return fmt.Errorf("membership: the cluster has a table of kind %s, and this node was told %s", cmp.Or(m.config.Table, "hydra"), cmp.Or(c.Table, "hydra"))
	case m.config.Durability != c.Durability:
		return fmt.Errorf("membership: the cluster has durability %s, and this node was told %s", m.config.Durability, c.Durability)
	case m.table.Want != 0 && m.table.Want != m.config.Shards:
		return fmt.Errorf("membership: the cluster began with %d shards, and this node was told %d", m.config.Shards, m.table.Want)
	}
	return nil
}

// list reads everything in the cluster.
func (m *Node) list(ctx context.Context) (revision uint64, err error) {
	values, revision, err := m.o.Cluster.List(ctx, "")
	if err != nil {
		return 0, fmt.Errorf("membership: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nodes, m.drained, m.leader = map[string]nodeEntry{}, map[string]bool{}, ""
	there := map[string]bool{}
	for _, v := range values {
		there[v.Name] = true
	}
	for number := range m.records {
		if m.circle.Retired(number) && !there[shardKey(number)] {
			delete(m.records, number)
		}
	}
	for _, v := range values {
		m.take(v)
	}
	return revision, nil
}

// take records one value. The caller holds mu. It ignores values that it does not understand: a newer version may
// have written them.
func (m *Node) take(v cluster.Value) {
	if v.Name == leaderKey {
		m.leader = string(v.Data)
	}
	// a deleted circle is not forgotten: etcd has lost it, and the shards still exist
	if v.Name == circleKey && v.Revision > m.changed {
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
		if err == nil && v.Data == nil && m.circle.Retired(uint32(number)) {
			delete(m.records, uint32(number))
			return
		}
		if rec, rerr := replica.ParseRecord(v.Data, v.Revision); err == nil && rerr == nil && rec.Revision > m.records[uint32(number)].Revision {
			m.records[uint32(number)] = rec
		}
	}
}

// register begins a session and publishes the node's entry.
func (m *Node) register(ctx context.Context) error {
	s, err := m.o.Cluster.Session(ctx, sessionTTL)
	if err != nil {
		return fmt.Errorf("membership: a session: %w", err)
	}
	if err := m.present(ctx, s); err != nil {
		s.Close()
		return fmt.Errorf("membership: cannot register the node: %w", err)
	}
	m.mu.Lock()
	m.session = s
	m.mu.Unlock()
	return nil
}

// present publishes the node's entry.
func (m *Node) present(ctx context.Context, s cluster.Session) error {
	e := nodeEntry{Member: m.self, Peer: m.site.PeerAddr, Addrs: m.site.Addrs, Files: map[uint32]replica.Term{}, Leaves: m.leaving.Load()}
	for _, c := range m.Copies() {
		e.Files[c.number] = c.Found
	}
	b, _ := json.Marshal(e)
	_, err := s.Put(ctx, nodePrefix+m.o.Node, b)
	return err
}

// publish makes the present knowledge, as of the revision, visible to all goroutines, and tells the shards.
func (m *Node) publish(revision uint64) {
	m.mu.Lock()
	k := &knowledge{nodes: map[string]nodeEntry{}, drained: map[string]bool{}}
	for name, e := range m.nodes {
		k.nodes[e.Member] = e
		k.drained[e.Member] = m.drained[name] || e.Leaves
	}
	k.places = circle.Map{Version: uint32(revision), Seed: m.config.Seed}
	k.state = State{Revision: revision, Circle: m.circle, Changed: m.changed, Seed: m.config.Seed, Records: maps.Clone(m.records)}
	if m.circle.Moving() {
		k.places.Moving = m.circle
	}
	for _, i := range m.circle.Owners() {
		rec := m.records[i]
		p := circle.Place{Shard: i}
		for _, name := range append([]string{rec.Primary}, rec.Set...) {
			for _, a := range k.nodes[name].Addrs {
				if !slices.Contains(p.Addrs, a) && len(p.Addrs) < maxPlaceAddrs {
					p.Addrs = append(p.Addrs, a)
				}
			}
		}
		if len(p.Addrs) == 0 {
			p.Addrs = m.site.Addrs // no live node is known: clients ask this node again
		}
		k.places.Shards = append(k.places.Shards, p)
	}
	m.mu.Unlock()
	k.mapBody = k.places.AppendBody(nil)
	first := m.knows.Swap(k) == nil
	switch {
	case first:
	case m.changes != nil:
		m.changes(k.state)
	default:
		for _, c := range m.Copies() {
			if rec := k.state.Records[c.number]; rec.Revision > 0 {
				c.hand(func() { c.shard.Learn(rec) })
			}
		}
	}
}

// maxPlaceAddrs is the most addresses of a shard in the map.
const maxPlaceAddrs = 16

// follow tracks the cluster until the context ends.
func (m *Node) follow(ctx context.Context) {
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

// live keeps the node registered, and keeps it a candidate for the election.
func (m *Node) live(ctx context.Context) {
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

// ranked returns the live members that may have shards, in the order of the given shard.
func (m *Node) ranked(number uint32) (list []string) {
	k := m.knows.Load()
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

// change proposes a shard's record by compare-and-set, and tells the shard the resulting record, if it is known.
func (m *Node) change(c *Copy, next replica.Record) {
	ctx, cancel := context.WithTimeout(m.ctx, askTimeout)
	defer cancel()
	key := shardKey(c.number)
	if revision, err := m.o.Cluster.CompareAndSet(ctx, key, next.Revision, next.Data()); err == nil {
		next.Revision = revision
		c.hand(func() { c.shard.Learn(next) })
		return
	}
	v, err := m.o.Cluster.Get(ctx, key)
	if err != nil {
		return // the reign proposes it again
	}
	if rec, err := replica.ParseRecord(v.Data, v.Revision); err == nil {
		c.hand(func() { c.shard.Learn(rec) })
	}
}

func shardKey(number uint32) string { return shardPrefix + strconv.FormatUint(uint64(number), 10) }
