package main

import (
	"errors"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
)

func init() {
	register(&engine{
		Name: "badger", Version: moduleVersion("github.com/dgraph-io/badger/v4"),
		Settings: "block cache 1 GiB, memtables of 64 MiB, no compression, no detection of conflicts, SyncWrites where commits are durable",
		Open: func(dir string, o OpenOptions) (Store, error) {
			db, err := badger.Open(badger.DefaultOptions(dir).WithLogger(nil).WithSyncWrites(o.Durable).WithCompression(options.None).
				WithBlockCacheSize(cacheBytes).WithDetectConflicts(false).WithMetricsEnabled(false))
			if err != nil {
				return nil, err
			}
			return &badgerStore{db}, nil
		},
	})
}

type badgerStore struct{ *badger.DB }

func (s *badgerStore) Client() (Client, error) { return goClient{&badgerConn{db: s.DB}}, nil }

type badgerConn struct {
	db    *badger.DB
	view  *badger.Txn // nil between runs of Gets
	value []byte      // the last one
	write *badger.Txn
}

func (s *badgerConn) Get(key []byte) ([]byte, error) {
	if s.view == nil {
		s.view = s.db.NewTransaction(false)
	}
	item, err := s.view.Get(key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s.value, err = item.ValueCopy(s.value)
	return s.value, err
}

func (s *badgerConn) EndReads() {
	if s.view != nil {
		s.view.Discard()
		s.view = nil
	}
}

func (s *badgerConn) Put(key, value []byte) error {
	if s.write == nil {
		s.write = s.db.NewTransaction(true)
	}
	return s.write.Set(key, value)
}

func (s *badgerConn) Commit() error {
	err := s.write.Commit()
	s.write = nil
	return err
}

func (s *badgerConn) Scan(from []byte, limit int, out *Outcome) error {
	return s.db.View(func(txn *badger.Txn) error {
		o := badger.DefaultIteratorOptions
		o.PrefetchValues = false // values are inline
		it, n := txn.NewIterator(o), 0
		defer it.Close()
		for it.Seek(from); it.Valid(); it.Next() {
			err := it.Item().Value(func(value []byte) error {
				out.touch(value)
				return nil
			})
			if err != nil {
				return err
			}
			if n++; n == limit {
				break
			}
		}
		out.Scanned += uint64(n)
		return nil
	})
}

func (s *badgerConn) Close() error {
	s.EndReads()
	return nil
}
