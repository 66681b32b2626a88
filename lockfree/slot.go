package lockfree

import "sync/atomic"

// A slot's word says all there is to know of it, so that it changes in one
// step: 0 is a free slot, else
//
//	bits 63..2  value registered, plus one
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

// slot is a place for one reader, alone on its cache lines: its reader polls
// word, and two readers on two processors must not slow each other.
type slot struct {
	// word is free -> registered by compare-and-swap of a reader, then written
	// by that reader alone, but for the expired bit, which a scanner sets by
	// compare-and-swap.
	word atomic.Uint64

	// since is when its reader says it registered, or 0.
	since atomic.Int64

	// registry never changes.
	registry *Registry

	_ [linePairBytes - 24]byte
}

// Slot is a registration, held by the reader that acquired it and used by one
// goroutine at a time. The zero Slot is none.
type Slot struct {
	slot *slot
	seq  uint64
}

// Seq returns the value the reader is registered at.
func (s Slot) Seq() uint64 { return s.seq }

// Expired reports whether a scanner has asked this reader to end. It reads one
// word that nobody else uses, so it may be called for every operation.
func (s Slot) Expired() bool { return s.slot.word.Load()&wordExpired != 0 }

// Stamp notes when the reader registered, in nanoseconds of a clock of the
// caller's choice but not 0, for [Holder.Since]. It is separate from Acquire
// because asking for the time costs more than registering.
func (s Slot) Stamp(nanos int64) { s.slot.since.Store(nanos) }

// StampOthers is Stamp for all readers that have none. A reader that leaves
// meanwhile may leave the stamp in its slot: Acquire takes it away.
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
	// Catches a second Release unless the slot is registered at the same value
	// again.
	if without(s.slot.word.Swap(wordFree)) != wordOf(s.seq) {
		panic("lockfree: slot released twice")
	}
}

// Holder is a reader as a scanner sees it. It says how things were when it was
// made; the reader may have gone since.
type Holder struct {
	slot  *slot
	word  uint64
	since int64
}

// Seq returns the value the reader was registered at.
func (h Holder) Seq() uint64 { return seqOf(h.word) }

// Since returns what the reader gave to [Slot.Stamp], 0 if nothing.
func (h Holder) Since() int64 { return h.since }

// Expire asks the reader to end, and reports whether it is there to be asked.
// It goes on pinning its value until it releases: it may be reading right now.
// If it was replaced by another reader at the same value, that one is asked.
func (h Holder) Expire() bool {
	return h.slot.word.CompareAndSwap(h.word, h.word|wordExpired)
}
