package main

import (
	"errors"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/filter"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/util"
)

func init() {
	register(&engine{
		Name: "goleveldb", Version: moduleVersion("github.com/syndtr/goleveldb"),
		Settings: "cache 1 GiB, write buffer 64 MiB, bloom filters of 10 bits",
		Open: func(dir string, o OpenOptions) (Store, error) {
			db, err := leveldb.OpenFile(dir, &opt.Options{
				BlockCacheCapacity: cacheBytes, WriteBuffer: 64 << 20, Filter: filter.NewBloomFilter(10),
			})
			if err != nil {
				return nil, err
			}
			return &golevelStore{db, &opt.WriteOptions{Sync: o.Durable}}, nil
		},
	})
}

type golevelStore struct {
	*leveldb.DB
	write *opt.WriteOptions
}

func (s *golevelStore) Client() (Client, error) { return goClient{&golevelConn{store: s}}, nil }

// Sync commits a batch of its own with a sync: all before it in the log becomes durable too.
func (s *golevelStore) Sync() error {
	var b leveldb.Batch
	b.Delete([]byte("no such key"))
	return s.Write(&b, &opt.WriteOptions{Sync: true})
}

type golevelConn struct {
	store *golevelStore
	batch leveldb.Batch
}

func (s *golevelConn) Get(key []byte) ([]byte, error) {
	value, err := s.store.Get(key, nil)
	if errors.Is(err, leveldb.ErrNotFound) {
		return nil, nil
	}
	return value, err
}

func (s *golevelConn) EndReads() {}

func (s *golevelConn) Put(key, value []byte) error {
	s.batch.Put(key, value)
	return nil
}

func (s *golevelConn) Commit() error {
	err := s.store.Write(&s.batch, s.store.write)
	s.batch.Reset()
	return err
}

func (s *golevelConn) Scan(from []byte, limit int, out *Outcome) error {
	it, n := s.store.NewIterator(&util.Range{Start: from}, nil), 0
	for it.Next() {
		out.touch(it.Value())
		if n++; n == limit {
			break
		}
	}
	out.Scanned += uint64(n)
	it.Release()
	return it.Error()
}

func (s *golevelConn) Close() error { return nil }
