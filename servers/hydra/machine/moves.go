package machine

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"flashdbm/servers/circle"
	"flashdbm/servers/membership"
	"flashdbm/servers/shard"
	"flashdbm/servers/store"
)

// The cluster stores which shards share the circle (the value circle). A user's command stores that it should change;
// then each old owner sends its parts to the new owners, and updates the value each time it has handed one over
// (package shard). All nodes open added shards, and the leader makes their records. A shard whose last part has gone
// is retired: for a time it still answers clients that sent it writes and lost the answers, then its files are
// deleted.

// retireAfter is how long a shard without keys is kept: longer than clients retry by default, because they ask it for
// the outcome of a write.
const retireAfter = time.Minute

// moves carries out what the shard wants of the cluster and of other shards while parts of the circle move.
func (r *runner) moves() {
	if r.shard.Reign() == nil {
		return
	}
	if p, ok := r.shard.CircleProposal(); ok {
		s := membership.State{Circle: p.View.Circle, Changed: p.View.Changed, Seed: p.View.Seed, Records: p.View.Records}
		go r.n.members.ProposeCircle(s, p.Pair)
	}
	if to, linked := r.shard.MoveDial(); linked != nil {
		r.copy.LinkTo(to, linked)
	}
}

// keepShards opens added shards, and retires those without a part of the circle.
func (n *Node) keepShards(v *shard.View) {
	if n.ctx.Err() != nil {
		return
	}
	for _, number := range v.Circle.All() {
		if n.runner(number) != nil {
			continue
		}
		if err := n.add(number); err != nil {
			n.failed.Store(&err)
			continue // retried with the next change
		}
		n.runner(number).start()
		n.members.Present() // publishes the contents of the file
	}
	for _, r := range n.runners() {
		if v.Circle.Retired(r.number) && !n.retiring[r.number] {
			n.retiring[r.number] = true
			n.done.Go(func() { n.retire(r) })
		}
	}
	if !v.Circle.Moving() && v.Changed > 0 {
		n.writeCircle(&v.Circle)
	}
}

// writeCircle writes the present shards to the directory, for a cluster that begins with backups of this one.
func (n *Node) writeCircle(a *circle.Assignment) {
	if n.o.Dir == "" || n.id.Circle != nil && slices.Equal(n.id.Circle.Shards, a.Shards) && n.id.Circle.Unused == a.Unused {
		return
	}
	id := n.id
	id.Circle = a
	b, _ := json.Marshal(id)
	if store.WriteFile(filepath.Join(n.o.Dir, nodeFile), append(b, '\n')) == nil {
		n.id.Circle = a
	}
}

// retire ends a shard without a part of the circle.
func (n *Node) retire(r *runner) {
	select {
	case <-n.ctx.Done():
		return
	case <-time.After(cmp.Or(n.o.keep, retireAfter)):
	}
	n.members.Remove(r.copy)
	n.changeRunners(func(list []*runner) []*runner {
		return slices.DeleteFunc(list, func(x *runner) bool { return x == r })
	})
	r.end()
	n.deleteFiles(r.number)
	n.members.DeleteRecord(r.number)
}

func (n *Node) deleteFiles(number uint32) {
	path := filepath.Join(n.o.Dir, shardFile(number))
	os.Remove(path)
	os.Remove(path + ".copy")
}

// deleteRetired deletes files of shards that were retired while this node was away.
func (n *Node) deleteRetired() {
	if n.o.Dir == "" {
		return
	}
	files, _ := filepath.Glob(filepath.Join(n.o.Dir, "shard-*.fdbm"))
	for _, f := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(f), "shard-"), ".fdbm")
		if number, err := strconv.ParseUint(name, 10, 32); err == nil && n.view.Load().Circle.Retired(uint32(number)) {
			n.deleteFiles(uint32(number))
		}
	}
}
