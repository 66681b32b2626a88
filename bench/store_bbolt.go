package main

import (
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
)

func init() {
	register(&engine{
		Name: "bbolt", Version: moduleVersion("go.etcd.io/bbolt"),
		Settings: "freelist as a map and not synced, 4 GiB mapped; Batch of as many as there are writers where there are several; NoSync where commits need no sync",
		Open: func(dir string, o OpenOptions) (Store, error) {
			options := *bbolt.DefaultOptions
			options.FreelistType, options.NoFreelistSync = bbolt.FreelistMapType, true
			options.InitialMmapSize = 4 << 30
			options.NoSync = !o.Durable
			db, err := bbolt.Open(filepath.Join(dir, "bolt.db"), 0o600, &options)
			if err != nil {
				return nil, err
			}
			if o.Clients > 1 {
				db.MaxBatchSize, db.MaxBatchDelay = o.Clients, time.Millisecond
			}
			err = db.Update(func(tx *bbolt.Tx) error {
				_, err := tx.CreateBucketIfNotExists(boltBucket)
				return err
			})
			return &boltStore{db, o.Clients > 1}, err
		},
	})
}

var boltBucket = []byte("b")

type boltStore struct {
	*bbolt.DB
	batch bool
}

func (s *boltStore) Client() (Client, error) {
	return goClient{&boltConn{db: s.DB, batch: s.batch}}, nil
}

type boltConn struct {
	db    *bbolt.DB
	batch bool
	view  *bbolt.Tx // nil between runs of Gets
	b     *bbolt.Bucket
	write [][2][]byte
}

func (s *boltConn) Get(key []byte) ([]byte, error) {
	if s.view == nil {
		view, err := s.db.Begin(false)
		if err != nil {
			return nil, err
		}
		s.view, s.b = view, view.Bucket(boltBucket)
	}
	return s.b.Get(key), nil
}

func (s *boltConn) EndReads() {
	if s.view != nil {
		s.view.Rollback()
		s.view = nil
	}
}

func (s *boltConn) Put(key, value []byte) error {
	s.write = append(s.write, [2][]byte{key, value})
	return nil
}

func (s *boltConn) Commit() error {
	defer func() { s.write = s.write[:0] }()
	put := func(tx *bbolt.Tx) error {
		b := tx.Bucket(boltBucket)
		for _, record := range s.write {
			if err := b.Put(record[0], record[1]); err != nil {
				return err
			}
		}
		return nil
	}
	if s.batch && len(s.write) == 1 {
		return s.db.Batch(put)
	}
	return s.db.Update(put)
}

func (s *boltConn) Scan(from []byte, limit int, out *Outcome) error {
	return s.db.View(func(tx *bbolt.Tx) error {
		c, n := tx.Bucket(boltBucket).Cursor(), 0
		for key, value := c.Seek(from); key != nil; key, value = c.Next() {
			out.touch(value)
			if n++; n == limit {
				break
			}
		}
		out.Scanned += uint64(n)
		return nil
	})
}

func (s *boltConn) Close() error {
	s.EndReads()
	return nil
}
