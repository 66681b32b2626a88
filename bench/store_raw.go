package main

import (
	"iter"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// The baseline: what the device and the memory do without any store. A commit is one pwrite into space that was written before,
// of 4 KiB or as many as its records need, and fdatasync; a lookup is a chain of dependent loads.
func init() {
	register(&engine{
		Name: "raw", Baseline: true, Version: kernelVersion,
		Settings: "commit: pwrite into written space, in turn over 64 MiB, of 4 KiB or as many as the records need, and fdatasync; lookup: 8 dependent loads in 256 MiB",
		Open: func(dir string, o OpenOptions) (Store, error) {
			file, err := os.OpenFile(filepath.Join(dir, "raw"), os.O_RDWR|os.O_CREATE, 0o600)
			if err != nil {
				return nil, err
			}
			block := make([]byte, 1<<20)
			for i := range block {
				block[i] = byte(i * 7)
			}
			for at := int64(0); at < rawBytes; at += int64(len(block)) {
				if _, err := file.WriteAt(block, at); err != nil {
					return nil, err
				}
			}
			return &rawStore{file: file, block: block, durable: o.Durable}, file.Sync()
		},
	})
}

// raw-sequential writes a file from its beginning to its end.
func init() {
	register(&engine{
		Name: "raw-sequential", Baseline: true, Variant: true, Version: kernelVersion,
		Settings: "writes of 1 MiB, one behind the other, into a new file, and fsync",
		Open: func(dir string, o OpenOptions) (Store, error) {
			file, err := os.Create(filepath.Join(dir, "raw"))
			return &sequentialStore{rawStore{file: file, block: make([]byte, 1<<20)}}, err
		},
	})
}

type sequentialStore struct{ rawStore }

func (s *sequentialStore) Bulk(records iter.Seq2[[]byte, []byte]) error {
	full := 0
	for key, value := range records {
		for _, b := range [][]byte{key, value} {
			for len(b) > 0 {
				n := copy(s.block[full:], b)
				b, full = b[n:], full+n
				if full == len(s.block) {
					if _, err := s.file.Write(s.block); err != nil {
						return err
					}
					full = 0
				}
			}
		}
	}
	if _, err := s.file.Write(s.block[:full]); err != nil {
		return err
	}
	return s.file.Sync()
}

const (
	rawBytes   = 64 << 20
	chaseSlots = 256 << 20 / 4
	chaseLoads = 8
)

type rawStore struct {
	file    *os.File
	block   []byte
	durable bool
	chain   []uint32 // made at the first Client that asks for a lookup
}

// Chase makes the chain: one cycle through all slots in random order.
func (s *rawStore) Chase() {
	order := make([]uint32, chaseSlots)
	for i := range order {
		order[i] = uint32(i)
	}
	random := newRandom(1)
	for i := len(order) - 1; i > 0; i-- {
		j := random.below(i) // below i, not i+1: Sattolo's cycle
		order[i], order[j] = order[j], order[i]
	}
	s.chain = order
}

func (s *rawStore) Client() (Client, error) { return goClient{&rawConn{store: s}}, nil }
func (s *rawStore) Sync() error             { return s.file.Sync() }
func (s *rawStore) Close() error            { return s.file.Close() }

type rawConn struct {
	store *rawStore
	at    int64 // in the file
	bytes int   // of the transaction
	slot  uint32
}

var rawValue = []byte{1}

func (s *rawConn) Get(key []byte) ([]byte, error) {
	slot := (s.slot ^ uint32(key[7])) % chaseSlots
	for range chaseLoads {
		slot = s.store.chain[slot]
	}
	s.slot = slot
	return rawValue, nil
}

func (s *rawConn) Put(key, value []byte) error {
	s.bytes += len(key) + len(value)
	return nil
}

func (s *rawConn) Commit() error {
	pages := s.store.block[:min(max(s.bytes+4095, 4096)&^4095, len(s.store.block))]
	if s.at+int64(len(pages)) > rawBytes {
		s.at = 0
	}
	if _, err := s.store.file.WriteAt(pages, s.at); err != nil {
		return err
	}
	s.at, s.bytes = s.at+int64(len(pages)), 0
	if s.store.durable {
		return unix.Fdatasync(int(s.store.file.Fd()))
	}
	return nil
}

func (s *rawConn) EndReads()                                       {}
func (s *rawConn) Scan(from []byte, limit int, out *Outcome) error { return nil }
func (s *rawConn) Close() error                                    { return nil }
