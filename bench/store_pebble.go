package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
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

// pebble-ingest is filled by ingesting tables that are written outside of it.
func init() {
	ingest := *engines["pebble"]
	ingest.Name, ingest.Variant = "pebble-ingest", true
	ingest.Settings += "; records by tables of 64 MiB, written by sstable.Writer and ingested together"
	open := ingest.Open
	ingest.Open = func(dir string, o OpenOptions) (Store, error) {
		s, err := open(dir, o)
		if err != nil {
			return nil, err
		}
		return &pebbleIngest{s.(*pebbleStore), dir}, nil
	}
	register(&ingest)
}

type pebbleIngest struct {
	*pebbleStore
	dir string
}

func (s *pebbleIngest) Bulk(records iter.Seq2[[]byte, []byte]) (err error) {
	const tableBytes = 64 << 20
	var paths []string
	var w *sstable.Writer
	size := 0
	for key, value := range records {
		if w == nil {
			path := filepath.Join(s.dir, fmt.Sprintf("ingest-%d", len(paths)))
			file, err := vfs.Default.Create(path, vfs.WriteCategoryUnspecified)
			if err != nil {
				return err
			}
			paths, size = append(paths, path), 0
			w = sstable.NewWriter(objstorageprovider.NewFileWritable(file), sstable.WriterOptions{TableFormat: s.TableFormat()})
		}
		if err := w.Set(key, value); err != nil {
			return err
		}
		if size += len(key) + len(value); size >= tableBytes {
			if err := w.Close(); err != nil {
				return err
			}
			w = nil
		}
	}
	if w != nil {
		if err := w.Close(); err != nil {
			return err
		}
	}
	return s.Ingest(context.Background(), paths)
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
