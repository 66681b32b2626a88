package mvcc

import (
	"cmp"
	"slices"

	"flashdbm/internal/btree"
	"flashdbm/internal/overlay"
	"flashdbm/internal/redo"
	"flashdbm/logstore"
	"flashdbm/override"
)

// The commit pipeline. Committers push resolved transactions to the commit list (commit.go). The leader, the
// committer that holds the token, takes all of them through these steps as one batch (group commit):
//
//	drain    take the commits off the list, oldest first; the newest may be left for the next batch (fill.go)
//	thin     make room in the memtables: merge them if they are crowded, or begin a background merge (tree.thin)
//	number   give the commits one Seq, applied + 1
//	log      write the batch as one group: a record group (redo), or a page group (images of the changed leaves)
//	merge    Durable: bring memtable entries of earlier batches into the tree, unless that may wait (memtables.go)
//	table    write the Seq into the table of last writes, for each key of the batch (told.go)
//	insert   put the ops of the batch into the active memtable
//	applied  move the watermark to the Seq: updates that begin from now on see the batch
//	cut      cut the batch off the commit list
//	account  add up reservations, reclaim memory from time to time, wake background work that is due
//	sync     Durable: one fdatasync for all groups so far
//	durable  move the watermark: Views that begin from now on see the batch. Wake the committers
//
// Other modes do less. A Buffered batch is logged into memory, and written together with others (committer.buffer); a
// small WriteThrough batch is appended to a page that it shares with others (writethrough.go). Neither is merged
// here, and a sync is due only when the pages that wait for one take too much memory (boundUnsynced). A larger
// WriteThrough batch is merged after cut.
//
// Invariants:
//
//  1. Groups are in the log in the order of their Seqs: one leader at a time writes, and gives the next Seq. So a
//     batch is never in the log without the batches that its transactions have read.
//  2. The order log, table, insert, applied, cut is fixed. Logged before applied: nobody reads a batch that a later
//     group could overtake. Table and insert before applied: a transaction that begins at the Seq finds the ops, and
//     one that began before it finds the conflict. Cut last: a resolver that no longer meets the commit in the list
//     finds it in the table (the argument is at lockfree.List).
//  3. No commit returns in Durable mode before durable has reached its Seq.
//  4. In Durable mode only durable batches are merged. A View reads the newest tree, so that tree must have nothing
//     which could still be lost.
//  5. A page group is the exception to that order: its batch is applied to the tree first, since the changed images
//     are what is logged. The batch is therefore shown only after the sync (showApplied).
//  6. After an error the store is poisoned: the commits of this batch and of all later ones fail.
//
// Why merge comes between log and sync: the leader starts write-back of the group when it has written it (startSync),
// and the device works while the leader merges earlier batches, shows this one and does the accounts. The sync then
// waits for the rest. A separate goroutine for it would cost a switch, which takes longer than most merges.
//
// With many committers the leader passes the token on before the last two steps, and the next batch is made during
// the sync: see beside_sync.go.

const (
	pageGroupOps   = 256      // most ops of a batch for which a page group is tried
	leastRow       = 8        // lone commits in a row to the same leaf, from which on no page group is tried: see noteRow
	bufferedBytes  = 64 << 10 // bytes of redo in memory, from which on a Buffered batch is written
	reclaimBatches = 16       // batches between two reclaims of what no reader can see any more: versions and memtables
	// accountPages is how many pages small Buffered commits reserve between two reclaims, instead of reclaimBatches:
	// 1 MiB, some 32 commits of one record. Larger: the pages that those commits have reserved in excess are missing
	// to others. Smaller: commits take longer, with 128 pages by 30 ns of 450.
	accountPages = 256
	scarceShare  = 4 // in a file with a size limit, accountPages is divided by it
)

// lead completes the commits in the list as one batch. It reports whether own, the leader's commit, was among them;
// own may be nil. If own was not, another leader has drained it, or fill has left it for the next batch. The caller
// holds the token, and its goroutine panics at memory faults (debug.SetPanicOnFault). lead passes the token on and
// wakes the other committers of the batch, also after a panic.
func (c *committer) lead(own *commitNode) (completed bool) {
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
	c.leaving, completed = len(nodes), slices.Contains(nodes, own)
	c.commitNodes(nodes, own)
	return completed
}

// commitNodes completes drained commits, oldest first, as one batch. It reports the outcome to all of them and wakes
// every committer except that of own, also after a panic. Token held.
func (c *committer) commitNodes(nodes []*commitNode, own *commitNode) {
	c.token.mustBeHeld()
	c.batch.nodes = nodes
	var err error
	done := false
	defer func() {
		if !done {
			err = c.Failed()
		}
		c.async.report(c.batch.nodes, err)
		wake(c.batch.nodes, own)
		if len(c.batch.nodes) == 1 { // as for most batches where one goroutine commits: clear takes longer
			c.batch.nodes[0] = nil
		} else {
			clear(c.batch.nodes)
		}
		c.batch.nodes = c.batch.nodes[:0]
	}()
	if len(c.batch.nodes) > 0 {
		err = c.runPipeline()
	}
	done = true
}

// wake wakes the committers of nodes, whose outcome has been reported, except that of own. A node without a tx has no
// committer that waits.
func wake(nodes []*commitNode, own *commitNode) {
	for _, n := range nodes {
		if n != own && n.Value.tx != nil {
			n.Value.tx.kept.wake <- completed
		}
	}
}

// runPipeline takes the commits in c.batch.nodes through the pipeline. After an error the store is poisoned, and all
// of them fail. Token held.
func (c *committer) runPipeline() (err error) {
	defer c.protect(&err)
	if err := c.Failed(); err != nil {
		return err
	}
	if err := c.tree.thin(); err != nil { // before the batch has a Seq: in Durable mode everything merged here is durable
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
		if err := c.Failed(); err != nil { // a sync for new space: what it has lost may be this batch
			return err
		}
		if c.store.UnsyncedBytes() < c.opts.MemoryLimit/unsyncedSoon {
			return nil
		}
		return c.log.boundUnsynced()
	case c.batch.beside:
		return nil
	}
	return c.log.syncLog()
}

// showApplied syncs a batch that was applied to the tree before it was logged, and then shows it.
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

// batch describes the batch at hand: the commits that were drained together.
type batch struct {
	seq    uint64
	group  uint64            // number of the group that carries it; a Buffered batch without long values is in none yet
	runs   bool              // it has values that are stored in runs of the log
	logged bool              // its redo was written into the group's pages, where logged values stay
	copied bool              // no memtable refers to its write sets
	table  *overlay.Memtable // was active when the batch was logged, and may have its keys and values
	held   int64             // pages reserved by its commits

	applied bool            // the tree had it before it was shown,
	records int64           // and this number of records, this batch included
	pages   *override.Batch // of a page group; installed once that is synced
}

// logAndApply does the steps from log to cut. A batch that was applied first (b.applied) is left for showApplied.
func (c *committer) logAndApply(b *batch) error {
	for _, n := range c.batch.nodes {
		b.held += n.Value.tx.held
	}
	g := c.log.redoGroup()
	b.table = c.tree.tables.active
	if logOne(c, g) {
		b.logged, b.copied = true, true
	} else if c.collectOps(g); c.opts.Durability == Buffered || c.anyLogged() {
		b.logged, b.copied = true, c.logInto(g)
	} else {
		b.copied = c.logOps()
	}
	if b.runs = len(c.log.runs) > 0; b.runs {
		c.tree.finishMerge() // the tree's lists of runs get them, and belong to that merge until then
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
	if c.opts.Durability == Durable { // before the batch is shown: only earlier batches are durable
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

// triesPageGroup reports whether the batch is applied before it is logged, so that it can become a page group.
//
// A page group makes the device wait: nothing is on its way while the batch is applied, whereas a record group is
// written first. Both write one page, but a leaf whose changes are in record groups has to be flushed later. So:
//
//   - If lone commits change the same leaf one after the other, as with ascending keys (inRow), record groups are
//     better: the leaf stays dirty, and one flush serves them all. That the next commit changes that leaf too is a
//     guess; a wrong guess costs one page.
//   - A file that may not grow has no room for pages to be flushed later, so there rows are not counted (noteRow).
//   - Without a sync (WriteThrough, Buffered) nothing is gained: the group's pages would have to stay in memory until
//     there is one.
//
// The tree may lack the batch before this one. It is merged here if the page group is otherwise possible. If groups
// are synced beside the next one, that batch may not be durable yet, so no page group is tried.
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

// longKey reports whether op puts a key that is so long that part of it is in a run. Applying such an op may read the
// run, so the run has to be written first.
func longKey(op btree.Op) bool { return op.Ref != nil && op.Ref.KeyLen > 0 }

// noteRow counts lone commits in a row that change the same leaf. It runs while the device writes the group. Commits
// to different leaves count too while those leaves were dirty before the commit; a batch that was applied already
// (applied) has made its leaf dirty itself, so then only the same leaf counts. Token held.
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

// buffer leaves a Buffered batch in memory: its ops in the memtable, its redo in c.log, to be written together with
// later batches. Long values are in the group already, so a batch that has some writes it now. Token held.
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

// applyAndLog applies the batch to a new version of the tree, and logs the changed pages if these take no more room
// than the redo, else the redo. In both cases the batch is shown after the sync: see showApplied.
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

// mergeUnlessDeferred merges what the tree lacks; in Durable mode what of that is durable. It does nothing if the
// batch is large, or if large batches have left much to merge, unless the memtables are crowded. Token held.
func (c *committer) mergeUnlessDeferred(b *batch) error {
	if (len(c.batch.ops) >= cmp.Or(c.opts.DeferOps, deferOps) || c.tree.manyWait()) && !c.tree.crowded() {
		return nil
	}
	return c.tree.mergeDurable()
}

// commitRecords writes the redo at hand into g, which holds the runs and extent lists of the batch at hand, and
// writes g.
func (c *committer) commitRecords(g *logstore.Group) error {
	group, err := c.log.commitRedo(g)
	if err != nil {
		return err
	}
	c.bear(group)
	return nil
}

// published makes the batch visible to updates: the steps table, insert, applied and cut. Their order is that of
// lockfree.List. A batch that the tree has already is not inserted. Token held.
func (c *committer) published(b *batch) {
	c.resolver.tell(b.seq, c.batch.nodes)
	copied := true // if no ops are left: the tree has them by now
	if len(c.batch.ops) > 0 {
		if b.table != c.tree.tables.active { // a merge has retired it meanwhile: its memory will be reused while readers have the active table
			c.tree.tables.copyOps(c.batch.ops)
		}
		c.tree.tables.insert(b.seq, c.batch.ops, int64(c.batch.opBytes), c.batch.nodes)
		copied = b.copied
	}
	if c.changed.on {
		c.changed.note(c.batch.nodes)
	}
	c.marks.committed.Store(b.seq)
	c.marks.show(b.seq)
	c.log.noteLogged(b.seq)
	alone := c.resolver.tellLate(b.seq, c.batch.nodes)
	c.resolver.list.Cut(c.batch.nodes[len(c.batch.nodes)-1])
	c.tree.sets.retire(c.batch.nodes, copied, alone)
	c.known.commits.Add(uint64(len(c.batch.nodes)))
}

// account adds up what a finished batch has reserved and written, reclaims memory from time to time, and starts
// background work that is due. Token held.
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
		c.maintenance.nudgeToGrow(0) // by as much as one segment holds
	}
	c.pressure.noteRedo()
	c.maintenance.nudge()
}
