package guard

import (
	"sync/atomic"
	"unsafe"
)

// storeWord stores eight bytes at b, a multiple of eight, at once: a peer reads the old word or the new one. What the caller stored
// before is seen by who sees the new word.
func storeWord(b []byte, v uint64) {
	p := unsafe.Pointer(unsafe.SliceData(b[:WordSize]))
	if uintptr(p)%WordSize != 0 {
		panic("guard: a word that is not aligned")
	}
	atomic.StoreUint64((*uint64)(p), v)
}
