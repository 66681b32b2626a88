package btree

import (
	"encoding/binary"
	"unsafe"
)

// This is the only file that imports unsafe. The functions below read and write memory without bounds checks, because nodes are made
// of up to three pieces that are not Go slices, and lookups live off a few loads each. They are in bounds because
//
//   - what they read of a page image was found in order by CheckPage, which itself uses slices only;
//   - what they read of a version was written by this package into a block of the size it asked for;
//   - indexes come from searches below Count, or from callers, who promise that.
//
// Integers go through encoding/binary, so they are little endian everywhere, at any alignment, and each still is one instruction.

// pointer is the address of a piece of memory. Blocks hold no pointers; a pointer to Go memory keeps it alive.
type pointer = unsafe.Pointer

func add(p pointer, at int) pointer { return unsafe.Add(p, at) }

func load16(p pointer, at int) int {
	return int(binary.LittleEndian.Uint16((*[2]byte)(unsafe.Add(p, at))[:]))
}

func load32(p pointer, at int) uint32 {
	return binary.LittleEndian.Uint32((*[4]byte)(unsafe.Add(p, at))[:])
}

func load64(p pointer, at int) uint64 {
	return binary.LittleEndian.Uint64((*[8]byte)(unsafe.Add(p, at))[:])
}

func store16(p pointer, at, v int) {
	binary.LittleEndian.PutUint16((*[2]byte)(unsafe.Add(p, at))[:], uint16(v))
}

func store32(p pointer, at int, v uint32) {
	binary.LittleEndian.PutUint32((*[4]byte)(unsafe.Add(p, at))[:], v)
}

func store64(p pointer, at int, v uint64) {
	binary.LittleEndian.PutUint64((*[8]byte)(unsafe.Add(p, at))[:], v)
}

// slice returns the n bytes at an offset, as a slice that cannot be appended to in place. If n is 0, the offset may be that of the end
// of a page, where no pointer may go.
func slice(p pointer, at, n int) []byte {
	if n == 0 {
		return []byte{}
	}
	return unsafe.Slice((*byte)(unsafe.Add(p, at)), n)
}

// move copies n bytes from one piece of memory to another. As with slice, n may be 0 at the end of a page.
func move(to pointer, toAt int, from pointer, fromAt, n int) {
	if n == 0 {
		return
	}
	copy(unsafe.Slice((*byte)(unsafe.Add(to, toAt)), n), unsafe.Slice((*byte)(unsafe.Add(from, fromAt)), n))
}

// pointerTo returns the address of the first byte of b, which is not empty.
func pointerTo(b []byte) pointer { return pointer(unsafe.SliceData(b)) }

// alignDown returns the start of the block of size bytes, a power of two, that p lies in. Blocks start at multiples of their size.
func alignDown(p pointer, size uintptr) pointer { return pointer(uintptr(p) &^ (size - 1)) }

// alignOffset returns how many bytes after p the first multiple of size lies.
func alignOffset(p pointer, size uintptr) int { return int(-uintptr(p) & (size - 1)) }

// fetch reads a byte of each cache line from p on, so that lines which are needed one after the other, each to know where the next one is,
// come from memory at the same time. It is a function of its own, with a result, lest the compiler leaves the loads out; nobody waits for
// the result.
//
//go:noinline
func fetch(p pointer, n int) (sum byte) {
	for at := 0; at < n; at += 64 {
		sum ^= *(*byte)(unsafe.Add(p, at))
	}
	return sum
}
