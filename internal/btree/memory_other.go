//go:build !unix

package btree

// mapChunk returns n bytes of zeroed memory; unmap frees them.
func mapChunk(n int) (chunk []byte, unmap func() error) {
	return heapChunk(n)
}

// discard tells the system that the contents of b are no longer needed.
func discard(b []byte) {}
