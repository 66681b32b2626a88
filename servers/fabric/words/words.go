// Package words accesses memory that other processes, or other threads, change at the same time: in whole aligned
// words of eight bytes, which is all that a fabric guarantees. Every access to such memory, except to parts that only
// the owner uses, goes through this package.
//
// The memory is outside the Go heap, which makes plain instructions safe: the compiler turns an aligned access of
// eight bytes into one instruction on the 64-bit processors for which this package compiles, and the memory holds no
// Go values for the race detector or the garbage collector.
package words

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"
)

// Size is the size of a word in bytes.
const Size = 8

// This package needs a 64-bit processor: the line below does not compile on another one.
const _ = uint(unsafe.Sizeof(uintptr(0)) - Size)

// Load returns the word at an offset; the address has to be a multiple of eight. Later loads do not see older values.
func Load(b []byte, off int) uint64 { return atomic.LoadUint64(at(b, off)) }

// LoadLE returns the little-endian number in the bytes of the word at an offset, loaded as Load loads it.
func LoadLE(b []byte, off int) uint64 {
	var w [Size]byte
	binary.NativeEndian.PutUint64(w[:], Load(b, off))
	return binary.LittleEndian.Uint64(w[:])
}

// Store replaces the word at an offset; the address has to be a multiple of eight. Store is a full barrier: a reader
// that sees the word sees all earlier stores, and later loads of this goroutine happen after the store.
func Store(b []byte, off int, v uint64) { atomic.StoreUint64(at(b, off), v) }

// Swap replaces the word at an offset and returns the old one; the address has to be a multiple of eight. It is a
// full barrier, as Store is.
func Swap(b []byte, off int, v uint64) uint64 { return atomic.SwapUint64(at(b, off), v) }

// CompareAndSwap replaces the word at an offset if it equals old; the address has to be a multiple of eight. It is a
// full barrier, as Store is, whether it replaces the word or not.
func CompareAndSwap(b []byte, off int, old, v uint64) bool {
	return atomic.CompareAndSwapUint64(at(b, off), old, v)
}

func at(b []byte, off int) *uint64 {
	p := unsafe.Pointer(&b[off : off+Size][0])
	if uintptr(p)%Size != 0 {
		panic("words: the word is not aligned")
	}
	return (*uint64)(p)
}

// Read copies memory that others change to private memory. Each aligned word of the source is loaded once and whole;
// the parts of words at both ends are copied byte by byte. Later loads of the caller do not see older values than
// Read has copied. Both slices have the same length.
func Read(private, shared []byte) {
	n := len(shared)
	if n == 0 {
		return
	}
	_ = private[n-1]
	to, from := unsafe.Pointer(&private[0]), unsafe.Pointer(&shared[0])
	i := 0
	for ; i < n && uintptr(unsafe.Add(from, i))%Size != 0; i++ {
		*(*byte)(unsafe.Add(to, i)) = *(*byte)(unsafe.Add(from, i))
	}
	if (uintptr(to)+uintptr(i))%Size == 0 { // i may be n
		for ; i+Size <= n; i += Size {
			*(*uint64)(unsafe.Add(to, i)) = atomic.LoadUint64((*uint64)(unsafe.Add(from, i)))
		}
	} else {
		for ; i+Size <= n; i += Size {
			*(*[Size]byte)(unsafe.Add(to, i)) = word(atomic.LoadUint64((*uint64)(unsafe.Add(from, i))))
		}
	}
	for ; i < n; i++ {
		*(*byte)(unsafe.Add(to, i)) = *(*byte)(unsafe.Add(from, i))
	}
}

// Write copies private memory to memory that others read. Each aligned word of the destination that the copy covers
// whole is stored once and whole; the parts of words at both ends are copied byte by byte. Write is no barrier:
// follow it with Store, Add or Swap of another word, or with any atomic operation of Go, and a reader that sees that
// operation sees the copy. Both slices have the same length.
func Write(shared, private []byte) {
	n := len(private)
	if n == 0 {
		return
	}
	_ = shared[n-1]
	to, from := unsafe.Pointer(&shared[0]), unsafe.Pointer(&private[0])
	i := 0
	for ; i < n && uintptr(unsafe.Add(to, i))%Size != 0; i++ {
		*(*byte)(unsafe.Add(to, i)) = *(*byte)(unsafe.Add(from, i))
	}
	if (uintptr(from)+uintptr(i))%Size == 0 { // i may be n
		for ; i+Size <= n; i += Size {
			*(*uint64)(unsafe.Add(to, i)) = *(*uint64)(unsafe.Add(from, i))
		}
	} else {
		for ; i+Size <= n; i += Size {
			*(*uint64)(unsafe.Add(to, i)) = joined(*(*[Size]byte)(unsafe.Add(from, i)))
		}
	}
	for ; i < n; i++ {
		*(*byte)(unsafe.Add(to, i)) = *(*byte)(unsafe.Add(from, i))
	}
}

// word and joined convert between a word and its bytes in memory.
func word(v uint64) [Size]byte   { return *(*[Size]byte)(unsafe.Pointer(&v)) }
func joined(b [Size]byte) uint64 { return *(*uint64)(unsafe.Pointer(&b)) }
