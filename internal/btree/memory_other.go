//go:build !unix

package btree

// mapChunk returns n bytes of zeroed memory; unmap gives them back.
func mapChunk(n int) (chunk []byte, unmap func() error) {
	return heapChunk(n)
}

// discard tells the system that the contents of b are not needed any more.
func discard(b []byte) {}
