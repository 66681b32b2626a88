package machine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"flashdbm/servers/circle"
	"flashdbm/servers/cluster"
	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/shard"
)

// Which shards share the circle is a value of the cluster, circle. A user's word makes it one that shall change; then each old owner brings its
// parts to the new owners, and changes the value when it has handed one over (package shard). All nodes open shards that come, and the leader makes
// their records. A shard whose last part has gone is retired: for a time it still answers clients that sent it writes and lost the answers, then
// its files are deleted.

// retireAfter is how long a shard without keys is kept: longer than clients try by default, as they ask it what has become of a write.
const retireAfter = time.Minute

// moves does what the shard wants of the cluster and of other shards while parts of the circle move.
func (r *runner) moves() {
	n := r.n
	if p, ok := r.shard.CircleProposal(); ok {
		go n.members.propose(n.ctx, p)
	}
	if to, linked := r.shard.MoveDial(); linked != nil {
		rec := n.members.known.Load().view.Records[to]
		r.link(rec.Primary, to, peerMoves, func(l *peerLink) {
			if l == nil {
				linked(nil)
				return
			}
			linked(l)
		})
	}
}

// propose makes the circle one in which a part is its new owner's, if both shards' records are still those of the view. Everybody learns from the
// watch what has become of it.
func (m *members) propose(ctx context.Context, p shard.CircleProposal) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var others []cluster.Value
	for _, number := range []uint32{p.Pair.From, p.Pair.To} {
		others = append(others, cluster.Value{Name: shardKey(number), Revision: p.View.Records[number].Revision})
	}
	next := p.View.Circle.Done(p.View.Seed, p.Pair)
	b, _ := json.Marshal(&next)
	m.o.Cluster.CompareAndSet(ctx, circleKey, p.View.Changed, b, others...)
}

// retired reports whether there was a shard with the number, and is none any more. mu is held, or the value cannot change.
func (m *members) retired(number uint32) bool { return isRetired(&m.circle, number) }

func isRetired(a *circle.Assignment, number uint32) bool {
	return number < a.Unused && !slices.Contains(a.All(), number)
}

// keepShards opens shards that have come, and retires those that have no part any more.
func (m *members) keepShards(v *shard.View) {
	n := m.n
	if n.ctx.Err() != nil {
		return
	}
	for _, number := range v.Circle.All() {
		if n.runner(number) != nil {
			continue
		}
		if err := n.add(number); err != nil {
			m.failed.Store(&err)
			continue // it is tried again with the next change
		}
		n.runner(number).start()
		m.mu.Lock()
		s := m.session
		m.mu.Unlock()
		if s != nil {
			m.present(n.ctx, s) // what the file has
		}
	}
	for _, r := range n.runners() {
		if isRetired(&v.Circle, r.number) && !m.retiring[r.number] {
			m.retiring[r.number] = true
			n.done.Go(func() { m.retire(r) })
		}
	}
	if !v.Circle.Moving() && v.Changed > 0 {
		m.writeCircle(&v.Circle)
	}
}

// writeCircle writes down which shards there are, for a cluster that begins with backups of this one.
func (m *members) writeCircle(a *circle.Assignment) {
	n := m.n
	if n.o.Dir == "" || n.id.Circle != nil && slices.Equal(n.id.Circle.Shards, a.Shards) && n.id.Circle.Unused == a.Unused {
		return
	}
	id := n.id
	id.Circle = a
	b, _ := json.Marshal(id)
	if writeSynced(filepath.Join(n.o.Dir, nodeFile), append(b, '\n')) == nil {
		n.id.Circle = a
	}
}

// retire ends a shard that has no part of the circle any more.
func (m *members) retire(r *runner) {
	n := m.n
	if sleep(n.ctx, cmp.Or(m.o.keep, retireAfter)); n.ctx.Err() != nil {
		return
	}
	n.changeRunners(func(list []*runner) []*runner {
		return slices.DeleteFunc(list, func(x *runner) bool { return x == r })
	})
	r.end()
	m.deleteFiles(r.number)
	key := shardKey(r.number)
	ctx, cancel := context.WithTimeout(n.ctx, askTimeout)
	defer cancel()
	if v, err := m.o.Cluster.Get(ctx, key); err == nil && v.Revision > 0 {
		m.o.Cluster.CompareAndSet(ctx, key, v.Revision, nil)
	}
}

func (m *members) deleteFiles(number uint32) {
	path := filepath.Join(m.n.o.Dir, shardFile(number))
	os.Remove(path)
	os.Remove(path + ".copy")
}

// deleteRetired deletes files of shards that were retired while this node was away.
func (m *members) deleteRetired() {
	if m.n.o.Dir == "" {
		return
	}
	files, _ := filepath.Glob(filepath.Join(m.n.o.Dir, "shard-*.fdbm"))
	for _, f := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(f), "shard-"), ".fdbm")
		if number, err := strconv.ParseUint(name, 10, 32); err == nil && m.retired(uint32(number)) {
			m.deleteFiles(uint32(number))
		}
	}
}

// readCircle returns which shards a cluster has, and the revision of the value that says so.
func readCircle(ctx context.Context, c cluster.Cluster) (a circle.Assignment, seed, revision uint64, err error) {
	v, err := c.Get(ctx, configKey)
	if err != nil {
		return a, 0, 0, err
	}
	var config clusterConfig
	if v.Revision == 0 {
		return a, 0, 0, errors.New("there is no such cluster: no node has set it up yet")
	}
	if err := json.Unmarshal(v.Data, &config); err != nil {
		return a, 0, 0, fmt.Errorf("the cluster's settings: %w", err)
	}
	a = (&identity{Shards: config.Shards, Circle: config.Circle}).circle()
	if v, err = c.Get(ctx, circleKey); err != nil {
		return a, 0, 0, err
	}
	if v.Revision > 0 {
		a = circle.Assignment{}
		if err := json.Unmarshal(v.Data, &a); err != nil {
			return a, 0, 0, fmt.Errorf("the cluster's circle: %w", err)
		}
	}
	return a, config.Seed, v.Revision, nil
}

// LookAtCircle returns which shards share the keys of a cluster, and all that moves from one to another.
func LookAtCircle(ctx context.Context, c cluster.Cluster) (circle.Assignment, []circle.Move, error) {
	a, seed, _, err := readCircle(ctx, c)
	if err != nil {
		return a, nil, err
	}
	return a, a.Moves(seed), nil
}

// ErrMoving says that the shards of a cluster are being changed already, for errors.Is.
var ErrMoving = errors.New("the shards are being changed already")

// AddShards says that a cluster shall have more shards. They get their parts of the keys while everything is served. It returns all that the cluster
// shall have.
func AddShards(ctx context.Context, c cluster.Cluster, more int) ([]uint32, error) {
	return changeShards(ctx, c, func(a *circle.Assignment) error {
		if more < 1 || more > protocol.MaxShards-len(a.Shards) {
			return fmt.Errorf("%d shards more, and there are %d; 1 to %d are possible", more, len(a.Shards), protocol.MaxShards)
		}
		a.Next = slices.Clone(a.Shards)
		for range more {
			a.Next = append(a.Next, a.Unused)
			a.Unused++
		}
		return nil
	})
}

// DrainShards says that some shards shall have no keys any more: the others get them while everything is served. It returns those that the
// cluster shall have.
func DrainShards(ctx context.Context, c cluster.Cluster, numbers ...uint32) ([]uint32, error) {
	return changeShards(ctx, c, func(a *circle.Assignment) error {
		for _, n := range numbers {
			if !slices.Contains(a.Shards, n) {
				return fmt.Errorf("there is no shard %d; there are %v", n, a.Shards)
			}
		}
		a.Next = slices.DeleteFunc(slices.Clone(a.Shards), func(s uint32) bool { return slices.Contains(numbers, s) })
		if len(a.Next) == 0 || len(numbers) == 0 {
			return errors.New("name shards, and leave one")
		}
		return nil
	})
}

func changeShards(ctx context.Context, c cluster.Cluster, change func(*circle.Assignment) error) ([]uint32, error) {
	for {
		a, _, revision, err := readCircle(ctx, c)
		if err != nil {
			return nil, err
		}
		if a.Moving() {
			return a.Next, fmt.Errorf("%w: from %v to %v", ErrMoving, a.Shards, a.Next)
		}
		if err := change(&a); err != nil {
			return nil, err
		}
		b, _ := json.Marshal(&a)
		if _, err := c.CompareAndSet(ctx, circleKey, revision, b); !errors.Is(err, cluster.ErrChanged) {
			return a.Next, err
		}
	}
}
