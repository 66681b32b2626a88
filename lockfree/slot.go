package lockfree

import "sync/atomic"

// The word of a slot is its whole state, so that the state changes in one step. 0 is a free slot, otherwise:
//
//	bits 63..2  registered value, plus one
//	bit 1       held: registered by AcquireAt, cannot be expired
//	bit 0       expired
const (
	wordFree    = 0
	wordExpired = 1 << 0
	wordHeld    = 1 << 1
	wordFlags   = wordExpired | wordHeld
)

// MaxSeq is the greatest value that can be registered.
const MaxSeq = 1<<62 - 2

func wordOf(seq uint64) uint64   { return (seq + 1) << 2 }
func seqOf(word uint64) uint64   { return word>>2 - 1 }
func without(word uint64) uint64 { return word &^ wordFlags }

// slot is a place for one reader. It has cache lines of its own, because its reader polls word, and readers on
// different processors must not slow each other down.
type slot struct {
	// A reader claims word by compare-and-swap. After that only that reader writes it, except for the expired
	// bit, which a scanner sets by compare-and-swap.
	word atomic.Uint64

	// since is the time at which the reader says it registered, or 0.
	since atomic.Int64

	// registry never changes.
	registry *Registry

	_ [linePairBytes - 24]byte
}

// Slot is a registration. The reader that acquired it uses it, one goroutine at a time. The zero Slot is no
// registration.
type Slot struct {
	slot *slot
	seq  uint64
}

// Seq returns the value at which the reader is registered.
func (s Slot) Seq() uint64 { return s.seq }

// Expired reports whether a scanner has asked this reader to end. It reads one word that usually only this
// reader writes, so it is cheap enough to be called for every operation.
func (s Slot) Expired() bool { return s.slot.word.Load()&wordExpired != 0 }

// Stamp records when the reader registered, in nanoseconds of a clock of the caller's choice but not 0, for
// [Holder.Since]. It is separate from Acquire because reading a clock costs more than registering.
func (s Slot) Stamp(nanos int64) { s.slot.since.Store(nanos) }

// StampOthers is Stamp for all readers that have no stamp. If a reader leaves during the call, the stamp may
// stay in its slot; the next Acquire of the slot clears it.
func (r *Registry) StampOthers(nanos int64) {
	for b := r.newest.Load(); b != nil; b = b.older {
		used := b.used()
		for i := range used {
			if s := &used[i]; s.word.Load() != wordFree && s.since.Load() == 0 {
				s.since.CompareAndSwap(0, nanos)
			}
		}
	}
}

// Release ends the registration. The Slot must not be used again, except as a
// hint to [Registry.AcquireNear].
func (s Slot) Release() {
	if s.slot.since.Load() != 0 {
		s.slot.since.Store(0)
	}
	// This catches a second Release, unless the slot is registered at the same value again.
	if without(s.slot.word.Swap(wordFree)) != wordOf(s.seq) {
		panic("lockfree: slot released twice")
	}
}

// Holder is a reader as a scanner has seen it. The reader may have left since.
type Holder struct {
	slot  *slot
	word  uint64
	since int64
}

// Seq returns the value at which the reader was registered.
func (h Holder) Seq() uint64 { return seqOf(h.word) }

// Since returns the reader's stamp (see [Slot.Stamp]), 0 if it has none.
func (h Holder) Since() int64 { return h.since }

// Expire asks the reader to end, and reports whether it was there to be asked. The reader continues to pin its
// value until it releases, because it may be reading right now. If another reader at the same value has taken
// the slot, that reader is asked instead.
func (h Holder) Expire() bool {
	return h.slot.word.CompareAndSwap(h.word, h.word|wordExpired)
}
