package mvcc

import (
	"sync/atomic"

	"flashdbm/lockfree"
)

// sharedSlot is a place in the registry that several read-only transactions have together. It is released by the last one to leave it; if
// the engine asks its reader to end, all of them find that.
type sharedSlot struct {
	slot  lockfree.Slot
	users atomic.Int32 // who adds one is among them
}

func newSharedSlot(slot lockfree.Slot) *sharedSlot {
	s := &sharedSlot{slot: slot}
	s.users.Store(1)
	return s
}

// Seq is that of the snapshot.
func (s *sharedSlot) Seq() uint64 { return s.slot.Seq() }

// Release leaves the place.
func (s *sharedSlot) Release() {
	if s.users.Add(-1) == 0 {
		s.slot.Release()
	}
}

// leaveSlot gives up the transaction's place in the registry.
func (tx *pinned) leaveSlot() {
	if tx.shared != nil {
		tx.shared.Release()
		return
	}
	tx.slot.Release()
}

// Sibling begins another read-only transaction at the snapshot of tx, for another goroutine. tx is read-only and open. Calls are made one at
// a time, and not beside other uses of tx. The sibling shares the place of tx in the registry and goes on when tx has ended. Where the age
// of transactions is bounded it is as old as tx, and loses its snapshot by itself. Beside a writer it does not move to a newer snapshot.
//
// It does not look whether the engine is closed: that waits for tx. ErrSnapshotTooOld.
func (tx *Tx) Sibling() (*Tx, error) {
	if tx.Aging() {
		if err := tx.Enter(); err != nil {
			return nil, err
		}
		defer tx.Leave()
	}
	if err := tx.Expired(); err != nil {
		return nil, err
	}
	e := tx.e
	if tx.shared == nil { // else its lease looks at it too
		tx.shared = newSharedSlot(tx.slot)
	}
	tx.shared.users.Add(1)
	n := &Tx{pinned: pinned{e: e, readOnly: true, slot: tx.slot, shared: tx.shared, snap: tx.snap}}
	if tx.lease != nil {
		n.lease = e.readers.leases.Add(n.shared, tx.lease.Began(), e.opts.Leases.Trace)
	}
	return n, nil
}
