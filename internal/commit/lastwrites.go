package commit

import "sync/atomic"

// LastWrites is the table of last writes: hash(key) -> Seq. A transaction that began before a batch uses it to find
// a conflict with the batch once that has left the commit list. If there is no such transaction, the Seq of the
// batch is noted as untold instead of being stored for each key: a store to a table that is in no cache takes
// longer than a look at the registry.
//
// Invariants:
//
//  1. For each batch that was cut from the list, or at which somebody may be registered, the table has all keys, or
//     untold is not below the batch's Seq.
//  2. A transaction with a snapshot below untold has lost, as if a key of it was written.
//  3. The note is taken back only when the table has all keys. A resolver reads first untold, then the table.
//
// So no conflict is missed, by the argument of lockfree.List: a resolver that does not find the batch in the list
// finds the note, or finds the batch in the table.
type LastWrites struct {
	slots  []atomic.Uint64 // the leader writes them before applied moves
	untold atomic.Uint64   // Seq of the newest batch that slots lacks
	told   uint64          // value of untold before the last note; only the leader uses it
	recent recentWrites    // tells keys apart that share a slot
}

// Init allocates the slots, and room for the recent keys; both numbers are powers of two.
func (w *LastWrites) Init(slots, recent int) {
	w.slots, w.recent.entries = make([]atomic.Uint64, slots), make([]atomic.Uint64, recent)
}

// Of returns the slot of a key's last Seq.
func (w *LastWrites) Of(hash uint64) *atomic.Uint64 { return &w.slots[hash&uint64(len(w.slots)-1)] }

// Untold returns the Seq of the newest batch that the table lacks; if it lacks none, the Seq of an older batch.
func (w *LastWrites) Untold() uint64 { return w.untold.Load() }

// Note notes a batch as untold. Only the leader calls it.
func (w *LastWrites) Note(seq uint64) {
	w.told = w.untold.Load()
	w.untold.Store(seq)
}

// TakeBack takes the last note back, when the table has the keys of the batch. Only the leader calls it.
func (w *LastWrites) TakeBack() { w.untold.Store(w.told) }
