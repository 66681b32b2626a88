package membership

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"flashdbm/servers/cluster"
	"flashdbm/servers/replica"
)

// Drain sets whether a node should have no shards from now on. The other nodes take over the node's shards while
// all requests are served.
func Drain(ctx context.Context, c cluster.Cluster, node string, drained bool) error {
	if !nodeName.MatchString(node) {
		return fmt.Errorf("a node's name has 1 to 64 letters, digits, - and _; %q is none", node)
	}
	for {
		v, err := c.Get(ctx, drainPrefix+node)
		if err != nil {
			return err
		}
		var data []byte
		if drained {
			data = []byte("drained")
		}
		if (v.Revision != 0) == drained {
			return nil
		}
		if _, err := c.CompareAndSet(ctx, drainPrefix+node, v.Revision, data); !errors.Is(err, cluster.ErrChanged) {
			return err
		}
	}
}

// Drained is the progress of draining a node.
type Drained struct {
	Runs    bool
	Shards  []uint32 // of which it still has a copy
	Serves  int      // the number of these of which it is the primary
	Others  int      // running nodes that may have shards
	Needed  int      // of them, how many are needed for writes
	Desired int      // copies that each shard should have
}

// LookAtDrained reads the progress of draining a node.
func LookAtDrained(ctx context.Context, c cluster.Cluster, node string) (d Drained, err error) {
	values, _, err := c.List(ctx, "")
	if err != nil {
		return d, err
	}
	drained := map[string]bool{node: true}
	for _, v := range values {
		if name, ok := strings.CutPrefix(v.Name, drainPrefix); ok {
			drained[name] = true
		}
	}
	for _, v := range values {
		if name, ok := strings.CutPrefix(v.Name, nodePrefix); ok {
			d.Runs = d.Runs || name == node
			if !drained[name] {
				d.Others++
			}
		}
		if v.Name == configKey {
			var config Config
			if err := json.Unmarshal(v.Data, &config); err != nil {
				return d, fmt.Errorf("the cluster's settings: %w", err)
			}
			d.Needed, d.Desired = config.MinInSync, config.Replicas
		}
		number, ok := strings.CutPrefix(v.Name, shardPrefix)
		if !ok {
			continue
		}
		shard, err := strconv.ParseUint(number, 10, 32)
		rec, rerr := replica.ParseRecord(v.Data, v.Revision)
		if err := errors.Join(err, rerr); err != nil {
			return d, err
		}
		for _, member := range rec.Set {
			if name, _, _ := strings.Cut(member, "."); name == node {
				d.Shards = append(d.Shards, uint32(shard))
				if rec.Primary == member {
					d.Serves++
				}
			}
		}
	}
	if d.Desired == 0 {
		return d, errors.New("there is no such cluster: no node has set it up yet")
	}
	return d, nil
}
