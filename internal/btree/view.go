package btree

import (
	"encoding/binary"
	"unsafe"
)

// This is the only file of the package that imports unsafe. The functions below read and write memory without
// bounds checks, because a node consists of up to three pieces that are not Go slices, and the speed of a lookup
// depends on a few loads. They stay in bounds because
//
//   - what they read of a page image was verified by CheckPage, which uses only slices;
//   - what they read of a version was written by this package, into a block of the size that it asked for;
//   - indexes are below Count: they come from searches, or from callers who guarantee it.
//
// Integers go through encoding/binary, so they are little endian on every machine, at any alignment, and each
// access is still one instruction.

// pointer is the address of a piece of memory. Blocks contain no pointers; a pointer to Go memory keeps that memory
// alive.
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

// slice returns the n bytes at an offset as a slice of capacity n. If n is 0, the offset may be the end of a page,
// to which no pointer may point.
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

// alignDown returns the start of the block that contains p. Blocks have size bytes, a power of two, and start at
// multiples of size.
func alignDown(p pointer, size uintptr) pointer { return pointer(uintptr(p) &^ (size - 1)) }

// alignOffset returns how many bytes after p the first multiple of size is.
func alignOffset(p pointer, size uintptr) int { return int(-uintptr(p) & (size - 1)) }

// fetch reads a byte of each cache line from p on. The lines are then loaded from memory in parallel, where the
// code that uses them would load one after the other. It is not inlined and returns a result, so that the compiler
// does not remove the loads; callers ignore the result.
//
//go:noinline
func fetch(p pointer, n int) (sum byte) {
	for at := 0; at < n; at += 64 {
		sum ^= *(*byte)(unsafe.Add(p, at))
	}
	return sum
}
