package main

import (
	"errors"
	"iter"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// raw-direct is raw-sequential past the page cache: the kernel copies nothing, and the device has the next write soon after the last. One
// goroutine writes a block while another fills the next.
func init() {
	register(&engine{
		Name: "raw-direct", Baseline: true, Variant: true, Version: kernelVersion,
		Settings: "writes of 1 MiB past the page cache (O_DIRECT), one behind the other, into a new file, and fsync; the next block is filled meanwhile",
		Open: func(dir string, _ OpenOptions) (Store, error) {
			file, err := os.OpenFile(filepath.Join(dir, "raw"), os.O_WRONLY|os.O_CREATE|unix.O_DIRECT, 0o600)
			return &directStore{rawStore{file: file}}, err
		},
	})
}

type directStore struct{ rawStore }

const directBlock = 1 << 20

func (s *directStore) Bulk(records iter.Seq2[[]byte, []byte]) error {
	memory, err := unix.Mmap(-1, 0, 3*directBlock, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE) // aligned, as O_DIRECT requires
	if err != nil {
		return err
	}
	empty, full, written := make(chan []byte, 3), make(chan []byte, 3), make(chan error, 1)
	for at := 0; at < len(memory); at += directBlock {
		empty <- memory[at : at+directBlock]
	}
	go func() {
		var err error
		for b := range full {
			if err == nil {
				_, err = s.file.Write(b)
			}
			empty <- b
		}
		written <- err
	}()
	block, n := <-empty, 0
	for key, value := range records {
		for _, b := range [][]byte{key, value} {
			for len(b) > 0 {
				c := copy(block[n:], b)
				if b, n = b[c:], n+c; n == directBlock {
					full <- block
					block, n = <-empty, 0
				}
			}
		}
	}
	full <- block[:(n+4095)&^4095]
	close(full)
	return errors.Join(<-written, s.file.Sync(), unix.Munmap(memory))
}
