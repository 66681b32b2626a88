//go:build unix

package btree

import "golang.org/x/sys/unix"

// mapChunk returns n bytes of zeroed memory outside the Go heap; unmap frees them. Outside of the Go heap, versions
// cost the garbage collector no work, and do not enter into the heap size at which it runs. If the system has no
// memory to map, the chunk comes from the Go heap.
func mapChunk(n int) (chunk []byte, unmap func() error) {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return heapChunk(n)
	}
	return b, func() error { return unix.Munmap(b) }
}

// discard tells the system that the contents of b, which is page aligned, are no longer needed.
func discard(b []byte) {
	_ = unix.Madvise(b, unix.MADV_DONTNEED) // only advice: if it fails, the memory stays resident
}
