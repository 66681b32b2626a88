package lockfree

import "slices"

// Scan returns in pins, ascending and distinct, the values below W that readers
// may be at, and last W, the watermark as it was when Scan began. Every present
// or future reader is at one of these values or above W; [Pinned] asks about a
// range. horizon is the least of them, pins[0]; it never moves back.
//
// pins uses the memory of buf, whose contents are lost, and grows it if needed.
// Any goroutine may call Scan; calls wait for each other, readers for none.
func (r *Registry) Scan(buf []uint64, watermark Watermark) (pins []uint64, horizon uint64) {
	r.scanning.Lock()
	defer r.scanning.Unlock()

	// The watermark first, then the blocks, then the slots: see Registry.
	top := watermark.Load()
	if top < r.horizon {
		panic("lockfree: watermark moved back")
	}
	pins = buf[:0]
	for b := r.newest.Load(); b != nil; b = b.older {
		used := b.used()
		for i := range used {
			word := used[i].word.Load()
			if word == wordFree {
				continue
			}
			seq := seqOf(word)
			if r.horizon <= seq && seq < top {
				pins = append(pins, seq)
			}
		}
	}
	slices.Sort(pins)
	pins = append(slices.Compact(pins), top)
	r.horizon = pins[0]
	return pins, r.horizon
}

// Pinned reports whether a reader may be, now or later, at a value in
// [from, to), according to what Scan returned.
func Pinned(pins []uint64, from, to uint64) bool {
	if from >= to {
		return false
	}
	if to > pins[len(pins)-1] {
		return true
	}
	i, _ := slices.BinarySearch(pins, from)
	return pins[i] < to
}

// Count returns the number of registrations, expired ones included. It is exact
// only while none comes or goes; after 0, all there are began after Count did.
func (r *Registry) Count() int {
	r.scanning.Lock() // or a value on its way to another slot could be overlooked
	defer r.scanning.Unlock()
	count := 0
	for b := r.newest.Load(); b != nil; b = b.older {
		used := b.used()
		for i := range used {
			if used[i].word.Load() != wordFree {
				count++
			}
		}
	}
	return count
}

// fewSlots is how many slots ReadersBelow looks at: some 150 ns.
const fewSlots = 256

// ReadersBelow reports whether there are more than limit readers at values below
// seq, expired ones included, registrations by AcquireAt not. If every watermark
// that Acquire is called with is at seq or above when it begins, none is missed
// and none comes later. It does not wait. Where there ever were many
// readers, so that a look at all slots takes long, it says that there are without
// looking.
func (r *Registry) ReadersBelow(seq uint64, limit int) bool {
	slots := 0
	for b := r.newest.Load(); b != nil; b = b.older {
		used := b.used()
		if slots += len(used); slots > fewSlots {
			return true
		}
		for i := range used {
			word := used[i].word.Load()
			if word != wordFree && word&wordHeld == 0 && seqOf(word) < seq {
				if limit--; limit < 0 {
					return true
				}
			}
		}
	}
	return false
}

// Asked reports whether there is a reader that was asked to end and has not.
func (r *Registry) Asked() bool {
	for b := r.newest.Load(); b != nil; b = b.older {
		used := b.used()
		for i := range used {
			if used[i].word.Load()&wordExpired != 0 {
				return true
			}
		}
	}
	return false
}

// Oldest returns the reader at the least value, and of those at the same value
// the one with the earliest stamp; false if there is none. Readers that were
// expired already and registrations by AcquireAt don't count.
func (r *Registry) Oldest() (Holder, bool) {
	var oldest Holder
	for b := r.newest.Load(); b != nil; b = b.older {
		used := b.used()
		for i := range used {
			s := &used[i]
			word := s.word.Load()
			if word == wordFree || word&wordFlags != 0 {
				continue
			}
			h := Holder{slot: s, word: word, since: s.since.Load()}
			if oldest.slot == nil || h.word < oldest.word ||
				h.word == oldest.word && h.since < oldest.since {
				oldest = h
			}
		}
	}
	return oldest, oldest.slot != nil
}
