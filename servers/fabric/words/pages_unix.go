//go:build unix

package words

import (
	"os"

	"golang.org/x/sys/unix"
)

// Alloc returns n bytes, at least 1, of zeroed memory outside the Go heap, beginning at a page boundary.
func Alloc(n int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	return b, os.NewSyscallError("mmap", err)
}

// Free frees memory that Alloc has returned. An access to it afterwards crashes the process.
func Free(b []byte) error { return os.NewSyscallError("munmap", unix.Munmap(b)) }
