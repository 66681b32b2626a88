package mvcc

import (
	"sync/atomic"

	"flashdbm/lockfree"
)

// sharedSlot is a place in the registry that several read-only transactions share. The last one to leave releases it.
// If the engine asks its reader to end, all of them find that.
type sharedSlot struct {
	slot  lockfree.Slot
	users atomic.Int32 // only a user may add another user
}

func newSharedSlot(slot lockfree.Slot) *sharedSlot {
	s := &sharedSlot{slot: slot}
	s.users.Store(1)
	return s
}

// Seq returns the Seq of the snapshot.
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

// Sibling begins another read-only transaction at the snapshot of tx, for another goroutine. tx must be read-only and
// open. Calls must not overlap with each other or with other uses of tx. The sibling shares the place of tx in the
// registry and may outlive tx. If the age of transactions is bounded, the sibling counts as old as tx, and loses its
// snapshot on its own. Beside a writer it does not move to a newer snapshot.
//
// Sibling does not check whether the engine is closed: Close waits for tx. Error: ErrSnapshotTooOld.
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
	if tx.shared == nil { // else the lease of tx looks at it too
		tx.shared = newSharedSlot(tx.slot)
	}
	tx.shared.users.Add(1)
	n := &Tx{pinned: pinned{e: e, readOnly: true, slot: tx.slot, shared: tx.shared, snap: tx.snap}}
	if tx.lease != nil {
		n.lease = e.readers.leases.Add(n.shared, tx.lease.Began(), e.opts.Leases.Trace)
	}
	return n, nil
}
