package dbm

import (
	"bytes"
	"errors"

	"flashdbm/internal/keyspace"
)

// In a file with keyspaces one tree holds the records of all keyspaces. The prefix of a key in the tree keeps
// the records of each keyspace together:
//
//	default keyspace    the key; if it begins with FF, FF 00 and the rest of it
//	another one         FF, its number, the key
//	catalog             FF FF
//
// A number is one byte from 01 to EF, or four bytes after a byte from F0 to FE. So no keyspace's prefix is the
// beginning of another's, and the keys of each keyspace, including the default one, are one range of the tree in
// the order of the user's keys. From this follows: a commit to several keyspaces is a commit of several keys,
// conflicts are by keyspace and key, a snapshot, a backup and a check cover all keyspaces, and an unused keyspace
// costs nothing.
//
// The catalog has
//
//	FF FF 00 mark     says that the tree is written so; its value is the form of all this
//	FF FF n  name     the prefix of a keyspace
//	FF FF s           the number that was given last, as a number of Increment. None is given twice
//	FF FF d  prefix   the name that a keyspace had which was dropped, and whose records are being deleted
//
// EnableKeyspaces converts a file in two steps. First the superblock gets a flag, which keeps older programs out.
// Then one transaction rewrites the keys that begin with FF, and puts the mark. Between the two steps the mark is
// missing and keys are stored as before; the next call goes on. Each transaction looks for the mark in its own
// snapshot, unless the mark is known to be there. A key that begins with FF, written by a transaction without the
// mark, would be wrong in a tree with the mark: such a transaction guards the mark, and conflicts with the
// conversion. All other keys are stored alike before and after.
const (
	spaceByte  = keyspace.Lead
	escapeByte = keyspace.Escape
	firstSpace = keyspace.First
	catalog    = keyspace.Catalog
	longSpaces = 0xF0 // first byte of five-byte numbers
	mostLong   = 0xFF - longSpaces
)

var (
	spaceMark   = keyspace.Mark
	spaceForm   = []byte{keyspace.Plain}
	spaceSerial = []byte{spaceByte, catalog, 's'}
	spacesFrom  = keyspace.End
)

const (
	catalogName    = 'n'
	catalogDropped = 'd'
)

func catalogKey(kind byte, rest []byte) []byte {
	return append([]byte{spaceByte, catalog, kind}, rest...)
}

// space says where the keys of a transaction lie in the tree. The zero space is the whole tree, with keys as they
// are.
type space struct {
	prefix    []byte // of a keyspace; empty for the default one, and for the whole tree
	low, high []byte // bounds of its keys in the tree; nil: no bound. The slices are never modified
	shifts    bool   // some keys are stored as other keys
	all       bool   // the whole of a tree that may have keyspaces: keys include their prefixes
}

var (
	allKeys = &space{} // of a file without keyspaces

	// defaultSpace is the default keyspace of a file with keyspaces.
	defaultSpace = space{high: spacesFrom, shifts: true}
)

func spaceOf(prefix []byte) space {
	return space{prefix: prefix, low: prefix, high: PrefixEnd(prefix), shifts: true}
}

// errTooManySpaces: some 250 million keyspaces have been created.
var errTooManySpaces = errors.New("flashdbm: no numbers are left for keyspaces: copy the database to a new file")

// spacePrefix returns the prefix of the keyspace with number n, 1 or more.
func spacePrefix(n int64) ([]byte, error) {
	if n < longSpaces {
		return []byte{spaceByte, byte(n)}, nil
	}
	n -= longSpaces
	if n>>24 >= mostLong {
		return nil, errTooManySpaces
	}
	return []byte{spaceByte, longSpaces + byte(n>>24), byte(n >> 16), byte(n >> 8), byte(n)}, nil
}

// isSpacePrefix reports whether p can be a result of spacePrefix.
func isSpacePrefix(p []byte) bool {
	switch {
	case len(p) < 2 || p[0] != spaceByte || p[1] < firstSpace || p[1] == catalog:
		return false
	case p[1] < longSpaces:
		return len(p) == 2
	}
	return len(p) == 5
}

// in returns the key in the tree for a key of the space: key itself, or room with the key in the tree appended.
func (s *space) in(room, key []byte) []byte {
	switch {
	case !s.shifts:
		return key
	case len(s.prefix) > 0:
		return append(append(room, s.prefix...), key...)
	}
	return keyspace.In(room, key)
}

// out returns the key of the space for a key in the tree: a part of it, except for keys of the default keyspace
// that begin with FF.
func (s *space) out(key []byte) []byte {
	switch {
	case !s.shifts || key == nil:
		return key
	case len(s.prefix) > 0:
		return key[min(len(s.prefix), len(key)):]
	}
	return keyspace.Out(key)
}

// to returns the upper bound in the tree for an upper bound of keys of the space; nil for to, or in the result, is
// no bound.
func (s *space) to(to []byte) []byte {
	if to == nil {
		return s.high
	}
	return s.in(nil, to)
}

// holds reports whether a key in the tree belongs to the space.
func (s *space) holds(key []byte) bool {
	return bytes.Compare(key, s.low) >= 0 && (s.high == nil || bytes.Compare(key, s.high) < 0)
}

// treeKey returns the key in the tree for a key of the transaction's space. The result is valid until the next call for
// any Tx of the transaction.
func treeKey(tx *Tx, key []byte) []byte {
	if !tx.space.shifts || len(tx.space.prefix) == 0 && !keyspace.Shifted(key) {
		return key
	}
	if tx.room == nil {
		tx.room = make([]byte, 0, keyRoom)
	}
	return tx.space.in(tx.room, key)
}

// keyRoom, in bytes, is the capacity of txShared.room: longer keys in the tree are allocated.
const keyRoom = 128

// checkKey is checkSizes for a key of the space. A key of the whole tree may be longer by its prefix.
func (s *space) checkKey(key, value []byte) error {
	if s.all {
		key = key[:min(len(key), maxKey)]
	}
	return checkSizes(key, value)
}
