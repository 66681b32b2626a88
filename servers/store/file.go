package store

import (
	"encoding/binary"
	"errors"
	"math"
	"time"

	"flashdbm/dbm"
)

// A File stores the entries. Calls of Apply never overlap, nor do calls of Sync; any thread may call the other
// methods at any time.
type File interface {
	// State returns record 0, the zero State for a new file.
	State() (State, error)
	// Apply applies the entries and sets record 0, in one transaction. ErrFull: nothing was applied.
	Apply(entries []Entry, s State) error
	// Sync makes durable what Apply has applied.
	Sync() error
	// Prefetch tells the file that Get will be called for these keys. It may begin to read their records.
	Prefetch(keys []Fetched) error
	// Get returns a copy of a record.
	Get(hash uint64, key []byte) (r Record, found bool, err error)
	// Scan calls yield for the records with first <= hash <= last, in the order of hashes, until yield returns false.
	// A record is valid during the call. All records are of one moment.
	Scan(first, last uint64, yield func(hash uint64, r *Record) bool) error
	// Room returns the number of bytes that can still be put, as far as it is known.
	Room() int64
	Close() error
}

// The errors of a File, for errors.Is.
var (
	ErrFull   = dbm.ErrFull
	ErrFailed = dbm.ErrFailed
)

// memoryLimit is the most memory that the engine may use for changed pages. The shard has its items in memory itself,
// so the engine needs only enough to gather writes of the same page.
const memoryLimit = 64 << 20

// OpenFile opens the file of a shard, and creates it if it does not exist. maxSize is in bytes; 0: no limit.
func OpenFile(path string, maxSize int64) (File, error) {
	db, err := dbm.Open(path, FileOptions(maxSize))
	if err != nil {
		return nil, err
	}
	return NewFile(db, maxSize), nil
}

// Locked returns the time at which a file that OpenFile has returned was locked: no other process has served from it
// since.
func Locked(f File) time.Time { return f.(*file).db.Stats().Recovery.Locked }

// FileOptions are the options with which a shard's file is opened.
func FileOptions(maxSize int64) *dbm.Options {
	return &dbm.Options{Durability: dbm.Buffered, MaxFileSize: maxSize, MemoryLimit: memoryLimit}
}

// NewFile returns the File of a database that was opened with FileOptions. File.Close closes the database.
func NewFile(db *dbm.DB, maxSize int64) File { return &file{db: db, maxSize: maxSize} }

type file struct {
	db      *dbm.DB
	maxSize int64
	buf     []byte // for Apply
}

func (f *file) State() (s State, err error) {
	b, err := f.db.Get(stateKey)
	if errors.Is(err, dbm.ErrNotFound) {
		return State{}, nil
	}
	if err == nil {
		err = s.parse(b)
	}
	return s, err
}

func (f *file) Apply(entries []Entry, s State) error {
	return f.db.Update(func(tx *dbm.Tx) error {
		for i := range entries {
			e := &entries[i]
			if e.Empty {
				continue
			}
			if e.Drop {
				from, to := rangeOf(e.Hash, e.Last)
				if err := tx.DeleteRange(from, to); err != nil {
					return err
				}
				continue
			}
			if e.Changes != nil {
				if err := change(tx, e.Changes); err != nil {
					return err
				}
				continue
			}
			f.buf = appendKey(f.buf[:0], e.Hash, e.Key)
			k := len(f.buf)
			if e.Remove {
				if err := tx.Delete(f.buf); err != nil {
					return err
				}
				continue
			}
			f.buf = appendValue(f.buf, &e.Record)
			if err := tx.Put(f.buf[:k], f.buf[k:]); err != nil {
				return err
			}
		}
		f.buf = s.append(f.buf[:0])
		return tx.Put(stateKey, f.buf)
	})
}

func change(tx *dbm.Tx, list []Change) error {
	for i := range list {
		c := &list[i]
		if c.Delete {
			if err := tx.Delete(c.Key); err != nil {
				return err
			}
		} else if err := tx.Put(c.Key, c.Value); err != nil {
			return err
		}
	}
	return nil
}

func (f *file) Sync() error { return f.db.Sync() }

func (f *file) Prefetch(keys []Fetched) error {
	list := make([][]byte, len(keys))
	for i := range keys {
		list[i] = appendKey(nil, keys[i].Hash, keys[i].Key)
	}
	return f.db.Prefetch(list)
}

func (f *file) Get(hash uint64, key []byte) (r Record, found bool, err error) {
	k := appendKey(nil, hash, key)
	v, err := f.db.Get(k)
	if errors.Is(err, dbm.ErrNotFound) {
		return r, false, nil
	}
	if err == nil {
		_, r, err = parseRecord(k, v)
	}
	return r, err == nil, err
}

// rangeOf returns the key range, from included and to excluded, of the records with first <= hash <= last.
func rangeOf(first, last uint64) (from, to []byte) {
	if last == math.MaxUint64 {
		return appendKey(nil, first, nil), []byte{itemKey + 1}
	}
	return appendKey(nil, first, nil), binary.BigEndian.AppendUint64([]byte{itemKey}, last+1)
}

func (f *file) Scan(first, last uint64, yield func(hash uint64, r *Record) bool) error {
	from, to := rangeOf(first, last)
	return f.db.View(func(tx *dbm.Tx) error {
		for k, v := range tx.Range(from, to) {
			hash, r, err := parseRecord(k, v)
			if err != nil {
				return err
			}
			if !yield(hash, &r) {
				return nil
			}
		}
		return tx.Err()
	})
}

func (f *file) Room() int64 {
	if f.maxSize == 0 {
		return math.MaxInt64
	}
	s := f.db.Stats()
	return max(0, f.maxSize-s.FileBytes) + s.FreeBytes
}

func (f *file) Close() error { return f.db.Close() }
