package commit

import (
	"slices"
	"sync/atomic"
)

// recentWrites has the keys that batches have written lately, in the order of their Seqs. Two keys may share a slot of
// LastWrites: then recentWrites tells whether a batch has written the one that is asked for, so a transaction of many
// keys does not lose to commits of other keys. It is asked only if a slot says that a transaction may have lost.
//
// An entry is the low 40 bits of the key's hash, and the low 24 bits of the batch's Seq. Entries are in a ring:
//
//  1. The leader, who alone writes, moves claimed before it writes entries of a batch, and end behind them. So entries
//     from claimed-size up to but excluding end are whole, and a reader that finds claimed unmoved so far that it
//     covers what was read, has read entries of that range.
//  2. From end downwards, Seqs do not grow. A batch that comes out of order, or is not entered, is noted in gap: nothing
//     can be said about snapshots below it.
//  3. A slot of LastWrites gets the Seq after the entry is there and before end moves. The batch is in the commit list
//     until then. So a reader that has not found the batch in the list finds it below end.
//
// A wrong answer for one pair of keys in 2^40 is a conflict too many, never one too few.
type recentWrites struct {
	entries []atomic.Uint64
	claimed atomic.Uint64 // entries ever begun
	end     atomic.Uint64 // entries ever written
	gap     atomic.Uint64 // nothing is known of snapshots below this Seq
	newest  atomic.Uint64 // Seq of the newest batch
	next    uint64        // index of the next entry; only the leader uses it
}

const (
	seqBits  = 24
	seqMask  = 1<<seqBits - 1
	farthest = 1 << (seqBits - 2) // a snapshot may be this far behind: then the low bits tell which Seqs are above it
)

// BeginBatch is called before Enter for the keys of a batch, of which there are at most the given number.
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

// Missing notes that keys of a batch are in their slots and nowhere else, before they are.
func (w *LastWrites) Missing(seq uint64) {
	r := &w.recent
	r.gap.Store(max(r.gap.Load(), seq, r.newest.Load()))
}

// Wrote reports whether batches above a snapshot may have written one of the keys with the given hashes, whose slots say
// that they may. It changes the slice.
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
		age := (e - snapshot) & seqMask // 1 to farthest, and a few more: above the snapshot
		if reached = age == 0 || age > 2*farthest; reached {
			break
		}
		if _, found := slices.BinarySearch(hashes, e&^seqMask); found {
			return true
		}
	}
	if !reached && low > 0 {
		return true // what was written since the snapshot is more than the ring has
	}
	return r.claimed.Load() > at+size || r.gap.Load() > snapshot
}
