package guard

import (
	"sync/atomic"
	"unsafe"
)

// storeWord stores eight bytes at b, an aligned address, at once: a peer reads the old word or the new one. A peer
// that sees the new word sees all earlier stores of the caller.
func storeWord(b []byte, v uint64) {
	p := unsafe.Pointer(unsafe.SliceData(b[:WordSize]))
	if uintptr(p)%WordSize != 0 {
		panic("guard: a word that is not aligned")
	}
	atomic.StoreUint64((*uint64)(p), v)
}
