package dbm

import (
	"fmt"

	"flashdbm/logstore/vfs"
	"flashdbm/mvcc"
)

// cutOptions are those of databases whose power is cut at every operation: flushes, folds and the reuse of segments come soon, ranges of some dozens of
// records are cut, and nothing is done in the background, as the images would be of no moment.
func cutOptions() mvcc.Options {
	o := (&Options{MemoryLimit: 2 << 20, RedoLimit: 1 << 20}).engine()
	o.Store.SegmentPages, o.Store.ChunkPages = 16, 64
	o.Manual, o.CutFrom = true, 50
	return o
}

// cutPower has check look at what a power cut at each operation of mem leaves, by some of the policies in turn, and at what one at an operation
// of that check leaves. It returns what ends that, and tells how many operations there were.
func cutPower(mem *vfs.Mem, check func(image *vfs.Mem, where string)) (end func() (operations int)) {
	n, busy := 0, false
	mem.OnOp(func(op vfs.Op) error {
		if busy || op.Kind == vfs.OpMap {
			return nil
		}
		busy = true
		defer func() { busy = false }()
		n++
		for i, p := range vfs.Policies() {
			if (n+i)%3 > 0 {
				continue
			}
			where := fmt.Sprintf("operation %d, policy %d", n, i)
			image := mem.Crash(p, uint64(n))
			var second *vfs.Mem
			ops, at := 0, 1+n%7
			image.OnOp(func(vfs.Op) error {
				if ops++; ops == at {
					second = image.Crash(p, uint64(n+1))
				}
				return nil
			})
			check(image, where)
			if second != nil {
				check(second, where+", and again")
				second.Release()
			}
			image.Release()
		}
		return nil
	})
	return func() int {
		mem.OnOp(nil)
		return n
	}
}

// cutSteps are the states that a test's steps have led to, of which a crash leaves one that is not older than the last that had returned.
type cutSteps[S any] struct {
	states   []S
	returned int // index of that one
}

// next has a state follow that do leads to.
func (s *cutSteps[S]) next(state S, do func() error) error {
	s.states = append(s.states, state)
	if err := do(); err != nil {
		return err
	}
	s.returned = len(s.states) - 1
	return nil
}

func (s *cutSteps[S]) last() S { return s.states[len(s.states)-1] }

// forget says that no state before the last one is to be found any more.
func (s *cutSteps[S]) forget() { s.states, s.returned = s.states[len(s.states)-1:], 0 }

// possible reports whether a crash may have left what fits tells of a state.
func (s *cutSteps[S]) possible(fits func(S) bool) bool {
	for _, state := range s.states[s.returned:] {
		if fits(state) {
			return true
		}
	}
	return false
}
