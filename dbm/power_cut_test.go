package dbm

import (
	"fmt"

	"flashdbm/logstore/vfs"
	"flashdbm/mvcc"
)

// cutOptions are options for databases whose power fails at every operation: flushes, folds and the reuse of
// segments come early, and ranges of some dozens of records are cut. Nothing is done in the background, so that
// each image is of a definite moment.
func cutOptions() mvcc.Options {
	o := (&Options{MemoryLimit: 2 << 20, RedoLimit: 1 << 20}).engine()
	o.Store.SegmentPages, o.Store.ChunkPages = 16, 64
	o.Manual, o.CutFrom = true, 50
	return o
}

// cutPower calls check with what a power failure at each operation of mem leaves, by some of the policies in turn,
// and with what another failure at an operation of that check leaves. It returns a function that ends this and
// returns the number of operations.
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

// cutSteps are the states after each step of a test. A crash must leave one of them, and not an older one than the
// last step that had returned.
type cutSteps[S any] struct {
	states   []S
	returned int // index of the last one that had returned
}

// next adds the state after do, and calls do.
func (s *cutSteps[S]) next(state S, do func() error) error {
	s.states = append(s.states, state)
	if err := do(); err != nil {
		return err
	}
	s.returned = len(s.states) - 1
	return nil
}

func (s *cutSteps[S]) last() S { return s.states[len(s.states)-1] }

// forget removes all states except the last one, so that they are no longer accepted.
func (s *cutSteps[S]) forget() { s.states, s.returned = s.states[len(s.states)-1:], 0 }

// possible reports whether a crash may leave a state for which fits returns true.
func (s *cutSteps[S]) possible(fits func(S) bool) bool {
	for _, state := range s.states[s.returned:] {
		if fits(state) {
			return true
		}
	}
	return false
}
