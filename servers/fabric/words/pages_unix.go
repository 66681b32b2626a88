//go:build unix

package words

import (
	"os"

	"golang.org/x/sys/unix"
)

// Alloc returns n bytes, 1 at least, of zeroed memory outside the Go heap that begins with a page.
func Alloc(n int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	return b, os.NewSyscallError("mmap", err)
}

// Free gives the memory back that Alloc has returned. Whoever looks at it afterwards ends the process.
func Free(b []byte) error { return os.NewSyscallError("munmap", unix.Munmap(b)) }
