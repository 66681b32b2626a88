package membership

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"flashdbm/servers/cluster"
	"flashdbm/servers/replica"
)

// A Situation is a shard of a cluster and the nodes that could serve it.
type Situation struct {
	Shard  uint32
	Record replica.Record
	Nodes  []Survivor
}

// A Survivor is a running node.
type Survivor struct {
	Name   string
	Member string // in records
	Entry  uint64 // the newest entry in its file when the node started
	Term   uint64 // of that entry
	InSync bool
}

// LookAt reads what a cluster knows of a shard.
func LookAt(ctx context.Context, c cluster.Cluster, shard uint32) (*Situation, error) {
	v, err := c.Get(ctx, shardKey(shard))
	if err != nil {
		return nil, err
	}
	if v.Revision == 0 {
		return nil, fmt.Errorf("the cluster has no shard %d", shard)
	}
	s := &Situation{Shard: shard}
	if s.Record, err = replica.ParseRecord(v.Data, v.Revision); err != nil {
		return nil, err
	}
	values, _, err := c.List(ctx, nodePrefix)
	if err != nil {
		return nil, err
	}
	for _, v := range values {
		var e nodeEntry
		if json.Unmarshal(v.Data, &e) == nil {
			f := e.Files[shard]
			s.Nodes = append(s.Nodes, Survivor{strings.TrimPrefix(v.Name, nodePrefix), e.Member, f.First, f.Term, s.Record.Has(e.Member)})
		}
	}
	return s, nil
}

// Recover makes a node the only member of the shard's set, whatever entries it lacks. It returns an error while a
// member in sync runs: the leader promotes that member. If really is false, it only checks whether recovery is
// possible.
func (s *Situation) Recover(ctx context.Context, c cluster.Cluster, node string, really bool) error {
	next := replica.Record{Revision: s.Record.Revision, Term: s.Record.Term + 1, Life: s.Record.Life}
	for _, n := range s.Nodes {
		if n.InSync {
			return fmt.Errorf("node %s is in sync and runs: it serves the shard, or will in a moment", n.Name)
		}
		if n.Name == node {
			next.Primary, next.Set = n.Member, []string{n.Member}
		}
	}
	if next.Primary == "" {
		return fmt.Errorf("no node %s runs", node)
	}
	if !really {
		return nil
	}
	_, err := c.CompareAndSet(ctx, shardKey(s.Shard), next.Revision, next.Data())
	return err
}
