//go:build unix

package btree

import "golang.org/x/sys/unix"

// mapChunk returns n bytes of zeroed memory outside the Go heap, so that versions neither make the collector work nor let it wait for
// twice their size; unmap gives them back. If the system has none to give, the Go heap may.
func mapChunk(n int) (chunk []byte, unmap func() error) {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return heapChunk(n)
	}
	return b, func() error { return unix.Munmap(b) }
}

// discard tells the system that the contents of b, which is page aligned, are not needed any more.
func discard(b []byte) {
	_ = unix.Madvise(b, unix.MADV_DONTNEED) // advice: without it the memory stays resident, no more
}
