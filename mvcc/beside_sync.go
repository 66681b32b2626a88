package mvcc

import (
	"slices"
	"time"
)

// If the processors take longer to make a batch than the device takes to sync its group, a leader passes the token on
// before it syncs, and the next leader makes the next group during the sync:
//
//	device      | sync of group 1       | sync of group 2       | sync of group 3
//	processors  | 0 come back; make 2   | 1 come back; make 3   | 2 come back; make 4
//
// So committers form two groups that take turns, each with about half of them. With a fast device that is faster than
// one group of all committers, where the device is idle while the committers and the leader work. With a slow device
// it is slower, because each sync serves half as many commits.
//
// Invariants:
//
//  1. At most one group is synced without the token, by the goroutine that has filled token.syncing. A leader fills
//     it while it holds the token. So at most two groups are in the log and not synced, and groups are synced and
//     their commits reported in their order.
//  2. Background work that takes the token also waits for that sync (token.take), and so does a leader that syncs
//     with the token in hand. Both find everything committed durable. Only besideGroup.lead does not wait: it merges
//     only what is durable (tree.mergeDurable) and makes no page groups, and tree.thin waits for the sync before it
//     merges everything.
//  3. A commit returns when the sync of its group has ended; the sync of the group before has ended then. A failed
//     sync poisons the store, so the next one fails too.
//  4. The next group begins when the commit numbered token.enough has been pushed, or at the end of the sync. It need
//     not be ready before that, and a group of the first few would occupy the device while the other committers wait
//     for it. enough counts the committers whose sync has just ended, since these are about to come back, but at most
//     half of all. No committer sleeps for ever: see token.
//
// Crash: groups are in the log in their order, and recovery finds a prefix of them. No commit is acknowledged before
// the sync of its group has ended, and that sync covers all groups before it.

const (
	// besideLeast is the fewest committers that must be active. Fewer gain little, and each group takes whole pages.
	// Measured in alternating runs on ext4, thousand commits per second and bytes written per commit, one group →
	// two: 8 committers 58 → 51; 16: 99 → 107 (1,150 → 1,415 bytes); 32: 146 → 182 (680 → 750); 64: 212 → 261 (465 →
	// 460); 200: 317 → 320.
	besideLeast = 20
	// Syncs must take at least a besideShare-th of the time: with an eighth, no more than an eighth can be gained.
	besideShare = 8
)

// besideGroup is a group that is synced while the next one is made. Its memory is reused.
type besideGroup struct {
	*committer
	nodes []*commitNode
}

func newBesideGroup(c *committer) *besideGroup {
	if g, ok := c.groups.Get().(*besideGroup); ok {
		return g
	}
	return &besideGroup{committer: c}
}

// lead is committer.lead for such a group.
func (g *besideGroup) lead(own *commitNode) (completed bool) {
	g.nodes = g.fill(g.resolver.list.Drain(g.nodes), nil, false)
	passed, err := false, errBroken // errBroken stays if something panics
	defer func() {
		if !passed { // the store has failed, as after every error of runPipeline
			g.token.awaitSync() // the commits of the group before are reported first
			g.async.report(g.nodes, g.Failed())
			g.token.pass(false)
		} else {
			g.end(err)
		}
		wake(g.nodes, own)
		if passed && g.token.try() { // after wake: the committers that were woken make the next group larger
			g.token.pass(false)
		}
		clear(g.nodes)
		g.nodes = g.nodes[:0]
		g.groups.Put(g)
	}()
	if completed = slices.Contains(g.nodes, own); len(g.nodes) == 0 || g.runPipeline() != nil {
		return completed
	}
	g.log.device.await(g.token.syncing)
	back := min(g.leaving, (g.leaving+len(g.nodes)+1)/2)
	g.leaving = len(g.nodes)
	g.token.enough.Store(g.nodes[len(g.nodes)-1].Number() + uint64(max(back, 1)))
	passed = true
	g.token.pass(false)
	err = g.log.syncBeside()
	return completed
}

// runPipeline is committer.runPipeline without the sync. Token held.
func (g *besideGroup) runPipeline() error {
	kept := g.batch.nodes
	g.batch.nodes, g.batch.beside = g.nodes, true
	defer func() { g.batch.nodes, g.batch.beside = kept, false }()
	return g.committer.runPipeline()
}

// end reports the commits of the group, whose sync has ended, before those of the next group are reported: callbacks
// come in the order of commits.
func (g *besideGroup) end(err error) {
	g.async.report(g.nodes, err)
	g.token.enough.Store(0)
	<-g.token.syncing
}

// syncsBeside reports whether groups are synced while the next one is made. That begins when the processors take
// longer for a group of all committers than the device does. It ends when finished groups, of half of the committers,
// spend half of the sync time waiting for the device: then one group of all would be as fast. If syncs take next to
// no time, smaller groups are only more work.
func (d *device) syncsBeside() bool {
	switch {
	case d.synced*besideShare < d.all:
		d.beside = false
	case d.beside:
		d.beside = d.waited*deviceShare <= d.synced
	case !d.slow():
		d.beside, d.waited = true, 0
	}
	return d.beside
}

// await fills syncing, which is full during a sync, and notes how long that took.
func (d *device) await(syncing chan<- struct{}) {
	waited := time.Duration(0)
	select {
	case syncing <- struct{}{}:
	default:
		begun := time.Now()
		syncing <- struct{}{}
		waited = time.Since(begun)
	}
	d.waited += waited - d.waited/deviceBatches
}
