package dbm

import (
	"bytes"
	"errors"

	"flashdbm/internal/keyspace"
)

// In a file with keyspaces the records of all of them are in one tree, each keyspace together, by what precedes their keys there:
//
//	default keyspace    the key; if it begins with FF, FF 00 and the rest of it
//	another one         FF, its number, the key
//	catalog             FF FF
//
// A number is one byte from 01 to EF, or four that begin with F0 to FE. So no keyspace's prefix is the beginning of another's, and the keys of
// each, those of the default one too, are one range in the order of the user's keys. All the rest follows: a commit of several keyspaces is one
// of several keys, conflicts are by keyspace and key, a snapshot, a backup and a check have all of them, and one that is not used costs nothing.
//
// The catalog has
//
//	FF FF 00 mark     says that the tree is written so; its value is the form of all this
//	FF FF n  name     the prefix of a keyspace
//	FF FF s           the number that was given last, as a number of Increment. None is given twice
//	FF FF d  prefix   the name that a keyspace had which was dropped, and whose records are being deleted
//
// A file becomes one with keyspaces by EnableKeyspaces: first its superblock says so, which keeps older programs out, then one transaction writes keys
// anew that begin with FF, with the mark. Between the two the mark is missing, and keys are as before; the next call goes on. Each transaction looks
// for the mark in its own snapshot, unless it is known that it is there. What a transaction without it writes under keys that begin with FF would be
// wrong behind the mark, so such a transaction guards the mark, and loses. No other key is another one with keyspaces.
const (
	spaceByte  = keyspace.Lead
	escapeByte = keyspace.Escape
	firstSpace = keyspace.First
	catalog    = keyspace.Catalog
	longSpaces = 0xF0 // first byte of numbers of four
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

// space says where the keys of a transaction are in the tree. The zero space has all of the tree, as it is.
type space struct {
	prefix    []byte // of a keyspace; empty: the default one, or all of the tree
	low, high []byte // bounds of its keys in the tree; nil: none. Never changed
	shifts    bool   // some keys are not the same in the tree
	all       bool   // all of a tree that may have keyspaces: keys have what precedes them
}

var (
	allKeys = &space{} // of a file without keyspaces

	// defaultSpace is the default keyspace of a file with keyspaces.
	defaultSpace = space{high: spacesFrom, shifts: true}
)

func spaceOf(prefix []byte) space {
	return space{prefix: prefix, low: prefix, high: PrefixEnd(prefix), shifts: true}
}

// errTooManySpaces needs some hundred million of them.
var errTooManySpaces = errors.New("flashdbm: no numbers are left for keyspaces: copy the database to a new file")

// spacePrefix returns the prefix of the keyspace with a number, from 1 on.
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

// isSpacePrefix reports whether spacePrefix may have made p.
func isSpacePrefix(p []byte) bool {
	switch {
	case len(p) < 2 || p[0] != spaceByte || p[1] < firstSpace || p[1] == catalog:
		return false
	case p[1] < longSpaces:
		return len(p) == 2
	}
	return len(p) == 5
}

// in appends to room, or returns, the key that a key of the space has in the tree.
func (s *space) in(room, key []byte) []byte {
	switch {
	case !s.shifts:
		return key
	case len(s.prefix) > 0:
		return append(append(room, s.prefix...), key...)
	}
	return keyspace.In(room, key)
}

// out returns the key of the space that has a key in the tree. Mostly it is a part of that.
func (s *space) out(key []byte) []byte {
	switch {
	case !s.shifts || key == nil:
		return key
	case len(s.prefix) > 0:
		return key[min(len(s.prefix), len(key)):]
	}
	return keyspace.Out(key)
}

// to returns the bound in the tree for an upper bound of keys of the space, nil for none.
func (s *space) to(to []byte) []byte {
	if to == nil {
		return s.high
	}
	return s.in(nil, to)
}

// holds reports whether a key in the tree is one of the space.
func (s *space) holds(key []byte) bool {
	return bytes.Compare(key, s.low) >= 0 && (s.high == nil || bytes.Compare(key, s.high) < 0)
}

// spaceKeys puts keys of a space together.
type spaceKeys struct {
	space *space // what it is does not change
	room  []byte // empty; see at
}

// at returns the key in the tree for a key of the space. It is good until the next call.
func (k *spaceKeys) at(key []byte) []byte {
	if !k.space.shifts || len(k.space.prefix) == 0 && !keyspace.Shifted(key) {
		return key
	}
	if k.room == nil {
		k.room = make([]byte, 0, keyRoom)
	}
	return k.space.in(k.room, key)
}

// keyRoom is up to which length keys are put together in memory that is kept for that.
const keyRoom = 128

// checkKey is checkSizes of a key of the space.
func (k *spaceKeys) checkKey(key, value []byte) error {
	if k.space.all {
		key = key[:min(len(key), maxKey)]
	}
	return checkSizes(key, value)
}
