package mvcc

import (
	"cmp"
	"runtime/debug"
	"slices"

	"flashdbm/internal/btree"
	"flashdbm/internal/redo"
	"flashdbm/logstore"
	"flashdbm/override"
)

// What the token holder does with the commits it finds, in this order:
//
//	drain   the commits become one batch with one Seq; the newest may be left to the next: see fill.go
//	log     the batch becomes a record group, or a page group (then it is applied first: the images are what is logged)
//	table   the Seq of each key's last write
//	insert  its ops into the active memtable
//	applied moves: new updates begin at the batch
//	cut     the commit list
//	merge   what the tree lacks, unless it may wait: see memtables.go. Where commits are synced, what is durable by now: the batches before
//	sync    one fdatasync for all groups so far
//	durable moves, waiters wake
//
// Where many commit at once, the last two steps may come once the token is passed on: see beside_sync.go.
//
// The device writes the group while it is published, others are merged and the accounts are done: its write-back is started before, and the
// sync waits for the rest. That costs no switch to another goroutine, which takes longer than most merges.
//
// A batch that is applied before it is logged, as a page group is, is shown once it is synced: the tree has it, and View reads the newest tree.

const (
	pageGroupOps   = 256      // ops up to which a page group is tried
	leastRow       = 8        // lone commits in a row to the same leaf, from which on no page group is tried
	bufferedBytes  = 64 << 10 // of redo, from which a Buffered batch is written
	reclaimBatches = 16       // batches between two looks at what nobody can see any more,
	// accountPages are those that small Buffered commits have reserved between two such looks instead: 1 MiB, some 32 commits of one record. With
	// more, what they have reserved too much is missing to others; with less, each takes longer: with 128 by 30 of 450 ns.
	accountPages = 256
	scarceShare  = 4 // a file with a limit: a quarter of that
)

// lead settles what waits in the commit list, its own commit included, if there is one, and reports whether it was: else somebody else has drained
// it, or it was left to the next group. The caller has the token; it is passed on at the end, and who waits is woken, also after a panic.
func (c *committer) lead(own *commitNode) (settled bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	if c.opts.Durability == Durable {
		c.log.device.turn()
	}
	if active := c.readers.active.Load(); active > 1 {
		if c.opts.SyncBeside && c.opts.Durability == Durable || active >= besideLeast && c.log.device.syncsBeside() {
			return newBesideGroup(c).lead(own)
		}
		awaitReturn(&c.resolver.list, min(c.leaving, int(active)), c.log.device.oneSync(), returnPatience)
	}
	c.token.awaitSync()
	defer c.token.pass(false)
	nodes := c.fill(c.resolver.list.Drain(c.batch.nodes[:0]), own, c.log.device.slow())
	c.leaving, settled = len(nodes), slices.Contains(nodes, own)
	c.settleAll(nodes, own)
	if own != nil {
		c.tree.sets.hand(own.Value.tx)
	}
	return settled
}

// settleAll settles commits that were drained, oldest first, as one batch, and wakes those that wait, also after a panic: all but own.
// Token held.
func (c *committer) settleAll(nodes []*commitNode, own *commitNode) {
	c.batch.nodes = nodes
	var err error
	done := false
	defer func() {
		if !done {
			err = c.Failed()
		}
		c.async.report(c.batch.nodes, err)
		wake(c.batch.nodes, own)
		clear(c.batch.nodes)
		c.batch.nodes = c.batch.nodes[:0]
	}()
	if len(c.batch.nodes) > 0 {
		err = c.settle()
	}
	done = true
}

// wake wakes those whose commits were reported, but not own.
func wake(nodes []*commitNode, own *commitNode) {
	for _, n := range nodes {
		if n != own && n.Value.tx != nil {
			n.Value.tx.kept.wake <- settled
		}
	}
}

// settle makes a batch of e.nodes. After an error the store is poisoned: everyone fails, and nothing of the batch becomes durable.
func (c *committer) settle() (err error) {
	defer c.protect(&err)
	if err := c.Failed(); err != nil {
		return err
	}
	if err := c.tree.thin(); err != nil { // before the batch: what is merged is durable where commits are synced
		return err
	}
	b := &c.batch.at
	*b = batch{seq: c.marks.applied.Load() + 1}
	for _, n := range c.batch.nodes {
		n.Value.seq.Store(b.seq)
	}
	if err := c.logAndApply(b); err != nil {
		return c.store.Fail(err)
	}
	if b.applied {
		if err := c.showApplied(b); err != nil {
			return err
		}
	}
	c.account(b)
	switch {
	case c.opts.Durability != Durable:
		return c.log.boundUnsynced()
	case c.batch.beside:
		return nil
	}
	return c.log.syncLog()
}

// showApplied syncs a batch that the tree has, and shows it.
func (c *committer) showApplied(b *batch) error {
	if err := c.log.syncLog(); err != nil {
		return err
	}
	if b.pages != nil {
		b.pages.InstallPages(b.group, b.records)
		b.pages = nil
		c.log.bytes.Base(b.group, c.log.bytes.Total())
		c.log.bytes.Start(b.group)
	}
	c.tree.merged(b.seq, b.seq, b.records)
	c.tree.measure()
	c.published(b)
	c.marks.publishDurable()
	return nil
}

// batch is what becomes of the drained commits.
type batch struct {
	seq    uint64
	group  uint64 // that carries it; Buffered without runs: none yet
	runs   bool   // it has long values
	logged bool   // its redo is in the group, in which values stay
	copied bool   // nothing needs its write sets once it is in the commit list no more
	held   int64  // pages reserved for it

	applied bool            // the tree has it before it is shown,
	records int64           // and this number of records with it
	pages   *override.Batch // of a page group: to be installed once that is synced
}

// logAndApply logs the batch, makes it visible to updates and merges it, unless that may wait.
func (c *committer) logAndApply(b *batch) error {
	for _, n := range c.batch.nodes {
		b.held += n.Value.tx.held
	}
	g := c.log.redoGroup()
	c.gather(g)
	if b.logged = c.opts.Durability == Buffered || c.anyLogged(); b.logged {
		b.copied = c.logInto(g)
	} else {
		b.copied = c.logOps()
	}
	if b.runs = len(c.log.runs) > 0; b.runs {
		c.tree.settleMerge() // the tree's lists get them
	}
	c.log.recent.ops, c.log.recent.stays, c.log.recent.beside = len(c.batch.ops), b.logged, c.batch.beside
	b.group = g.Number()
	switch {
	case c.opts.Durability == Buffered:
		return c.buffer(g, b)
	case c.sharesPage(b):
		return c.writeThrough(g, b)
	}
	if ok, err := c.triesPageGroup(b); err != nil {
		return err
	} else if ok {
		return c.applyAndLog(g, b)
	}
	if err := c.commitRecords(g); err != nil {
		return err
	}
	if err := c.log.startSync(); err != nil {
		return err
	}
	if c.opts.Durability == Durable { // before the batch is shown, for it is not durable
		if err := c.mergeUnlessDeferred(b); err != nil {
			return err
		}
	}
	if err := c.noteRow(false); err != nil {
		return err
	}
	c.published(b)
	if c.opts.Durability == Durable {
		return nil
	}
	return c.mergeUnlessDeferred(b)
}

// triesPageGroup reports whether the batch is to be applied before it is logged, so that it may become a page group.
//
// The device waits for that, while a record group is on its way before anything is applied. One page is written either way, but a leaf
// whose changes are in record groups has to be flushed later. So where one lone commit after the other changes the same leaf, as those of
// ascending keys do, it stays dirty: one flush serves them all. That the next one will do so too is a guess, which costs a page when it
// is wrong. A file that may not grow has no room for what is flushed later. Without a sync nothing is gained: the pages of the group would
// have to stay in memory until there is one.
//
// The batch before may not be in the tree yet. It is merged here if a page group may come of it; not where its group may be synced yet.
func (c *committer) triesPageGroup(b *batch) (bool, error) {
	if c.batch.beside || b.logged || c.opts.Durability != Durable || c.log.inRow() || len(c.batch.ops) > pageGroupOps || c.tree.tables.merging() || !c.pages.CanPageGroup() ||
		c.tree.tables.rest() > pageGroupOps || c.tree.tables.rest() > 0 && !c.tree.numbered(c.tree.tables.active.Len()) || slices.ContainsFunc(c.batch.ops, longKey) {
		return false, nil
	}
	if c.tree.tables.rest() > 0 {
		if err := c.tree.merge(); err != nil {
			return false, err
		}
	}
	return c.pages.CanPageGroup(), nil
}

// longKey reports whether the key of a put is in a run. To apply it may take reading that, so the run has to be written before.
func longKey(op btree.Op) bool { return op.Ref != nil && op.Ref.KeyLen > 0 }

// noteRow counts the batch at hand, while the device writes its group. If it was applied already, that its leaf is dirty tells nothing.
func (c *committer) noteRow(applied bool) error {
	if c.opts.Durability != Durable || len(c.batch.ops) != 1 || c.room.limited() || c.tree.tables.merging() {
		c.log.recent.row = row{}
		return nil
	}
	leaf, dirty, err := c.pages.LeafOf(c.batch.ops[0].Key)
	if leaf != c.log.recent.row.leaf && (applied || !dirty) {
		c.log.recent.row.commits = 0
	}
	c.log.recent.row.leaf = leaf
	c.log.recent.row.commits++
	return err
}

// buffer leaves the batch in memory: its ops in the memtable, its redo to be written with others. Long values are in the group already.
func (c *committer) buffer(g *logstore.Group, b *batch) error {
	if b.runs {
		if err := c.commitRecords(g); err != nil {
			return err
		}
	} else {
		c.bear(b.group) // large values that were overwritten give their segments back
		c.log.keepOpen(g)
	}
	if c.log.waiting() > 0 && !c.log.unlogged.Load() {
		c.log.unlogged.Store(true)
	}
	c.published(b)
	if c.log.waiting() >= bufferedBytes {
		return c.log.writeRedo()
	}
	if c.log.waiting() == 0 {
		c.log.unlogged.Store(false)
	}
	return nil
}

// applyAndLog applies the batch and logs its pages if they take no more room than its redo, else the redo.
func (c *committer) applyAndLog(g *logstore.Group, b *batch) error {
	pages := c.pages.Begin(b.seq)
	r, err := btree.Apply(pages, override.Root, c.batch.ops)
	if err != nil {
		return err
	}
	records := c.tree.records + r.Added
	if !pages.Legal(int(redo.Pages(int64(len(c.log.redo))))) {
		if err = c.commitRecords(g); err == nil {
			err = c.log.startSync()
		}
	} else {
		g.SetKind(logstore.PageGroup)
		pages.WritePages(g)
		if _, err = g.Commit(uint64(records)); err == nil {
			err = c.log.startSync()
		}
		if err == nil {
			c.bear(b.group)
			b.pages = pages
			c.log.redo, c.log.redoOps = c.log.redo[:0], 0
		}
	}
	if err == nil {
		err = c.noteRow(true)
	}
	if err != nil {
		return err
	}
	c.batch.ops = c.batch.ops[:0] // the tree has them
	b.applied, b.records = true, records
	return nil
}

// mergeUnlessDeferred merges what the tree lacks, of that what is durable where commits are synced, unless the batch is a large one, or large ones before it
// have left much: then that may wait.
func (c *committer) mergeUnlessDeferred(b *batch) error {
	if (len(c.batch.ops) >= cmp.Or(c.opts.DeferOps, deferOps) || c.tree.manyWait()) && !c.tree.crowded() {
		return nil
	}
	return c.tree.mergeDurable()
}

// commitRecords writes the redo at hand into g, which has the runs and lists of the batch at hand.
func (c *committer) commitRecords(g *logstore.Group) error {
	group, err := c.log.commitRedo(g)
	if err != nil {
		return err
	}
	c.bear(group)
	return nil
}

// published makes the batch visible to updates, its ops in the memtable unless the tree has them. The order is that of lockfree.List.
func (c *committer) published(b *batch) {
	c.resolver.tell(b.seq, c.batch.nodes)
	copied := true // or in the tree by now
	if len(c.batch.ops) > 0 {
		c.tree.tables.insert(b.seq, c.batch.ops, int64(c.batch.opBytes))
		copied = b.copied
	}
	c.marks.committed.Store(b.seq)
	c.marks.show(b.seq)
	c.log.noteLogged(b.seq)
	alone := c.resolver.tellLate(b.seq, c.batch.nodes)
	c.resolver.list.Cut(c.batch.nodes[len(c.batch.nodes)-1])
	c.tree.sets.retire(c.batch.nodes, b.seq, copied, alone)
	c.known.commits.Add(uint64(len(c.batch.nodes)))
}

// account does the accounts of a finished batch and starts background work that it makes due.
func (c *committer) account(b *batch) {
	c.log.recent.batches++
	due := c.log.recent.batches%reclaimBatches == 0
	c.room.held += b.held
	c.room.spend()
	if c.opts.Durability == Buffered && c.log.recent.ops < deferOps {
		c.log.recent.reserved += b.held
		most := int64(accountPages)
		if c.room.limited() {
			most /= scarceShare
		}
		if due = c.log.recent.reserved >= most; !due {
			return
		}
	}
	c.log.recent.reserved = 0
	c.room.rebalance(0)
	if due {
		c.tree.leafy.Store(c.tree.leaves() > fewKeys)
		if !c.tree.tables.merging() {
			c.tree.reclaim()
		}
	}
	if c.log.recent.ops >= deferOps {
		c.maintenance.nudgeToGrow(b.held)
	} else if due {
		c.maintenance.nudgeToGrow(0) // a segment will do
	}
	c.pressure.noteRedo()
	c.maintenance.nudge()
}
