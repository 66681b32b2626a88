package mvcc

import (
	"sync/atomic"

	"flashdbm/internal/commit"
)

// watermarks are Seqs of batch ends. applied: what new updates read; every change up to it is in memory. durable: survives a power cut. at is
// the one that View reads at.
type watermarks struct {
	*file
	applied   atomic.Uint64
	durable   atomic.Uint64
	viewAt    *atomic.Uint64
	committed atomic.Uint64  // Seq of the last batch of commits; others are of background work. Written before applied moves
	moved     commit.Waiters // for applied
	groups    commit.Marks
}

// show makes seq what new updates read. Token held.
func (w *watermarks) show(seq uint64) {
	w.applied.Store(seq)
	w.moved.Broadcast()
}

// publishDurable moves the durable watermark to what the store's syncs have covered.
func (w *watermarks) publishDurable() { w.groups.Publish(w.store.Durable(), &w.durable) }
