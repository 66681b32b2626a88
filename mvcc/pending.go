package mvcc

import (
	"bytes"
	"runtime/debug"
	"slices"
	"sync/atomic"

	"flashdbm/internal/btree"
	"flashdbm/internal/overlay"
	"flashdbm/internal/writeset"
	"flashdbm/lockfree"
	"flashdbm/logstore"
	"flashdbm/override"
)

// A commit can be visible before the tree has it. Its batch is logged, gets its Seq, and new transactions begin at that Seq; the ops
// wait here until somebody reads, or until there are many. Then they are merged into the tree in one go: several batches of small
// changes visit each leaf once, and no versions are made that nobody could have read.
//
// Invariants:
//
//  1. merged <= applied: the tree has every batch up to merged. Those from there to applied are pending, in the order of their Seqs,
//     with ops in memory that stays as it is (their write sets are not used again before they are merged).
//  2. Nobody looks at a page at a Seq above merged: readers call await first.
//  3. The tree has a version for each Seq at which somebody may read. Batches i and i+1 are merged as one, under the Seq of i+1, only
//     if the registry shows that no reader is or will be at i's: Pinned(i, i+1), which is also true from the view watermark on.
//  4. Whatever depends on the newest tree (flushes, folds, checkpoints, page groups) takes the baton by withBaton, which merges first.
//     A flush lays it down between its parts; what becomes pending meanwhile is above its base.
//
// An error of a merge poisons the store and is what everybody gets who reads above merged. What is merged stays readable. After another
// failure, merging goes on for those who may read: what is durable and pending is as good as what is durable and in the tree.
type pending struct {
	merged atomic.Uint64               // read by anyone; written by the baton holder
	redo   atomic.Pointer[pendingRedo] // the same; what Open has left to redo, before all else that is pending

	aside atomic.Pointer[aside] // the merge under way, if any; read by anyone, written by the baton holder

	// The rest belongs to the baton holder.
	ops     []btree.Op
	ascend  bool           // their keys do, from batch to batch too
	copies  writeset.Arena // redo records of small batches, in which their ops have their keys and values
	batches []pendingBatch
	bytes   int64 // of keys and values
	err     error // of the merge that failed
	pins    []uint64
	sorter  overlay.Sorter // of the merge under way, if there is one
	noAside int            // how many are about to need the tree: none begins

	asideFrom   int        // ops that are merged aside at least; never changed
	asideAt     int        // ops from which on that is tried
	spareOps    []btree.Op // for what comes when these are merged aside
	spareCopies writeset.Arena
}

type pendingBatch struct {
	seq uint64
	end int // of its ops
}

const (
	pendingOps   = 192 << 10 // ops that may be pending; the more, the fewer visits of leaves,
	pendingRun   = 1 << 10   // but keys that ascend come to each leaf once anyway: little enough for the processor's nearest caches
	pendingOp    = 144       // bytes that an op takes, with its copy in order, beside its key and value
	pendingLeaf  = 2560      // bytes of the version of a leaf, which each op may make if there are so many leaves
	pendingSpare = 40 << 20  // of MemoryLimit, of the rest of which ops may take a third and such versions half; with a small one each an eighth of it all

	splitBytes = 1800 // of keys and values that make a leaf more: half a page

	copyBytes = logstore.BodySize // of the keys and values of a batch, up to which they are copied: see logOps. All batches that may share a page

	// deferOps is the least size of a synced batch that is left pending: smaller ones are merged while they are synced. Bulk loads are
	// larger, and gain.
	deferOps = 256
)

// add makes a batch pending, whose keys and values have so many bytes. Baton holder, who moves applied next.
func (p *pending) add(seq uint64, ops []btree.Op, bytesOfOps int64) {
	p.bytes += bytesOfOps
	from := len(p.ops)
	p.ascend = from == 0 || p.ascend && bytes.Compare(p.ops[from-1].Key, ops[0].Key) < 0
	if cap(p.ops)-from < len(ops) {
		p.ops = slices.Grow(p.ops, max(len(ops), min(from, pendingOps))) // it is kept for the next time
	}
	p.ops = append(p.ops, ops...)
	p.batches = append(p.batches, pendingBatch{seq, len(p.ops)})
}

// crowded reports whether what is pending should be merged. Baton holder.
func (e *Engine) crowded() bool {
	p, limit := &e.pending, e.opts.MemoryLimit
	n, size := p.unmerged()
	memory := n*pendingOp + 2*size // keys and values lie in sets that are not full, and what was pending before is not collected yet
	if p.redo.Load() != nil || n >= pendingOps || p.ascend && len(p.ops) >= pendingRun || memory >= max(limit/8, (limit-pendingSpare)/3) {
		return true
	}
	versions := max(limit/8, (limit-pendingSpare)/2)
	return n*pendingLeaf >= versions && min(n, e.leaves())*pendingLeaf >= versions
}

// leaves returns about how many pages the tree has: most that are dirty have a place already, or most have none yet. Baton holder.
func (e *Engine) leaves() int64 {
	return max(e.treeBytes(), e.sizes().dirty) / logstore.PageSize
}

// Pending reports whether commits are visible that the tree does not have yet: a cursor waits for the baton then.
func (e *Engine) Pending() bool { return e.pending.merged.Load() < e.applied.Load() }

// await returns once the tree has everything up to seq.
func (e *Engine) await(seq uint64) error {
	if e.pending.merged.Load() >= seq {
		return nil
	}
	return e.mergeFor(seq)
}

// mergeFor merges for a reader at seq.
func (e *Engine) mergeFor(seq uint64) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	e.awaitAside()
	e.takeBaton()
	defer e.putBaton(true)
	defer e.protect(&err)
	e.thinAside(seq)
	if e.Failed() == nil {
		e.mergeInStints(seq)
		return e.merge(e.applied.Load())
	}
	return e.merge(seq)
}

// merge brings the pending batches up to seq into the tree. Baton holder.
func (e *Engine) merge(seq uint64) error {
	p := &e.pending
	e.logFirst()
	e.settleAside()
	if p.err != nil && p.merged.Load() < seq {
		return p.err
	}
	if r := p.redo.Load(); r != nil && seq >= redoSeq {
		p.err = errBroken // should something panic
		if p.err = e.mergeRedo(r); p.err != nil {
			return p.err
		}
	}
	if len(p.batches) == 0 || p.batches[0].seq > seq {
		return nil
	}
	p.err = errBroken // should something panic
	p.pins, _ = e.registry.Scan(p.pins, e.view)
	from, n := 0, 0 // of ops and batches
	for n < len(p.batches) && p.batches[n].seq <= seq {
		last := n
		for last+1 < len(p.batches) && p.batches[last+1].seq <= seq &&
			!lockfree.Pinned(p.pins, p.batches[last].seq, p.batches[last+1].seq) {
			last++
		}
		b := p.batches[last]
		if err := e.mergeOps(b.seq, p.ops[from:b.end], last > n); err != nil {
			p.err = e.store.Fail(err)
			return p.err
		}
		from, n = b.end, last+1
	}
	p.err = nil
	p.drop(n, from)
	e.measure()
	if e.Failed() == nil {
		e.rebalance(0)
	}
	return nil
}

// pendingPages bounds the pages that merging makes dirty.
func (e *Engine) pendingPages() int64 {
	ops, size := e.pending.unmerged()
	if ops == 0 {
		return 0
	}
	return e.changedPages(ops, size)
}

// changedPages bounds the pages that ops with so many bytes of keys and values make dirty: no more than there are ops, nor than there are
// leaves and what they split into; and leaves that the next flush writes for the first time.
func (e *Engine) changedPages(ops, bytes int64) int64 {
	grown := bytes/splitBytes + 1
	return min(ops, e.livePages()+e.sizes().must+grown) + grown
}

// treeBytes returns the bytes of live pages, without those of logged values.
func (e *Engine) treeBytes() int64 {
	s := e.store.SpaceStats()
	return s.LiveBytes - s.LoggedBytes
}

// livePages bounds the pages of the tree that have room of their own: those that live, and those that a flush in flight brings to life.
func (e *Engine) livePages() int64 {
	unplaced := e.pages.Unplaced() // first: what gets its place in between counts twice, not never
	return unplaced + e.treeBytes()/logstore.PageSize
}

// drop forgets the first batches, which have the first ops.
func (p *pending) drop(batches, ops int) {
	for i := range p.ops[:ops] {
		p.bytes -= int64(len(p.ops[i].Key) + len(p.ops[i].Value))
	}
	rest := copy(p.ops, p.ops[ops:])
	clear(p.ops[rest:])
	p.ops = p.ops[:rest]
	if p.asideAt = p.asideFrom; rest == 0 {
		p.copies.Reset()
	}
	p.batches = append(p.batches[:0], p.batches[batches:]...)
	for i := range p.batches {
		p.batches[i].end -= ops
	}
	if cap(p.ops) > 2*pendingOps && rest == 0 { // a large transaction
		p.ops, p.sorter = nil, overlay.Sorter{}
	}
}

// mergeOps brings the ops of one batch, or of several, into the tree as of seq.
func (e *Engine) mergeOps(seq uint64, ops []btree.Op, several bool) error {
	pages, records := e.pages.Begin(seq), e.records
	apply := func(ops []btree.Op) error {
		r, err := btree.Apply(pages, override.Root, ops)
		records += r.Added
		return err
	}
	var err error
	if several && !e.pending.ascend {
		err = e.pending.sorter.Sorted(ops, pages.Drop, apply)
	} else {
		err = apply(ops)
	}
	if err != nil {
		return err
	}
	e.merged(seq, records)
	return nil
}
