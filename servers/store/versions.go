package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"flashdbm/dbm"
)

// A table of versions keeps several versions of a key, and the outcome of the transactions that wrote them. Its
// records are
//
//	2 | hash of the key, big-endian | key | timestamp, big-endian    a version: flags u16 | content
//	3 | timestamp, big-endian                                        a transaction: state u8 | zero u8 | n u16 |
//	                                                                 client u64 | n hashes u64
//	3 | eight bytes of 0                                             the floor: a timestamp u64
//
// A version is committed unless its transaction's record says that it is prepared. A record belongs to the version's
// transaction if the key's hash is among its hashes; otherwise it belongs to another client that used the same
// timestamp after the version's transaction was finished and forgotten. So the record of a transaction changes three
// times: to prepared, to committed, and it is deleted once all partitions have committed. An abort deletes the
// versions in the same change that sets the record to refused. So if a version and a refused record exist together,
// the version was committed, and its record was forgotten before a late ABORT came.

const (
	versionKey     = 2
	transactionKey = 3
	versionHead    = 2
	txnHead        = 12
)

// TransactionState is the state in a transaction's record.
type TransactionState uint8

// The states.
const (
	Prepared  TransactionState = 1
	Committed TransactionState = 2
	Refused   TransactionState = 3
)

// A Transaction is a transaction's record.
type Transaction struct {
	TS     uint64
	Client uint64
	State  TransactionState
	Hashes []uint64 // of all its keys, including those of other partitions
}

// A Version is a version's record.
type Version struct {
	TS    uint64
	Hash  uint64
	Flags uint16
	Key   []byte
	Value []byte
	Older []uint64 // in Inherited.Newest: as Record.Older
}

func appendVersionKey(b []byte, hash uint64, key []byte, ts uint64) []byte {
	b = append(b, versionKey)
	b = binary.BigEndian.AppendUint64(b, hash)
	b = append(b, key...)
	return binary.BigEndian.AppendUint64(b, ts)
}

func appendTransactionKey(b []byte, ts uint64) []byte {
	return binary.BigEndian.AppendUint64(append(b, transactionKey), ts)
}

// PutVersion returns the change that puts a version.
func PutVersion(v *Version) Change {
	n := keyHead + len(v.Key) + 8
	b := make([]byte, 0, n+versionHead+len(v.Value))
	b = appendVersionKey(b, v.Hash, v.Key, v.TS)
	b = le.AppendUint16(b, v.Flags)
	b = append(b, v.Value...)
	return Change{Key: b[:n:n], Value: b[n:]}
}

// DropVersion returns the change that deletes a version.
func DropVersion(hash uint64, key []byte, ts uint64) Change {
	return Change{Key: appendVersionKey(make([]byte, 0, keyHead+len(key)+8), hash, key, ts), Delete: true}
}

// PutTransaction returns the change that puts a transaction's record.
func PutTransaction(t *Transaction) Change {
	const n = 9
	b := make([]byte, 0, n+txnHead+8*len(t.Hashes))
	b = appendTransactionKey(b, t.TS)
	b = append(b, byte(t.State), 0)
	b = le.AppendUint16(b, uint16(len(t.Hashes)))
	b = le.AppendUint64(b, t.Client)
	for _, h := range t.Hashes {
		b = le.AppendUint64(b, h)
	}
	return Change{Key: b[:n:n], Value: b[n:]}
}

// DropTransaction returns the change that deletes a transaction's record.
func DropTransaction(ts uint64) Change {
	return Change{Key: appendTransactionKey(nil, ts), Delete: true}
}

// PutFloor returns the change that sets the floor.
func PutFloor(ts uint64) Change {
	return Change{Key: appendTransactionKey(nil, 0), Value: le.AppendUint64(nil, ts)}
}

func (t *Transaction) parse(k, v []byte) error {
	if len(k) != 9 || len(v) < txnHead || len(v) != txnHead+8*int(le.Uint16(v[2:])) || v[0] < byte(Prepared) || v[0] > byte(Refused) {
		return fmt.Errorf("%w: a transaction with a key of %d bytes and a value of %d", ErrCorrupt, len(k), len(v))
	}
	*t = Transaction{TS: binary.BigEndian.Uint64(k[1:]), State: TransactionState(v[0]), Client: le.Uint64(v[4:])}
	for r := v[txnHead:]; len(r) > 0; r = r[8:] {
		t.Hashes = append(t.Hashes, le.Uint64(r))
	}
	return nil
}

func (x *Version) parse(k, v []byte) error {
	if len(k) < keyHead+8 || k[0] != versionKey || len(v) < versionHead {
		return fmt.Errorf("%w: a version with a key of %d bytes and a value of %d", ErrCorrupt, len(k), len(v))
	}
	end := len(k) - 8
	*x = Version{
		TS: binary.BigEndian.Uint64(k[end:]), Hash: binary.BigEndian.Uint64(k[1:]), Flags: le.Uint16(v),
		Key: bytes.Clone(k[keyHead:end]), Value: bytes.Clone(v[versionHead:]),
	}
	return nil
}

// Inherited is the unfinished work in a table of versions, from the last life of its partition.
type Inherited struct {
	Floor        uint64
	Transactions []Transaction
	Versions     []Version // the versions of prepared transactions
	Newest       []Version // for each of their keys, the newest committed version, if there is one
}

// A VersionFile is the File of a table of versions. Its Get returns the newest committed version.
type VersionFile interface {
	File
	// Inherit returns the unfinished work. It is called before anything is applied. owns reports whether a hash
	// belongs to the partition.
	Inherit(owns func(hash uint64) bool) (Inherited, error)
}

// Rows gives access to the records of a file by key.
type Rows interface {
	// Row returns a record. The value is valid until the next call.
	Row(key []byte) (value []byte, found bool, err error)
	// Range calls yield for the records with from <= key < to, in order. Key and value are valid during the call.
	Range(from, to []byte, yield func(key, value []byte) error) error
}

type versionFile struct {
	File
	rows Rows
}

// NewVersionFile returns the VersionFile of a file, given access to its records.
func NewVersionFile(f File, r Rows) VersionFile { return versionFile{f, r} }

func (f *file) Row(key []byte) ([]byte, bool, error) {
	b, err := f.db.Get(key)
	if errors.Is(err, dbm.ErrNotFound) {
		return nil, false, nil
	}
	return b, err == nil, err
}

func (f *file) Range(from, to []byte, yield func(k, v []byte) error) error {
	return f.db.View(func(tx *dbm.Tx) error {
		for k, v := range tx.Range(from, to) {
			if err := yield(k, v); err != nil {
				return err
			}
		}
		return tx.Err()
	})
}

// OpenVersions opens the file of a partition, and creates it if it does not exist. maxSize is in bytes; 0: no limit.
func OpenVersions(path string, maxSize int64) (VersionFile, error) {
	f, err := OpenFile(path, maxSize)
	if err != nil {
		return nil, err
	}
	return NewVersionFile(f, f.(*file)), nil
}

// OpenMemoryVersions returns a new file of a partition in memory, which is lost with Close or with the process.
func OpenMemoryVersions(maxSize int64) (VersionFile, error) {
	db, err := dbm.OpenMemory(FileOptions(maxSize))
	if err != nil {
		return nil, err
	}
	f := NewFile(db, maxSize)
	return NewVersionFile(f, f.(*file)), nil
}

func (f versionFile) Inherit(owns func(hash uint64) bool) (in Inherited, err error) {
	err = f.rows.Range([]byte{transactionKey}, []byte{transactionKey + 1}, func(k, v []byte) error {
		if ts := k[1:]; len(ts) == 8 && binary.BigEndian.Uint64(ts) == 0 {
			if len(v) != 8 {
				return fmt.Errorf("%w: a floor of %d bytes", ErrCorrupt, len(v))
			}
			in.Floor = le.Uint64(v)
			return nil
		}
		var t Transaction
		if err := t.parse(k, v); err != nil {
			return err
		}
		in.Transactions = append(in.Transactions, t)
		return nil
	})
	if err != nil {
		return in, err
	}
	prepared := map[uint64][]uint64{} // hashes, by timestamp
	var hashes []uint64
	for i := range in.Transactions {
		if t := &in.Transactions[i]; t.State == Prepared {
			prepared[t.TS] = t.Hashes
			hashes = append(hashes, slices.DeleteFunc(slices.Clone(t.Hashes), func(h uint64) bool { return !owns(h) })...)
		}
	}
	slices.Sort(hashes)
	for _, h := range slices.Compact(hashes) {
		list, err := f.versions(h, nil)
		if err != nil {
			return in, err
		}
		for len(list) > 0 {
			n := 1
			for n < len(list) && bytes.Equal(list[n].Key, list[0].Key) {
				n++
			}
			concerned := false
			for _, v := range list[:n] {
				if slices.Contains(prepared[v.TS], h) {
					in.Versions = append(in.Versions, v)
					concerned = true
				}
			}
			if concerned {
				r, found, err := f.newest(list[:n])
				if err != nil {
					return in, err
				}
				if found {
					in.Newest = append(in.Newest, Version{TS: r.Version, Hash: h, Flags: r.Flags, Key: r.Key, Value: r.Value, Older: r.Older})
				}
			}
			list = list[n:]
		}
	}
	return in, nil
}

// versions returns all versions of a key, or of all keys with the hash if key is nil, in ascending order of key and
// timestamp.
func (f versionFile) versions(hash uint64, key []byte) (list []Version, err error) {
	from := append(appendKey(nil, hash, nil), key...)
	from[0] = versionKey
	to := append(bytes.Clone(from), bytes.Repeat([]byte{0xFF}, 9)...)
	switch {
	case key == nil && hash == math.MaxUint64:
		to = []byte{versionKey + 1}
	case key == nil:
		to = binary.BigEndian.AppendUint64([]byte{versionKey}, hash+1)
	}
	err = f.rows.Range(from, to, func(k, v []byte) error {
		if key != nil && len(k) != len(from)+8 {
			return nil // another key with this hash, of which key is a prefix
		}
		var x Version
		if err := x.parse(k, v); err != nil {
			return err
		}
		list = append(list, x)
		return nil
	})
	return list, err
}

// Prefetch does nothing: Get reads a range of records, and which records these are is known only in
// the file.
func (f versionFile) Prefetch([]Fetched) error { return nil }

func (f versionFile) Get(hash uint64, key []byte) (r Record, found bool, err error) {
	list, err := f.versions(hash, key)
	if err != nil {
		return r, false, err
	}
	return f.newest(list)
}

// newest returns the newest committed version in list, all versions of a key in ascending order.
func (f versionFile) newest(list []Version) (r Record, found bool, err error) {
	for i := len(list) - 1; i >= 0 && err == nil; i-- {
		v := &list[i]
		var t Transaction
		k := appendTransactionKey(nil, v.TS)
		b, has, rerr := f.rows.Row(k)
		if rerr != nil {
			return r, false, rerr
		}
		if has {
			err = t.parse(k, b)
		}
		done := !has || t.State == Refused || !slices.Contains(t.Hashes, v.Hash)
		switch {
		case found && (done || t.State == Committed):
			r.Older = append(r.Older, v.TS)
		case !found && err == nil && (done || t.State == Committed):
			found = true
			r = Record{Version: v.TS, Flags: v.Flags, Key: v.Key, Value: v.Value}
		}
	}
	return r, found, err
}

// versionsFrom is the first place of a version in a copy; lower places are those of transactions. The place of a
// transaction is half of its timestamp, that of a version is versionsFrom plus half of its hash.
const versionsFrom = 1 << 63

// Scan implements File for copies of a table: it yields the records of transactions and versions, unchanged, in the
// order of their places.
func (f versionFile) Scan(first, last uint64, yield func(place uint64, r *Record) bool) error {
	on := true
	part := func(from, to []byte, place func(key []byte) uint64) error {
		if !on {
			return nil
		}
		err := f.rows.Range(from, to, func(k, v []byte) error {
			if on = yield(place(k), &Record{Key: k, Value: v}); !on {
				return errScanned
			}
			return nil
		})
		if errors.Is(err, errScanned) {
			return nil
		}
		return err
	}
	if first < versionsFrom {
		to := []byte{transactionKey + 1}
		if last < versionsFrom-1 {
			to = appendTransactionKey(nil, (last+1)<<1)
		}
		if err := part(appendTransactionKey(nil, first<<1), to, func(k []byte) uint64 { return binary.BigEndian.Uint64(k[1:]) >> 1 }); err != nil {
			return err
		}
	}
	if last < versionsFrom {
		return nil
	}
	from, to := binary.BigEndian.AppendUint64([]byte{versionKey}, max(first, versionsFrom)<<1), []byte{versionKey + 1}
	if last != math.MaxUint64 {
		to = binary.BigEndian.AppendUint64([]byte{versionKey}, (last+1)<<1)
	}
	return part(from, to, func(k []byte) uint64 { return versionsFrom | binary.BigEndian.Uint64(k[1:])>>1 })
}

var errScanned = errors.New("store: enough")
