package main

import (
	"errors"
	"io"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
)

func init() {
	register(&engine{
		Name: "pebble", Version: moduleVersion("github.com/cockroachdb/pebble/v2"),
		Settings: "cache 1 GiB, memtables of 64 MiB, bloom filters of 10 bits, at most 2 compactions, newest format",
		Open: func(dir string, o OpenOptions) (Store, error) {
			cache := pebble.NewCache(cacheBytes)
			defer cache.Unref()
			options := &pebble.Options{
				Cache: cache, MemTableSize: 64 << 20, MemTableStopWritesThreshold: 4,
				L0CompactionThreshold: 2, L0StopWritesThreshold: 1000, LBaseMaxBytes: 64 << 20,
				CompactionConcurrencyRange: func() (int, int) { return 1, 2 },
				FormatMajorVersion:         pebble.FormatNewest,
				Logger:                     quietLogger{},
			}
			for i := range options.Levels {
				options.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
			}
			db, err := pebble.Open(dir, options)
			if err != nil {
				return nil, err
			}
			write := pebble.NoSync
			if o.Durable {
				write = pebble.Sync
			}
			return &pebbleStore{db, write}, nil
		},
	})
}

// quietLogger drops what a store has to say about its housekeeping.
type quietLogger struct{}

func (quietLogger) Infof(string, ...any)    {}
func (quietLogger) Errorf(string, ...any)   {}
func (quietLogger) Warningf(string, ...any) {}
func (quietLogger) Debugf(string, ...any)   {}
func (quietLogger) Fatalf(format string, args ...any) {
	fatalf(format, args...)
}

type pebbleStore struct {
	*pebble.DB
	write *pebble.WriteOptions
}

func (s *pebbleStore) Sync() error             { return s.LogData(nil, pebble.Sync) }
func (s *pebbleStore) Client() (Client, error) { return goClient{&pebbleConn{store: s}}, nil }

type pebbleConn struct {
	store *pebbleStore
	read  io.Closer // holds the last value
	batch *pebble.Batch
}

func (s *pebbleConn) Get(key []byte) ([]byte, error) {
	s.EndReads()
	value, closer, err := s.store.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	s.read = closer
	return value, err
}

func (s *pebbleConn) EndReads() {
	if s.read != nil {
		s.read.Close()
		s.read = nil
	}
}

func (s *pebbleConn) Put(key, value []byte) error {
	if s.batch == nil {
		s.batch = s.store.NewBatch()
	}
	return s.batch.Set(key, value, nil)
}

func (s *pebbleConn) Commit() error {
	err := errors.Join(s.batch.Commit(s.store.write), s.batch.Close())
	s.batch = nil
	return err
}

func (s *pebbleConn) Scan(from []byte, limit int, out *Outcome) error {
	it, err := s.store.NewIter(&pebble.IterOptions{LowerBound: from})
	if err != nil {
		return err
	}
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		out.touch(it.Value())
		if n++; n == limit {
			break
		}
	}
	out.Scanned += uint64(n)
	return it.Close()
}

func (s *pebbleConn) Close() error {
	s.EndReads()
	return nil
}
