package commit

import "sync/atomic"

// LastWrites is the table of last writes, hash(key) -> Seq. It is for transactions that began before a batch and look for conflicts once it has
// left the commit list. Where there is none such, the Seq of the batch is noted as untold instead: a store to a table that no cache holds
// takes longer than a look at the registry.
//
// Invariants:
//
//  1. Of each batch that is cut from the list, or at which somebody may be registered, the table has all keys, or untold is not below its
//     Seq.
//  2. A transaction with a snapshot below untold has lost, as if two keys shared a place in the table.
//  3. The note is taken back once the table has all keys, and who resolves looks at the note first, then at the table.
//
// So no conflict is missed, by the argument of lockfree.List: who misses the batch in the list finds the note, or finds it in the table.
type LastWrites struct {
	slots  []atomic.Uint64 // written by the leader before applied moves
	untold atomic.Uint64   // Seq of the newest batch that slots lacks
	told   uint64          // untold as it was before the last note; the leader's
}

// Init gives the table its slots, a power of two of them.
func (w *LastWrites) Init(slots int) { w.slots = make([]atomic.Uint64, slots) }

// Of returns the place of a key's last Seq.
func (w *LastWrites) Of(hash uint64) *atomic.Uint64 { return &w.slots[hash&uint64(len(w.slots)-1)] }

// Untold returns the Seq of the newest batch that the table lacks, or of an older one if it lacks none.
func (w *LastWrites) Untold() uint64 { return w.untold.Load() }

// Note notes a batch as untold. Leader.
func (w *LastWrites) Note(seq uint64) {
	w.told = w.untold.Load()
	w.untold.Store(seq)
}

// TakeBack takes the last note back: the table has the batch by now. Leader.
func (w *LastWrites) TakeBack() { w.untold.Store(w.told) }
