package commit

import "sync/atomic"

// LastWrites is the table of last writes: hash(key) -> Seq. A transaction whose snapshot is older than a batch uses it
// to find a conflict with that batch after the batch has left the commit list. If no such transaction exists, the
// leader need not enter the keys of the batch. It then only stores the batch's Seq in untold: one store for each key,
// to memory that is in no cache, takes longer than reading the registry.
//
// Invariants:
//
//  1. For each batch that was cut from the list, or at whose Seq a reader may be registered, the table has all keys, or
//     untold is at least the batch's Seq.
//  2. A transaction with a snapshot below untold loses, as if one of its keys had been written.
//  3. The leader lowers untold again (TakeBack) only when the table has all keys of the batch. A resolver reads untold
//     first, then the table.
//
// So no conflict is missed, by the argument of lockfree.List: a resolver that does not find the batch in the list finds
// an untold that is above its snapshot, or the batch's keys in the table.
type LastWrites struct {
	slots  []atomic.Uint64 // the leader writes them before applied moves
	untold atomic.Uint64   // Seq of the newest batch whose keys are not in slots
	told   uint64          // value of untold before the last Note; only the leader uses it
	recent recentWrites    // distinguishes keys that share a slot
}

// Init allocates the slots, and room for the recent keys; both numbers are powers of two.
func (w *LastWrites) Init(slots, recent int) {
	w.slots, w.recent.entries = make([]atomic.Uint64, slots), make([]atomic.Uint64, recent)
}

// Of returns the slot of a key's last Seq.
func (w *LastWrites) Of(hash uint64) *atomic.Uint64 { return &w.slots[hash&uint64(len(w.slots)-1)] }

// Untold returns a Seq: the table has the keys of all batches above it. A snapshot below it loses.
func (w *LastWrites) Untold() uint64 { return w.untold.Load() }

// Note makes all snapshots below seq lose, in place of entering the keys of that batch. Only the leader calls it.
func (w *LastWrites) Note(seq uint64) {
	w.told = w.untold.Load()
	w.untold.Store(seq)
}

// TakeBack undoes the last Note, once the table has the keys of that batch. Only the leader calls it.
func (w *LastWrites) TakeBack() { w.untold.Store(w.told) }
