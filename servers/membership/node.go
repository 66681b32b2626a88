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
	Cluster   cluster.Cluster // stays the caller's; it is closed after the node
	Node      string          // name of the node, which it keeps over its lives: letters, digits, - and _
	Replicas  int             // members of a shard, the primary included; 0: 3
	Strict    bool            // memory and async mode: an entry counts once all members have merged it, not only placed it
	MinInSync int             // members that a shard needs for writes; 0: most of the replicas
	LogBytes  int             // of each shard's log, and of its ring; 0: 64 MiB. A power of two from 64 KiB

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

var nodeName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Check returns what is wrong with the options.
func (o *Options) Check() error {
	switch {
	case !nodeName.MatchString(o.Node):
		return fmt.Errorf("membership: a node's name has 1 to 64 letters, digits, - and _; %q is none", o.Node)
	case o.Cluster == nil:
		return errors.New("membership: no cluster to join")
	case o.Replicas < 0 || o.Replicas > 7:
		return fmt.Errorf("membership: %d replicas; 1 to 7 are possible", o.Replicas)
	case o.LogBytes != 0 && (o.LogBytes < 64<<10 || o.LogBytes&(o.LogBytes-1) != 0):
		return fmt.Errorf("membership: a log of %d bytes; want a power of two from 65,536", o.LogBytes)
	}
	return nil
}

// RingSize is how many bytes a shard's log has, and its ring.
func (o *Options) RingSize() int { return cmp.Or(o.LogBytes, defaultLog) }

// A Table is what the node would make the cluster's, if it is the first one.
type Table struct {
	Kind       string // of the table, as its nodes say it; "" stands for hydra
	Seed       uint64 // of the hash of keys
	Shards     int
	Want       int                // shards that a cluster has to have begun with; 0: as many as it has
	Circle     *circle.Assignment // which shards there are, if they are others than 0 to Shards-1
	Durability string
	// Keeps says that a new life of a node has in its files all that the last one has acknowledged. Else it is another member.
	Keeps bool
	// Together says that what one shard has lost, others must not keep: transactions span shards.
	Together bool
}

// A Site is where a node is.
type Site struct {
	Peers    fabric.Domain // through which other nodes come
	PeerAddr string        // where they connect
	Addrs    []string      // where clients do
	Secret   []byte        // the cluster's
}

// WithoutScheme returns what other nodes connect to of an address that clients are told.
func WithoutScheme(public string) string {
	_, addr, _ := strings.Cut(public, ":")
	return addr
}

// Config is what all nodes of a cluster have in common. The first node sets it.
type Config struct {
	Table      string `json:"table,omitempty"`
	Seed       uint64 `json:"seed"`
	Shards     int    `json:"shards"`
	Durability string `json:"durability"`
	Replicas   int    `json:"replicas"`
	Strict     bool   `json:"strict"`
	MinInSync  int    `json:"min_insync"`
	// Circle is which shards there were at first, if they were others than 0 to Shards-1: the cluster began with backups of one that had grown.
	Circle *circle.Assignment `json:"circle,omitempty"`
}

// First returns which shards there were at first.
func (c *Config) First() circle.Assignment {
	if c.Circle != nil {
		return *c.Circle
	}
	return circle.First(c.Shards)
}

// A State is what a node knows of its cluster as of a revision: every change up to it is in it. It does not change.
type State struct {
	Revision uint64
	Circle   circle.Assignment
	Changed  uint64 // revision of Circle, 0 if the cluster has none of its own yet
	Seed     uint64
	Records  map[uint32]replica.Record // by shard
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

// A Node is what a node knows of the cluster, and does for it.
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
	changes func(State) // nil: copies learn their records

	copyMu sync.Mutex // guards copies; no other lock is taken while it is held
	copies []*Copy

	mu      sync.Mutex // guards what follows
	nodes   map[string]nodeEntry
	records map[uint32]replica.Record
	drained map[string]bool // nodes that shall have no shards
	leader  string          // the member that is elected; "" if none is
	circle  circle.Assignment
	changed uint64 // revision of circle
	session cluster.Session

	knows atomic.Pointer[knowledge]
}

// knowledge is what a Node knows at one moment. It does not change.
type knowledge struct {
	nodes   map[string]nodeEntry // by member
	drained map[string]bool      // members that shall have no shards: their nodes are drained, or about to end
	places  circle.Map
	mapBody []byte
	state   State
}

// joinTimeout is how long a node tries to reach the cluster when it starts.
const joinTimeout = 10 * time.Second

// Join makes a node one of a cluster, until the context ends. It serves nothing before Run.
func Join(ctx context.Context, o Options, t Table, s Site) (*Node, error) {
	m := &Node{o: o, table: t, site: s, ctx: ctx, post: make(chan note, postRoom), ended: map[uint32]uint64{}, nodes: map[string]nodeEntry{}, records: map[uint32]replica.Record{}, drained: map[string]bool{}}
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	if err := m.configure(ctx); err != nil {
		return nil, err
	}
	m.circle = m.config.First()
	m.self = m.o.Node
	if !t.Keeps { // what a new life has lost is not its file's: it is another member
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

// Run makes the node known, and takes part in the cluster until the context of Join ends. All of its copies were made before.
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

// Wait waits until what Run has begun has ended.
func (m *Node) Wait() { m.done.Wait() }

// Config returns what all nodes have in common, and Self the name of this life in records.
func (m *Node) Config() Config { return m.config }
func (m *Node) Self() string   { return m.self }

// Ended returns the term that the shard's record had when this life began: it does not go on in it.
func (m *Node) Ended(shard uint32) uint64 { return m.ended[shard] }

// State returns what is known now.
func (m *Node) State() State { return m.knows.Load().state }

// OnChange has a function told of all that becomes known from Run on, in the place of the copies, by the goroutine that follows the cluster.
func (m *Node) OnChange(changes func(State)) { m.changes = changes }

// Copies returns the shards of this node.
func (m *Node) Copies() []*Copy {
	m.copyMu.Lock()
	defer m.copyMu.Unlock()
	return slices.Clone(m.copies)
}

// Remove forgets a shard that this node has no more.
func (m *Node) Remove(c *Copy) {
	m.copyMu.Lock()
	defer m.copyMu.Unlock()
	m.copies = slices.DeleteFunc(m.copies, func(x *Copy) bool { return x == c })
}

// Present tells the others what the node is, and what its files have, if it is known already.
func (m *Node) Present() {
	m.mu.Lock()
	s := m.session
	m.mu.Unlock()
	if s != nil {
		m.present(m.ctx, s)
	}
}

// Map returns which shards there are and where, as far as is known now, and the same as bytes.
func (m *Node) Map() (version uint32, body []byte) {
	k := m.knows.Load()
	return k.places.Version, k.mapBody
}

// Drained reports whether this node shall have no shards.
func (m *Node) Drained() bool { return m.knows.Load().drained[m.self] }

// Record returns the newest record of a shard that is known.
func (m *Node) Record(shard uint32) replica.Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.records[shard]
}

// configure reads what all nodes have in common, or sets it.
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

// list reads all that the cluster knows.
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

// take takes one value. mu is held. What is not understood is left out: a newer version may have written it.
func (m *Node) take(v cluster.Value) {
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
		if err == nil && v.Data == nil && m.circle.Retired(uint32(number)) {
			delete(m.records, uint32(number))
			return
		}
		if rec, rerr := replica.ParseRecord(v.Data, v.Revision); err == nil && rerr == nil && rec.Revision > m.records[uint32(number)].Revision {
			m.records[uint32(number)] = rec
		}
	}
}

// register begins a session and says where the node is.
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

// present says what the node is.
func (m *Node) present(ctx context.Context, s cluster.Session) error {
	e := nodeEntry{Member: m.self, Peer: m.site.PeerAddr, Addrs: m.site.Addrs, Files: map[uint32]replica.Term{}, Leaves: m.leaving.Load()}
	for _, c := range m.Copies() {
		e.Files[c.number] = c.Found
	}
	b, _ := json.Marshal(e)
	_, err := s.Put(ctx, nodePrefix+m.o.Node, b)
	return err
}

// publish makes what is known what everybody sees, as of the revision, and tells the shards.
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
			p.Addrs = m.site.Addrs // nobody that is known lives: whoever asks comes back
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

// maxPlaceAddrs is how many addresses of a shard the map has.
const maxPlaceAddrs = 16

// follow keeps up with the cluster until the context ends.
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

// live keeps the node registered, and a candidate.
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

// ranked returns the members that live and may have shards, in an order that each shard has of its own.
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

// change makes a compare-and-set of a shard's record, and tells the shard what the record is then, if that is known.
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
		return // it is proposed again
	}
	if rec, err := replica.ParseRecord(v.Data, v.Revision); err == nil {
		c.hand(func() { c.shard.Learn(rec) })
	}
}

func shardKey(number uint32) string { return shardPrefix + strconv.FormatUint(uint64(number), 10) }
