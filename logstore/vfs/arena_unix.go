//go:build linux || darwin

package vfs

import "golang.org/x/sys/unix"

func reserve(size int64) ([]byte, error) {
	return unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
}

func unreserve(b []byte) {
	if err := unix.Munmap(b); err != nil {
		panic("vfs: unmapping an arena: " + err.Error())
	}
}
