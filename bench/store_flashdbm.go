package main

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"path/filepath"

	"flashdbm/dbm"
)

func init() {
	registerFlashdbm("flashdbm", "as shipped: default options", dbm.Options{})
	registerFlashdbm("flashdbm-1g", "MemoryLimit 1 GiB", dbm.Options{MemoryLimit: cacheBytes})
	registerFlashdbm("flashdbm-64m", "MemoryLimit 64 MiB", dbm.Options{MemoryLimit: 64 << 20})
	registerFlashdbm("flashdbm-redo128m", "RedoLimit 128 MiB", dbm.Options{RedoLimit: 128 << 20})
	registerFlashdbm("flashdbm-nobackground", "RedoLimit and MemoryLimit 16 GiB: neither flush nor checkpoint falls due",
		dbm.Options{RedoLimit: 16 << 30, MemoryLimit: 16 << 30})
	register(flashEngine("flashdbm-update", "default options; a transaction of one record by Update, not by Put", dbm.Options{}, flashCalls{update: true}))
	register(flashEngine("flashdbm-async", "default options; commits by PutAsync, which the next Sync waits for", dbm.Options{}, flashCalls{async: true}))
	load := flashEngine("flashdbm-load", "default options; records by DB.Load", dbm.Options{}, flashCalls{})
	open := load.Open
	load.Open = func(dir string, o OpenOptions) (Store, error) {
		s, err := open(dir, o)
		return flashLoad{s}, err
	}
	register(load)
	register(flashEngine("flashdbm-cursor", "default options; scans by Cursor, not by Range", dbm.Options{}, flashCalls{cursor: true}))
}

// flashLoad is ours, filled by DB.Load.
type flashLoad struct{ Store }

func (s flashLoad) Bulk(records iter.Seq2[[]byte, []byte]) error {
	return s.Store.(*flashStore).Load(context.Background(), records, dbm.LoadOptions{Sorted: true})
}

// flashCalls chooses between two calls of ours for the same thing.
type flashCalls struct{ update, cursor, async bool }

func registerFlashdbm(name, settings string, options dbm.Options) {
	register(flashEngine(name, settings, options, flashCalls{}))
}

func flashEngine(name, settings string, options dbm.Options, calls flashCalls) *engine {
	return &engine{
		Name: name, Variant: name != "flashdbm", Version: func() string { return "this revision" },
		Settings: settings + "; Durable, or Buffered where commits need no sync",
		Open: func(dir string, o OpenOptions) (Store, error) {
			options := options
			if !o.Durable {
				options.Durability = dbm.Buffered
			}
			db, err := dbm.Open(filepath.Join(dir, "flash.fdbm"), &options)
			if err != nil {
				return nil, err
			}
			return &flashStore{db, calls}, nil
		},
	}
}

type flashStore struct {
	*dbm.DB
	calls flashCalls
}

// Counters returns the numbers of DB.Stats.
func (s *flashStore) Counters() map[string]float64 {
	counters := map[string]float64{}
	text, err := json.Marshal(s.Stats())
	if err != nil {
		return nil
	}
	var fields map[string]any
	if json.Unmarshal(text, &fields) == nil {
		for name, value := range fields {
			if number, ok := value.(float64); ok {
				counters[name] = number
			}
		}
	}
	return counters
}

func (s *flashStore) Client() (Client, error) {
	return goClient{&flashConn{db: s.DB, calls: s.calls}}, nil
}

type flashConn struct {
	db    *dbm.DB
	calls flashCalls
	view  *dbm.Tx // nil between runs of Gets
	write [][2][]byte
}

func (s *flashConn) Get(key []byte) ([]byte, error) {
	if s.view == nil {
		view, err := s.db.Begin(dbm.TxOptions{ReadOnly: true})
		if err != nil {
			return nil, err
		}
		s.view = view
	}
	value, err := s.view.Get(key)
	if errors.Is(err, dbm.ErrNotFound) {
		return nil, nil
	}
	return value, err
}

func (s *flashConn) EndReads() {
	if s.view != nil {
		s.view.Rollback()
		s.view = nil
	}
}

func (s *flashConn) Put(key, value []byte) error {
	s.write = append(s.write, [2][]byte{key, value})
	return nil
}

func (s *flashConn) Commit() error {
	defer func() { s.write = s.write[:0] }()
	if s.calls.async && len(s.write) == 1 {
		return s.db.PutAsync(s.write[0][0], s.write[0][1], func(err error) {
			if err != nil {
				panic(err) // the handle has failed
			}
		})
	}
	if len(s.write) == 1 && !s.calls.update {
		return s.db.Put(s.write[0][0], s.write[0][1])
	}
	return s.db.Update(func(tx *dbm.Tx) error {
		for _, record := range s.write {
			if err := tx.Put(record[0], record[1]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *flashConn) Scan(from []byte, limit int, out *Outcome) error {
	return s.db.View(func(tx *dbm.Tx) error {
		n := 0
		if s.calls.cursor {
			c := tx.Cursor()
			for ok := c.Seek(from); ok && n < limit; ok = c.Next() {
				out.touch(c.Value())
				n++
			}
			out.Scanned += uint64(n)
			return c.Err()
		}
		for _, value := range tx.Range(from, nil) {
			out.touch(value)
			if n++; n == limit {
				break
			}
		}
		out.Scanned += uint64(n)
		return nil
	})
}

func (s *flashConn) Close() error {
	s.EndReads()
	return nil
}
