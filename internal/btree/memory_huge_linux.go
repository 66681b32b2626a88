package btree

import "golang.org/x/sys/unix"

// adviseHuge asks for large pages behind b: versions are read at random, and with small pages each read waits for a page walk too.
func adviseHuge(b []byte) {
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE) // advice: without it all works the same, slower
}
