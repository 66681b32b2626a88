package vfs

import "sync"

// arena is the memory that holds the bytes of one Mem file: a large range of addresses, of which only touched
// pages cost memory. It never moves, so a slice of it shows later writes, as a mapping does.
//
// Blocks not in touched are zero.
type arena struct {
	buf     []byte
	touched bitset // blocks that may be nonzero
}

// maxIdleArenas is the number of arenas kept for reuse. Touching memory that is new from the system takes
// longer than copying a file into an old arena.
const maxIdleArenas = 16

// idle holds released arenas. Each is reused only for a file of the same size.
var idle struct {
	sync.Mutex // guards arenas
	arenas     []*arena
}

func newArena(size int64) (*arena, error) {
	a := takeIdle(size)
	if a == nil {
		buf, err := reserve(size)
		if err != nil {
			return nil, err
		}
		return &arena{buf: buf}, nil
	}
	a.clear(nil)
	return a, nil
}

// copyArena returns an arena with the same bytes.
func copyArena(from *arena) (*arena, error) {
	a := takeIdle(int64(len(from.buf)))
	if a == nil {
		buf, err := reserve(int64(len(from.buf)))
		if err != nil {
			return nil, err
		}
		a = &arena{buf: buf}
	}
	a.clear(from.touched)
	end := int64(len(from.touched)) * 64
	for i := from.touched.next(0, end, true); i < end; {
		stop := from.touched.next(i, end, false)
		lo, hi := i*blockSize, min(stop*blockSize, int64(len(a.buf)))
		copy(a.buf[lo:hi], from.buf[lo:hi])
		i = from.touched.next(stop, end, true)
	}
	a.touched = append(a.touched[:0], from.touched...)
	return a, nil
}

// clear zeroes the touched blocks, except those in except, which the caller is about to overwrite.
func (a *arena) clear(except bitset) {
	end := int64(len(a.touched)) * 64
	for i := a.touched.next(0, end, true); i < end; i = a.touched.next(i+1, end, true) {
		if !except.has(i) {
			clear(a.buf[i*blockSize : (i+1)*blockSize])
		}
	}
	a.touched = a.touched[:0]
}

func takeIdle(size int64) *arena {
	idle.Lock()
	defer idle.Unlock()
	for i, a := range idle.arenas {
		if int64(len(a.buf)) == size {
			last := len(idle.arenas) - 1
			idle.arenas[i] = idle.arenas[last]
			idle.arenas = idle.arenas[:last]
			return a
		}
	}
	return nil
}

// release makes the arena available for reuse. No slice of it may be used afterwards.
func (a *arena) release() {
	idle.Lock()
	defer idle.Unlock()
	if len(idle.arenas) < maxIdleArenas {
		idle.arenas = append(idle.arenas, a)
		return
	}
	unreserve(a.buf)
}
