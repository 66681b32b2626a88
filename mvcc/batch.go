package mvcc

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"flashdbm/internal/btree"
	"flashdbm/internal/redo"
	"flashdbm/logstore"
	"flashdbm/override"
)

// What the baton holder does with the commits it finds, in this order:
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
// The device writes the group while it is published, others are merged and the accounts are done: its write-back is started before, and the
// sync waits for the rest. That costs no switch to another goroutine, which takes longer than most merges.
//
// A batch that is applied before it is logged, as a page group is, is shown once it is synced: the tree has it, and View reads the newest tree.

const (
	pageGroupOps   = 256      // ops up to which a page group is tried
	leastRow       = 8        // lone commits in a row to the same leaf, from which on no page group is tried
	bufferedBytes  = 64 << 10 // of redo, from which a Buffered batch is written
	reclaimBatches = 16       // batches between two looks at what nobody can see any more
)

// lead settles what waits in the commit list, its own commit included, if there is one. The caller has the baton; it is passed on at the end, and who
// waits is woken, also after a panic.
func (e *Engine) lead(own *commitNode) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	if e.active.Load() > 1 {
		for range spins {
			runtime.Gosched()
		}
	}
	defer e.putBaton(false)
	e.settleAll(e.fill(e.list.Drain(e.nodes[:0]), own), own)
	if own != nil {
		e.sets.hand(own.Value.tx)
	}
}

// settleAll settles commits that were drained, oldest first, as one batch, and wakes those that wait, also after a panic: all but own.
// Baton holder.
func (e *Engine) settleAll(nodes []*commitNode, own *commitNode) {
	e.nodes = nodes
	var err error
	done := false
	defer func() {
		if !done {
			err = e.Failed()
		}
		for _, n := range e.nodes {
			tx := n.Value.tx
			tx.err = err
			if c := tx.async; c != nil {
				c.seq, c.err = n.Value.seq.Load(), err
				waits := c.tx == nil // its caller does
				if !waits {
					n.Value.tx = nil // the newest node stays in the list
				}
				e.async.add(c)
				if !waits {
					continue
				}
			}
			if n != own {
				tx.kept.wake <- settled
			}
		}
		clear(e.nodes)
		e.nodes = e.nodes[:0]
	}()
	if len(e.nodes) > 0 {
		err = e.settle()
	}
	done = true
}

// settle makes a batch of e.nodes. After an error the store is poisoned: everyone fails, and nothing of the batch becomes durable.
func (e *Engine) settle() (err error) {
	defer e.protect(&err)
	if err := e.Failed(); err != nil {
		return err
	}
	if err := e.thin(); err != nil { // before the batch: what is merged is durable where commits are synced
		return err
	}
	b := &batch{seq: e.applied.Load() + 1}
	for _, n := range e.nodes {
		n.Value.seq.Store(b.seq)
	}
	if err := e.logAndApply(b); err != nil {
		return e.store.Fail(err)
	}
	if b.applied {
		if err := e.showApplied(b); err != nil {
			return err
		}
	}
	e.account(b)
	if e.opts.Durability != Durable {
		return e.boundUnsynced()
	}
	return e.syncLog()
}

// showApplied syncs a batch that the tree has, and shows it.
func (e *Engine) showApplied(b *batch) error {
	if err := e.syncLog(); err != nil {
		return err
	}
	if b.pages != nil {
		b.pages.InstallPages(b.group, b.records)
		e.redoBytes.Base(b.group)
		e.redoBytes.Start(b.group)
	}
	e.merged(b.seq, b.seq, b.records)
	e.measure()
	e.published(b)
	e.publishDurable()
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
	records int64           // and so many records with it
	pages   *override.Batch // of a page group: to be installed once that is synced
}

// logAndApply logs the batch, makes it visible to updates and merges it, unless that may wait.
func (e *Engine) logAndApply(b *batch) error {
	for _, n := range e.nodes {
		b.held += n.Value.tx.held
	}
	g := e.redoGroup()
	e.gather(g)
	if b.logged = e.opts.Durability == Buffered || e.anyLogged(); b.logged {
		b.copied = e.logInto(g)
	} else {
		b.copied = e.logOps()
	}
	if b.runs = len(e.runs) > 0; b.runs {
		e.settleMerge() // the tree's lists get them
	}
	e.batchOps, e.stays = len(e.ops), b.logged
	b.group = g.Number()
	switch {
	case e.opts.Durability == Buffered:
		return e.buffer(g, b)
	case e.sharesPage(b):
		return e.writeThrough(g, b)
	}
	if ok, err := e.triesPageGroup(b); err != nil {
		return err
	} else if ok {
		return e.applyAndLog(g, b)
	}
	if err := e.commitRecords(g); err != nil {
		return err
	}
	if err := e.startSync(); err != nil {
		return err
	}
	if e.opts.Durability == Durable { // before the batch is shown, for it is not durable
		if err := e.mergeUnlessDeferred(b); err != nil {
			return err
		}
	}
	if err := e.noteRow(false); err != nil {
		return err
	}
	e.published(b)
	if e.opts.Durability == Durable {
		return nil
	}
	return e.mergeUnlessDeferred(b)
}

// triesPageGroup reports whether the batch is to be applied before it is logged, so that it may become a page group.
//
// The device waits for that, while a record group is on its way before anything is applied. One page is written either way, but a leaf
// whose changes are in record groups has to be flushed later. So where one lone commit after the other changes the same leaf, as those of
// ascending keys do, it stays dirty: one flush serves them all. That the next one will do so too is a guess, which costs a page when it
// is wrong. A file that may not grow has no room for what is flushed later. Without a sync nothing is gained: the pages of the group would
// have to stay in memory until there is one.
//
// The batch before may not be in the tree yet. It is merged here if a page group may come of it.
func (e *Engine) triesPageGroup(b *batch) (bool, error) {
	if b.logged || e.opts.Durability != Durable || e.inRow() || len(e.ops) > pageGroupOps || e.tables.merging() || !e.pages.CanPageGroup() ||
		e.tables.rest() > pageGroupOps || e.tables.rest() > 0 && !e.numbered(e.tables.active.Len()) || slices.ContainsFunc(e.ops, longKey) {
		return false, nil
	}
	if e.tables.rest() > 0 {
		if err := e.merge(); err != nil {
			return false, err
		}
	}
	return e.pages.CanPageGroup(), nil
}

// longKey reports whether the key of a put is in a run. To apply it may take reading that, so the run has to be written before.
func longKey(op btree.Op) bool { return op.Ref != nil && op.Ref.KeyLen > 0 }

// row counts the lone commits in a row, each of which changed the same leaf as the one before it, or one that was dirty. Baton holder.
type row struct {
	leaf    logstore.PageID
	commits int
}

// inRow reports whether the next commit is taken for one to the same leaf as those before it. Baton holder.
func (e *Engine) inRow() bool { return e.row.commits >= leastRow }

// noteRow counts the batch at hand, while the device writes its group. If it was applied already, that its leaf is dirty tells nothing.
func (e *Engine) noteRow(applied bool) error {
	if e.opts.Durability != Durable || len(e.ops) != 1 || e.limited() || e.tables.merging() {
		e.row = row{}
		return nil
	}
	leaf, dirty, err := e.pages.LeafOf(e.ops[0].Key)
	if leaf != e.row.leaf && (applied || !dirty) {
		e.row.commits = 0
	}
	e.row.leaf = leaf
	e.row.commits++
	return err
}

// startSync sets the device to work on the group that was written last, if it will be synced.
func (e *Engine) startSync() error {
	if e.opts.Durability != Durable {
		return nil
	}
	return e.store.WriteOutTail()
}

// buffer leaves the batch in memory: its ops in the memtable, its redo to be written with others. Long values are in the group already.
func (e *Engine) buffer(g *logstore.Group, b *batch) error {
	if b.runs {
		if err := e.commitRecords(g); err != nil {
			return err
		}
	} else {
		e.bear(b.group) // large values that were overwritten give their segments back
		e.keepOpen(g)
	}
	if e.waiting() > 0 && !e.unlogged.Load() {
		e.unlogged.Store(true)
	}
	e.published(b)
	if e.waiting() >= bufferedBytes {
		return e.writeRedo()
	}
	if e.waiting() == 0 {
		e.unlogged.Store(false)
	}
	return nil
}

// applyAndLog applies the batch and logs its pages if they take no more room than its redo, else the redo.
func (e *Engine) applyAndLog(g *logstore.Group, b *batch) error {
	pages := e.pages.Begin(b.seq)
	r, err := btree.Apply(pages, override.Root, e.ops)
	if err != nil {
		return err
	}
	records := e.records + r.Added
	if !pages.Legal(int(redo.Pages(int64(len(e.redo))))) {
		if err = e.commitRecords(g); err == nil {
			err = e.startSync()
		}
	} else {
		g.SetKind(logstore.PageGroup)
		pages.WritePages(g)
		if _, err = g.Commit(uint64(records)); err == nil {
			err = e.startSync()
		}
		if err == nil {
			e.bear(b.group)
			b.pages = pages
			e.redo, e.redoOps = e.redo[:0], 0
		}
	}
	if err == nil {
		err = e.noteRow(true)
	}
	if err != nil {
		return err
	}
	e.ops = e.ops[:0] // the tree has them
	b.applied, b.records = true, records
	return nil
}

// mergeUnlessDeferred merges what the tree lacks, of that what is durable where commits are synced, unless the batch is a large one: then that
// may wait.
func (e *Engine) mergeUnlessDeferred(b *batch) error {
	if len(e.ops) >= cmp.Or(e.opts.DeferOps, deferOps) && !e.crowded() {
		return nil
	}
	return e.mergeDurable()
}

// syncLog syncs all groups so far.
func (e *Engine) syncLog() error {
	if e.store.Durable() >= e.store.LastGroup() { // as behind a page group
		e.publishDurable()
		return e.Failed()
	}
	begun := time.Now()
	err := e.store.Sync()
	e.device.wait(time.Since(begun))
	e.publishDurable()
	return err
}

// commitRecords writes the redo at hand into g, which has the runs and lists of the batch at hand.
func (e *Engine) commitRecords(g *logstore.Group) error {
	group, err := e.commitRedo(g)
	if err != nil {
		return err
	}
	e.bear(group)
	return nil
}

// commitRedo is commitRecords for a group that has no runs, or before those are born.
func (e *Engine) commitRedo(g *logstore.Group) (group uint64, err error) {
	if len(e.redo) > 0 {
		g.Write(logstore.KindRecord, e.redo)
	}
	e.open = nil
	pages := g.Pages()
	if group, err = g.Commit(e.redoOps); err != nil {
		return 0, err
	}
	e.bearLogged(group)
	e.logged += pages
	e.redoBytes.Add(pages * logstore.PageSize)
	e.redo, e.redoOps = e.redo[:0], 0
	return group, nil
}

// writeRedo logs what Buffered commits have left in memory. The batch at hand, if there is one, is none of these commits: what its
// transactions have written to private segments is theirs still, as no group has listed it. Baton holder.
func (e *Engine) writeRedo() error {
	if err := e.Failed(); err != nil || e.waiting() == 0 {
		return err
	}
	if _, err := e.commitRedo(e.redoGroup()); err != nil {
		return err
	}
	e.spend()
	e.marks.Note(e.store.LastGroup(), e.applied.Load())
	e.unlogged.Store(false)
	return nil
}

// published makes the batch visible to updates, its ops in the memtable unless the tree has them. The order is that of lockfree.List.
func (e *Engine) published(b *batch) {
	e.tell(b.seq)
	copied := true // or in the tree by now
	if len(e.ops) > 0 {
		e.tables.insert(b.seq, e.ops, int64(e.opBytes))
		copied = b.copied
	}
	e.committed.Store(b.seq)
	e.show(b.seq)
	e.noteLogged(b.seq)
	alone := e.tellLate(b.seq)
	e.list.Cut(e.nodes[len(e.nodes)-1])
	e.sets.retire(e.nodes, b.seq, copied, alone)
	e.known.commits.Add(uint64(len(e.nodes)))
}

// account does the accounts of a finished batch and starts the housekeeping that it makes due.
func (e *Engine) account(b *batch) {
	e.batches++
	due := e.batches%reclaimBatches == 0
	e.held += b.held
	e.spend()
	if !due && e.opts.Durability == Buffered && e.batchOps < deferOps { // what one of these commits reserves too much is little
		return
	}
	e.rebalance(0)
	if due {
		e.leafy.Store(e.leaves() > fewKeys)
		if !e.tables.merging() {
			e.reclaim()
		}
	}
	if e.batchOps >= deferOps {
		e.keeper.nudgeToGrow(b.held)
	} else if due {
		e.keeper.nudgeToGrow(0) // a segment will do
	}
	e.noteRedo()
	e.keeper.nudge()
}

// rebalance sets what is reserved for the dirty pages and the redo in memory anew; extra pages were reserved for them beside that. Should there be too few, the pages held back for deletes and checkpoints cover the difference; without those the next flush
// tries again.
func (e *Engine) rebalance(extra int64) {
	e.held += extra
	switch want := e.unwritten(); {
	case e.held > want:
		e.store.Release(e.held - want)
		e.held = want
	case e.held < want:
		_ = e.provide()
	}
}

// spend gives up what was reserved for the groups of commits that have been logged since it was called last: left in held, it would be
// taken for room of dirty pages where there was too little for those. Baton holder.
func (e *Engine) spend() {
	if e.logged == 0 {
		return
	}
	spent := min(e.logged, e.held)
	e.store.Release(spent)
	e.held -= spent
	e.logged = 0
}

// provide reserves what the dirty pages and the redo in memory need, or reports that it cannot be had. It also makes sure that all that
// is promised is there: a commit whose long values left ends of segments unused has taken more than was counted. Baton holder.
func (e *Engine) provide() error {
	missing := max(0, e.unwritten()-e.held)
	err := e.store.Reserve(missing, true)
	if err == nil {
		e.held += missing
	}
	return err
}

// unwritten bounds the pages that what is in memory will take. Where flushes are by part and the device has plenty of room, it counts only
// so much of what they may leave behind as the next parts take. What lives in the place of the rest may give up its room first, but it need
// not: the redo start, and with it the log, moves only once the oldest of what was left behind is written.
func (e *Engine) unwritten() int64 {
	later := int64(0)
	tree := e.sizes()
	if n := int64(e.mayParts()); n > partsHeld && !e.limited() {
		leaves := tree.dirty/logstore.PageSize - tree.must
		later = leaves - leaves*partsHeld/n
		if e.scarce(later) {
			later = 0
		}
	}
	return withMargin(tree.unwritten-later+e.lackingPages()) + redo.Pages(e.waiting())
}

// scarce reports whether room has to be made sure of for so many pages before there is need of it.
func (e *Engine) scarce(pages int64) bool {
	return e.limited() || e.store.DeviceFree() < plenty(pages, e.store.SpaceStats().FileBytes)
}

// plenty returns from how many bytes on a device has plenty of room for so many pages that none is held for. It is looked at when the file
// grows, and once a second for what others take. So it is what the pages need twice, four times as much as the file grows by at once
// beside, and something for others.
func plenty(pages, file int64) int64 {
	return 2*withMargin(pages)*logstore.PageSize + file/8 + plentyLeast
}

const plentyLeast = 64 << 20

// limited reports whether the file has a limit, or the disk was full when there was last need of more. Then there is room for all that is
// dirty before a commit is accepted.
func (e *Engine) limited() bool { return e.opts.Store.MaxFileSize > 0 || e.full.Load() }

// withMargin adds what ends of segments and inner nodes may take.
func withMargin(pages int64) int64 { return pages + pages/8 }
