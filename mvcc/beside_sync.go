package mvcc

import (
	"slices"
	"time"
)

// Where the processors take longer for a batch than the device takes to sync its group, a leader passes the token on before it syncs, and the
// next group is made meanwhile:
//
//	device      | sync of group 1       | sync of group 2       | sync of group 3
//	processors  | 0 come back; make 2   | 1 come back; make 3   | 2 come back; make 4
//
// So committers are in two groups that take turns, each of about half of them. With a fast device that is faster than one group of all,
// whose committers and leader work while the device has nothing to do; with a slow one it is slower, as each sync serves half as many.
//
// Invariants:
//
//  1. One group at most is synced without the token, by who has filled token.syncing. Its leader does that with the token in hand: so two groups at
//     most are in the log and not synced, and groups are synced, and their commits reported, in their order.
//  2. Background work takes the token and waits for that sync: token.take. So does a leader who syncs with the token in hand. They find all
//     that is committed durable, as always. Only besideGroup.lead does not: what it merges is what is durable (tree.mergeDurable), it makes no page
//     groups, and tree.thin waits for the sync before it merges all.
//  3. A commit returns once the sync of its group has ended; that of the group before has ended then. A failed sync poisons the store, so the
//     next one fails too.
//  4. The next group begins with the commit numbered token.enough, or at the end of the sync: before that it need not be ready, and a group of
//     the few who come first would have the device serve those, and the others wait for it. enough counts those on whom the sync before has
//     ended, as they are about to come back, but no more than half of all. Nobody sleeps for ever: see token.
//
// Crash: groups are in the log in their order, and what recovery finds of it is a beginning. No commit of a group is acknowledged before its
// sync has ended, and that sync covers all groups before it.

const (
	// besideLeast is how many commit at once at least: fewer gain little, and each group takes whole pages. By turns on ext4, thousand commits a
	// second and bytes written for each: 8 committers 58 → 51, 16 99 → 107 (1,150 → 1,415 bytes), 32 146 → 182 (680 → 750), 64 212 → 261
	// (465 → 460), 200 317 → 320.
	besideLeast = 20
	// besideShare is the part of the time that syncs take at least: with an 8th no more than that can be gained.
	besideShare = 8
)

// besideGroup is a group that is synced beside the making of the next one. Its memory is used again.
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
func (g *besideGroup) lead(own *commitNode) (settled bool) {
	g.nodes = g.fill(g.resolver.list.Drain(g.nodes), nil, false)
	passed, err := false, errBroken // should something panic
	defer func() {
		if !passed { // the store has failed, as after every error of settle
			g.token.awaitSync() // those of the group before are reported first
			g.async.report(g.nodes, g.Failed())
			g.token.pass(false)
		} else {
			g.end(err)
		}
		wake(g.nodes, own)
		if passed && g.token.try() { // behind that: those who are woken make the next group larger
			g.token.pass(false)
		}
		clear(g.nodes)
		g.nodes = g.nodes[:0]
		g.groups.Put(g)
	}()
	if settled = slices.Contains(g.nodes, own); len(g.nodes) == 0 || g.settle() != nil {
		return settled
	}
	if own != nil {
		g.tree.sets.hand(own.Value.tx)
	}
	g.log.device.await(g.token.syncing)
	back := min(g.leaving, (g.leaving+len(g.nodes)+1)/2)
	g.leaving = len(g.nodes)
	g.token.enough.Store(g.nodes[len(g.nodes)-1].Number() + uint64(max(back, 1)))
	passed = true
	g.token.pass(false)
	err = g.log.syncBeside()
	return settled
}

// settle is committer.settle without the sync. Token held.
func (g *besideGroup) settle() error {
	kept := g.batch.nodes
	g.batch.nodes, g.batch.beside = g.nodes, true
	defer func() { g.batch.nodes, g.batch.beside = kept, false }()
	return g.committer.settle()
}

// end reports the commits of the group, whose sync has ended, before those of the next group are: calls are in the order of commits.
func (g *besideGroup) end(err error) {
	g.async.report(g.nodes, err)
	g.token.enough.Store(0)
	<-g.token.syncing
}

// syncsBeside reports whether groups are to be synced beside the next one: where the processors take longer for a group of all committers than
// the device, and then until a finished group of half of them waits for the device half of the time, as that is when one group of all would
// take no longer. Where syncs take next to no time, smaller groups are only more work.
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

// await fills what is full during a sync, and notes how long that took.
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
