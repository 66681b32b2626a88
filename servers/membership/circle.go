package membership

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"flashdbm/servers/circle"
	"flashdbm/servers/cluster"
)

// The cluster stores which shards share the circle. A user's command stores that the circle should change; then each
// old owner sends its parts to the new owners, and updates the stored value each time it has handed one over.

// ProposeCircle proposes that the pair's parts belong to the new owner, on condition that the records of both shards
// are those of s. All nodes learn the outcome from the watch.
func (m *Node) ProposeCircle(s State, pair circle.Pair) {
	ctx, cancel := context.WithTimeout(m.ctx, askTimeout)
	defer cancel()
	var others []cluster.Value
	for _, number := range []uint32{pair.From, pair.To} {
		others = append(others, cluster.Value{Name: shardKey(number), Revision: s.Records[number].Revision})
	}
	next := s.Circle.Done(s.Seed, pair)
	b, _ := json.Marshal(&next)
	m.o.Cluster.CompareAndSet(ctx, circleKey, s.Changed, b, others...)
}

// DeleteRecord deletes the record of a retired shard.
func (m *Node) DeleteRecord(shard uint32) {
	ctx, cancel := context.WithTimeout(m.ctx, askTimeout)
	defer cancel()
	key := shardKey(shard)
	if v, err := m.o.Cluster.Get(ctx, key); err == nil && v.Revision > 0 {
		m.o.Cluster.CompareAndSet(ctx, key, v.Revision, nil)
	}
}

// readCircle returns the assignment of a cluster, its seed, and the revision of the assignment's value.
func readCircle(ctx context.Context, c cluster.Cluster) (a circle.Assignment, seed, revision uint64, err error) {
	v, err := c.Get(ctx, configKey)
	if err != nil {
		return a, 0, 0, err
	}
	var config Config
	if v.Revision == 0 {
		return a, 0, 0, errors.New("there is no such cluster: no node has set it up yet")
	}
	if err := json.Unmarshal(v.Data, &config); err != nil {
		return a, 0, 0, fmt.Errorf("the cluster's settings: %w", err)
	}
	a = config.First()
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

// LookAtCircle returns the assignment of a cluster, and the moves under way.
func LookAtCircle(ctx context.Context, c cluster.Cluster) (circle.Assignment, []circle.Move, error) {
	a, seed, _, err := readCircle(ctx, c)
	if err != nil {
		return a, nil, err
	}
	return a, a.Moves(seed), nil
}

// ErrMoving reports that a change of the shards is under way already, for errors.Is.
var ErrMoving = errors.New("the shards are being changed already")

// AddShards adds shards to a cluster. They receive their parts of the keys while all requests are served.
// AddShards returns the shards after the change.
func AddShards(ctx context.Context, c cluster.Cluster, more int) ([]uint32, error) {
	return changeShards(ctx, c, func(a *circle.Assignment) error {
		if more < 1 || more > circle.MaxShards-len(a.Shards) {
			return fmt.Errorf("%d shards more, and there are %d; 1 to %d are possible", more, len(a.Shards), circle.MaxShards)
		}
		a.Next = slices.Clone(a.Shards)
		for range more {
			a.Next = append(a.Next, a.Unused)
			a.Unused++
		}
		return nil
	})
}

// DrainShards removes shards from a cluster: the others receive their keys while all requests are served.
// DrainShards returns the shards after the change.
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
		a.Change++
		b, _ := json.Marshal(&a)
		if _, err := c.CompareAndSet(ctx, circleKey, revision, b); !errors.Is(err, cluster.ErrChanged) {
			return a.Next, err
		}
	}
}
