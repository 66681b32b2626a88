package mvcc

import (
	"sync/atomic"

	"flashdbm/internal/commit"
	"flashdbm/internal/invariants"
)

// watermarks are Seqs of batches. New updates read at applied; every change up to it is in memory. What is up to
// durable survives a power cut. Views read at *viewAt, which is one of the two. durable never passes applied.
type watermarks struct {
	*file
	applied   atomic.Uint64
	durable   atomic.Uint64
	viewAt    *atomic.Uint64
	committed atomic.Uint64  // Seq of the last batch of commits; other Seqs are of background work. Written before applied moves
	moved     commit.Waiters // broadcasts when applied has moved
	groups    commit.Marks   // which Seq is in which group of the log
}

// show makes seq the one that new updates read at. Token held.
func (w *watermarks) show(seq uint64) {
	if invariants.Enabled {
		invariants.Check(seq >= w.applied.Load(), "the watermark of applied commits moves back")
	}
	w.applied.Store(seq)
	w.moved.Broadcast()
}

// publishDurable moves the durable watermark to what the store's syncs have covered.
func (w *watermarks) publishDurable() { w.groups.Publish(w.store.Durable(), &w.durable) }
