package lockfree

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
)

// The registry grows in blocks. Each is twice as large as the previous one, within these bounds.
const (
	minBlockSlots = 32   // 4 KiB
	maxBlockSlots = 4096 // 512 KiB
)

// Registry records which values of a watermark readers use. A reader registers the value at which it reads; a
// scan returns the values that are pinned, so that its caller can free what only other values need. The zero
// Registry is ready. It must not be copied. It never shrinks.
//
// Conditions on watermarks: Scan is always given the same one, which never moves back; the ones given to
// Acquire never move back either, and are never below it. A watermark is read by one atomic load.
//
// Invariants, for a Scan that read W from its watermark:
//
//  1. A reader whose Acquire has returned or will return is at a value that is
//     among the pins returned, or not below W.
//  2. The horizon, the least of those values, never moves back.
//
// Why 1 holds. Acquire stores a value in its slot, then reads the watermark,
// and repeats until it reads what it has stored. Scan reads W, then the slots.
// Let v be the value Acquire returns with. If Scan read the slot after v was
// stored there and before its release, v is among the pins or not below W. If
// it read the slot before v was stored (or the list of blocks before the slot
// existed), then Acquire's last reading of its watermark came later still, and
// later than Scan's reading of W, so v is not below W. If it read the slot
// after the release, the reader is gone.
//
// A scan may find a value that its reader is about to replace. The scan returns it like other values, which is
// merely conservative, unless it lies below the horizon of an earlier scan: by 1 the reader cannot stay there.
//
// Rejected: a slot marked pending while the watermark is read. It takes three
// locked instructions instead of two (21 ns instead of 16), and a scan that
// meets a pending slot learns nothing about the values above the last horizon.
type Registry struct {
	// newest is the head of the list of blocks. A block is complete before it is published here, and is never
	// removed.
	newest atomic.Pointer[block]

	// scanning serializes Scan, Count and AcquireAt. Without it, a value handed from one slot to another during
	// a scan could be in neither slot when the scan looks at it. No other lock is taken while it is held;
	// Acquire and Release do not take it.
	scanning sync.Mutex
	horizon  uint64 // horizon of the last scan; guarded by scanning
}

// Watermark is a number that never decreases: an atomic.Uint64, or a number in an object to which an atomic
// pointer leads.
type Watermark interface{ Load() uint64 }

type block struct {
	slots []slot
	older *block

	// claimed is how many slots were ever claimed: the first ones of the block, about as many as there have been
	// readers at the same time. A scan reads only these. claimed is raised before the slot is claimed, so a scan that
	// reads the old value of claimed precedes the claim. In the argument above, claimed is to the slots of a block
	// what the list of blocks is to the blocks.
	claimed atomic.Int32
}

// used returns the slots that may have a reader.
func (b *block) used() []slot { return b.slots[:b.claimed.Load()] }

// Acquire registers the caller at the present value of the watermark and returns the registration. It does not
// block, and allocates only if all slots are taken. A caller that keeps an earlier Slot uses AcquireNear.
func (r *Registry) Acquire(watermark Watermark) Slot {
	return r.AcquireNear(Slot{}, watermark)
}

// AcquireNear is Acquire that first tries the slot of last, a released Slot or the zero Slot. A reader that
// returns to its slot finds it in its processor's cache. The Slot may be kept in a pooled object.
func (r *Registry) AcquireNear(last Slot, watermark Watermark) Slot {
	seq := watermark.Load()
	s := last.slot
	if s == nil || s.registry != r || !s.word.CompareAndSwap(wordFree, wordOf(seq)) {
		s = r.claim(wordOf(seq))
	}
	if s.since.Load() != 0 {
		s.since.Store(0)
	}
	for {
		now := watermark.Load()
		if now == seq {
			return Slot{s, seq}
		}
		seq = now
		s.word.Store(wordOf(seq))
	}
}

// AcquireAt registers a reader at a given value. The value must be pinned by a registration that the caller
// knows to last during the call, or must not be below the watermark given to Scan. The registration cannot be
// expired. AcquireAt may wait for a Scan.
func (r *Registry) AcquireAt(seq uint64) Slot {
	r.scanning.Lock()
	defer r.scanning.Unlock()
	if seq < r.horizon || seq > MaxSeq {
		panic("lockfree: registration below the horizon")
	}
	return Slot{r.claim(wordOf(seq) | wordHeld), seq}
}

// claim puts word into a free slot and returns it.
func (r *Registry) claim(word uint64) *slot {
	for {
		newest := r.newest.Load()
		for b := newest; b != nil; b = b.older {
			if s := b.claim(word); s != nil {
				return s
			}
		}
		r.grow(newest)
	}
}

// claimTries is how many of the slots that were claimed before a claim tries, as long as the block has slots
// that were never claimed.
const claimTries = 8

// claim puts word into a free slot and returns it, nil if the block has none. It prefers a slot that was
// claimed before, if it finds one soon, so that few slots are ever claimed.
func (b *block) claim(word uint64) *slot {
	for {
		used := b.used()
		tries := len(used)
		if tries < len(b.slots) {
			tries = min(tries, claimTries)
		}
		if tries > 0 {
			// A random start spreads readers that have no earlier slot.
			start := rand.IntN(len(used))
			for i := range tries {
				s := &used[(start+i)%len(used)]
				if s.word.Load() == wordFree && s.word.CompareAndSwap(wordFree, word) {
					return s
				}
			}
		}
		n := int32(len(used))
		if int(n) == len(b.slots) {
			return nil
		}
		if b.claimed.CompareAndSwap(n, n+1) {
			if s := &b.slots[n]; s.word.CompareAndSwap(wordFree, word) {
				return s
			}
		}
	}
}

// grow adds a block in front of newest, unless another goroutine has added one.
func (r *Registry) grow(newest *block) {
	slots := minBlockSlots
	if newest != nil {
		slots = min(2*len(newest.slots), maxBlockSlots)
	}
	b := &block{slots: make([]slot, slots), older: newest}
	for i := range b.slots {
		b.slots[i].registry = r
	}
	r.newest.CompareAndSwap(newest, b)
}
