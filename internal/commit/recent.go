package commit

import (
	"slices"
	"sync/atomic"
)

// recentWrites has the keys that batches have written lately, in the order of their Seqs. Two keys may share a slot of
// LastWrites. Then recentWrites tells which of them a batch has written, so that a transaction of many keys does not
// lose to commits of other keys. It is used only if a slot says that a transaction may have lost.
//
// An entry has the low 40 bits of the key's hash and the low 24 bits of the batch's Seq. The entries are in a ring
// buffer of size places; entry number i is at place i % size. Invariants:
//
//  1. Only the leader writes. Before it writes the entries of a batch, it raises claimed to the number after the last of
//     them; after it has written them, it raises end to that number. So places of entries from claimed-size to end-1
//     are not being overwritten. A reader reads backwards from end-1, and then reads claimed: if the number of the
//     oldest entry that it has read is still at least claimed-size, all entries that it has read were valid.
//  2. From end-1 backwards, the Seqs of entries never rise. If a batch comes out of order, or its keys are not entered,
//     gap is raised to its Seq: then a transaction with a snapshot below gap is taken to have lost.
//  3. The leader stores a Seq in a slot of LastWrites after it has written the entry, and before it raises end. Until
//     end is raised the batch is in the commit list. So a reader that did not find the batch in the list finds its
//     entries below end.
//
// Of 2^40 pairs of keys one has equal entries. Then a transaction loses although it does not conflict; no conflict is
// missed.
type recentWrites struct {
	entries []atomic.Uint64
	claimed atomic.Uint64 // entries with smaller numbers are written, or are being written
	end     atomic.Uint64 // entries with smaller numbers are written
	gap     atomic.Uint64 // the ring may lack keys of batches up to this Seq
	newest  atomic.Uint64 // Seq of the newest batch
	next    uint64        // number of the next entry; only the leader uses it
}

const (
	seqBits  = 24
	seqMask  = 1<<seqBits - 1
	farthest = 1 << (seqBits - 2) // limit of the distance from a snapshot to the newest Seq, so that the low bits suffice to compare Seqs
)

// BeginBatch is called before Enter for the keys of a batch. keys is an upper bound of their number.
func (w *LastWrites) BeginBatch(seq uint64, keys int) {
	r := &w.recent
	if seq < r.newest.Load() || keys > len(r.entries)/2 {
		w.Missing(seq)
		keys = 0
	} else {
		r.newest.Store(seq)
	}
	r.claimed.Store(r.next + uint64(keys))
}

// Enter enters a key of the batch.
func (w *LastWrites) Enter(seq, hash uint64) {
	r := &w.recent
	switch {
	case r.next < r.claimed.Load():
		r.entries[r.next&uint64(len(r.entries)-1)].Store(hash<<seqBits | seq&seqMask)
		r.next++
	case r.gap.Load() < seq:
		w.Missing(seq)
	}
	w.Of(hash).Store(seq)
}

// EndBatch is called after Enter for all keys of a batch, before applied moves or the note for the batch is taken back.
func (w *LastWrites) EndBatch() { w.recent.end.Store(w.recent.next) }

// Missing is called before keys of a batch are stored in slots without being entered in the ring.
func (w *LastWrites) Missing(seq uint64) {
	r := &w.recent
	r.gap.Store(max(r.gap.Load(), seq, r.newest.Load()))
}

// Wrote reports whether a batch above the snapshot may have written one of the keys with the given hashes: those whose
// slots have a Seq above the snapshot. It changes the slice.
func (w *LastWrites) Wrote(snapshot uint64, hashes []uint64) bool {
	r := &w.recent
	end, size := r.end.Load(), uint64(len(r.entries))
	if r.newest.Load() > snapshot+farthest {
		return true
	}
	for i := range hashes {
		hashes[i] <<= seqBits
	}
	slices.Sort(hashes)
	low, at, reached := max(end, size)-size, end, false
	for at > low && !reached {
		at--
		e := r.entries[at&(size-1)].Load()
		age := (e - snapshot) & seqMask // distance from the snapshot to the entry's Seq; 0 or very large if that is not above the snapshot
		if reached = age == 0 || age > 2*farthest; reached {
			break
		}
		if _, found := slices.BinarySearch(hashes, e&^seqMask); found {
			return true
		}
	}
	if !reached && low > 0 {
		return true // more was written since the snapshot than the ring holds
	}
	return r.claimed.Load() > at+size || r.gap.Load() > snapshot
}
