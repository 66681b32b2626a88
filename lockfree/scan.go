package lockfree

import "slices"

// Scan returns in pins, ascending and distinct, the values below W at which readers may be, followed by W, the
// watermark when Scan began. Every present or future reader is at one of these values or above W; [Pinned] asks
// about a range. horizon is the least of them, pins[0]; it never moves back.
//
// pins uses the memory of buf, whose contents are overwritten, and grows it if needed. Any goroutine may call
// Scan; calls wait for each other, but not for readers.
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

// Pinned reports whether a reader may be, now or later, at a value in [from, to), according to the pins that
// Scan returned.
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

// Count returns the number of registrations, expired ones included. It is exact only while no reader registers
// or leaves; if it is 0, all present readers began after Count did.
func (r *Registry) Count() int {
	r.scanning.Lock() // otherwise a value on its way to another slot could be missed
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

// fewSlots is the number of slots that ReadersBelow looks at, which takes about 150 ns.
const fewSlots = 256

// ReadersBelow reports whether there are more than limit readers at values below seq. Expired readers count;
// registrations by AcquireAt do not. If every watermark given to Acquire is at seq or above when ReadersBelow
// begins, it misses no reader and no further one comes. It does not wait. If more than fewSlots slots were ever
// claimed, it returns true without looking at the others.
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

// Asked reports whether there is a reader that was asked to end and has not ended.
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

// Oldest returns the reader at the least value; if several are at that value, the one with the earliest stamp;
// false if there is none. Expired readers and registrations by AcquireAt do not count.
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
