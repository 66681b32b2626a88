package lockfree

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The model runs every interleaving of two readers, one of which hands its value
// to another slot, a moving watermark, and a scanner, each in steps of one atomic
// operation, and asks at each state whether a reader is at a value that a scan
// has declared free.

const (
	modelReaders   = 2
	modelSlots     = 3 // the first for AcquireAt, read first; one per reader
	modelWatermark = 3 // the last value
)

// Where a reader is.
const (
	readerIdle       = iota
	readerLoaded     // seq read from the watermark
	readerStored     // seq in the slot
	readerMoved      // another seq read: store again
	readerRegistered // Acquire returned
	readerHanding    // AcquireAt has the lock
	readerHanded     // registered in the other slot too
	readerHolding    // registered in the other slot only
)

// Where the scanner is.
const (
	scannerIdle = iota
	scannerLocked
	scannerReading
)

// modelState is comparable, so that states seen are known.
type modelState struct {
	watermark int
	slots     [modelSlots]int // 0 or value+1
	readers   [modelReaders]struct{ at, seq int }
	locked    bool // Registry.scanning

	scanner struct{ at, top, next, pins int }
	horizon int
	dead    int // set of values declared free
}

type modelFault int

const (
	modelSound      modelFault = iota
	modelUnchecked             // Acquire doesn't read the watermark again
	modelSlotsFirst            // Scan reads the watermark after the slots
	modelUnlocked              // AcquireAt during a Scan
)

// steps returns the states that may follow s.
func (s modelState) steps(f modelFault) []modelState {
	var next []modelState
	if s.watermark < modelWatermark {
		n := s
		n.watermark++
		next = append(next, n)
	}
	for i := range s.readers {
		next = append(next, s.readerSteps(i, f)...)
	}
	return append(next, s.scannerStep(f)...)
}

func (s modelState) readerSteps(i int, f modelFault) []modelState {
	n := s
	r, own, held := &n.readers[i], &n.slots[i+1], &n.slots[0]
	switch r.at {
	case readerIdle:
		r.at, r.seq = readerLoaded, s.watermark
	case readerLoaded, readerMoved:
		*own = r.seq + 1
		r.at = readerStored
		if f == modelUnchecked {
			r.at = readerRegistered
		}
	case readerStored:
		if r.at = readerRegistered; s.watermark != r.seq {
			r.at, r.seq = readerMoved, s.watermark
		}
	case readerRegistered:
		released := s
		released.slots[i+1] = 0
		released.readers[i].at, released.readers[i].seq = readerIdle, 0
		if i != 0 || s.locked && f != modelUnlocked || *held != 0 {
			return []modelState{released}
		}
		r.at = readerHanding
		if f != modelUnlocked {
			n.locked = true
		}
		return []modelState{released, n}
	case readerHanding:
		*held = r.seq + 1
		r.at = readerHanded
		if f != modelUnlocked {
			n.locked = false
		}
	case readerHanded:
		*own = 0
		r.at = readerHolding
	case readerHolding:
		*held = 0
		r.at, r.seq = readerIdle, 0
	}
	return []modelState{n}
}

func (s modelState) scannerStep(f modelFault) []modelState {
	c := &s.scanner
	switch {
	case c.at == scannerIdle:
		if s.locked {
			return nil
		}
		s.locked, c.at = true, scannerLocked
	case c.at == scannerLocked:
		c.at, c.top, c.next, c.pins = scannerReading, s.watermark, 0, 0
	case c.next < modelSlots:
		if v := s.slots[c.next] - 1; v >= s.horizon {
			c.pins |= 1 << v
		}
		c.next++
	default:
		if f == modelSlotsFirst {
			c.top = s.watermark
		}
		s.horizon = c.top
		for v := c.top - 1; v >= 0; v-- {
			if c.pins&(1<<v) == 0 {
				s.dead |= 1 << v
			} else {
				s.horizon = v
			}
		}
		s.locked = false
		s.scanner = modelState{}.scanner
	}
	return []modelState{s}
}

// sound reports whether no registered reader is at a value declared free, or
// below the horizon.
func (s modelState) sound() bool {
	for _, r := range s.readers {
		if r.at >= readerRegistered && (s.dead&(1<<r.seq) != 0 || r.seq < s.horizon) {
			return false
		}
	}
	return true
}

// exploreModel visits every state that can be reached, and returns their number
// and whether all are sound.
func exploreModel(f modelFault) (states int, sound bool) {
	seen := map[modelState]bool{{}: true}
	todo := []modelState{{}}
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if !s.sound() {
			return len(seen), false
		}
		for _, n := range s.steps(f) {
			if n.horizon < s.horizon {
				return len(seen), false
			}
			if !seen[n] {
				seen[n] = true
				todo = append(todo, n)
			}
		}
	}
	return len(seen), true
}

func TestRegistryModel(t *testing.T) {
	states, sound := exploreModel(modelSound)
	require.True(t, sound)
	t.Logf("%d states", states)
}

func TestRegistryModelFindsFaults(t *testing.T) {
	for f := modelUnchecked; f <= modelUnlocked; f++ {
		_, sound := exploreModel(f)
		require.False(t, sound, "fault %d was not found", f)
	}
}
