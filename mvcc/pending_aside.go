package mvcc

import (
	"math"
	"runtime"
	"runtime/debug"

	"flashdbm/internal/btree"
	"flashdbm/lockfree"
	"flashdbm/override"
)

// aside is a merge of much that was pending, by a goroutine of its own while commits go on: a load has work for two processors then. It
// begins when a batch does, and is settled by whoever needs the tree, or by a later batch.
//
// Invariants:
//
//  1. From its beginning until it is settled, the tree is its own: what is dirty or in limbo, and the memory of versions. The baton holder
//     goes by the sizes that were noted before, until it has called settleAside, as merge does first of all. A flush writes its parts beside
//     it, and waits for it before it installs them.
//  2. Its batches are pending until it is settled: merged moves then, and their write sets stay as they are.
//  3. They are merged as one, so it is not begun if somebody may read at the Seq of one but the last.
//  4. There is one at a time, and its end is waited for in any case.
type aside struct {
	seq   uint64 // of its last batch
	ops   []btree.Op
	bytes int64 // of keys and values
	sizes treeSizes
	done  chan struct{} // closed at its end; what follows is to be read behind that
	added int64
	err   error
}

// treeSizes are what is reserved and decided by.
type treeSizes struct {
	dirty     int64 // bytes
	must      int64 // pages
	unwritten int64 // pages
	memory    int64 // bytes
}

const (
	asideOps    = 32 << 10       // least ops that are merged aside,
	asideSynced = pendingOps / 2 // and where commits are synced, which wait for the device: fewer visits of leaves count more
	asideRest   = 2              // half of that is worth it where somebody needs the tree,
	asideRounds = 4              // and so many times, until little is left
)

// asideFrom returns how many ops have to be pending before they are merged aside.
func asideFrom(o *Options) int {
	switch {
	case o.AsideOps > 0:
		return o.AsideOps
	case o.Manual || runtime.GOMAXPROCS(0) == 1:
		return math.MaxInt
	case o.Durability == Durable:
		return asideSynced
	}
	return asideOps
}

// sizes returns those of the tree, or what they were when the merge under way began. Baton holder.
func (e *Engine) sizes() treeSizes {
	if m := e.pending.aside.Load(); m != nil {
		return m.sizes
	}
	return treeSizes{e.pages.DirtyBytes(), e.pages.MustPages(), e.pages.Unwritten(), e.memoryBytes()}
}

// beginAside begins to merge what is pending, if that is worth a goroutine, and reports whether it did. Baton holder.
func (e *Engine) beginAside() bool {
	p := &e.pending
	if p.ascend || p.noAside > 0 || p.aside.Load() != nil || p.redo.Load() != nil || p.err != nil {
		return false
	}
	p.pins, _ = e.registry.Scan(p.pins, e.view)
	last := p.batches[len(p.batches)-1].seq
	if lockfree.Pinned(p.pins, p.batches[0].seq, last) {
		p.asideAt = len(p.ops) + p.asideFrom
		return false
	}
	p.asideAt = p.asideFrom
	m := &aside{seq: last, ops: p.ops, bytes: p.bytes, sizes: e.sizes(), done: make(chan struct{}), err: errBroken} // should something panic
	pages := e.pages.Begin(m.seq)
	p.ops, p.spareOps, p.batches, p.bytes = p.spareOps, nil, p.batches[:0], 0
	p.copies, p.spareCopies = p.spareCopies, p.copies
	p.aside.Store(m)
	go func() {
		defer close(m.done)
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		defer e.protect(&m.err)
		m.err = p.sorter.Sorted(m.ops, pages.Drop, func(ops []btree.Op) error {
			r, err := btree.Apply(pages, override.Root, ops)
			m.added = r.Added
			return err
		})
		clear(m.ops)
	}()
	return true
}

// awaitAside waits for the end of the merge under way, for who is going to need the tree: with the baton in hand others would wait too.
func (e *Engine) awaitAside() {
	if m := e.pending.aside.Load(); m != nil {
		<-m.done
	}
}

// thinAside has much of what is pending merged aside, with the baton laid down, for who needs the tree up to seq and merges the rest with the
// baton in hand: commits would wait for all of it. A load goes on meanwhile, and leaves less from one round to the next. Only where commits are
// synced: others write on so fast that nothing is gained. Baton holder, for background work or a reader.
func (e *Engine) thinAside(seq uint64) {
	p := &e.pending
	if e.opts.Durability != Durable || e.ending.Load() {
		return
	}
	for range asideRounds {
		if p.aside.Load() != nil && p.ended() {
			e.settleAside()
		}
		if p.merged.Load() >= seq || e.Failed() != nil {
			return
		}
		if p.aside.Load() == nil && (len(p.ops) < p.asideFrom/asideRest || !e.beginAside()) {
			return
		}
		e.putBaton(true)
		e.awaitAside()
		e.takeBaton()
	}
}

// settleAside takes over what the merge under way has done, once it is at its end. Baton holder.
func (e *Engine) settleAside() {
	p := &e.pending
	m := p.aside.Load()
	if m == nil {
		return
	}
	<-m.done
	p.aside.Store(nil)
	p.spareCopies.Reset()
	if cap(m.ops) <= 2*pendingOps {
		p.spareOps = m.ops[:0]
	}
	if m.err != nil {
		p.err = e.store.Fail(m.err)
		return
	}
	e.merged(m.seq, e.records+m.added)
	if e.Failed() == nil {
		e.reclaim()
		e.rebalance(0)
	}
}

// ended reports whether the merge under way need not be waited for.
func (p *pending) ended() bool {
	select {
	case <-p.aside.Load().done:
		return true
	default:
		return false
	}
}

// unmerged returns what the tree lacks: the ops of the merge under way too. Baton holder.
func (p *pending) unmerged() (ops, bytes int64) {
	ops, bytes = int64(len(p.ops)), p.bytes
	if m := p.aside.Load(); m != nil {
		ops, bytes = ops+int64(len(m.ops)), bytes+m.bytes
	}
	return ops, bytes
}

// thin merges of what is pending as much as may not wait any longer, and has much of the rest merged aside. Baton holder.
func (e *Engine) thin() error {
	p := &e.pending
	if p.aside.Load() != nil && (!e.opts.Manual && p.ended() || e.crowded()) {
		e.settleAside()
		if err := e.Failed(); err != nil { // a commit that is buffered would not notice
			return err
		}
	}
	if len(p.ops) >= p.asideAt && e.beginAside() || !e.crowded() {
		return nil
	}
	return e.merge(e.applied.Load())
}
