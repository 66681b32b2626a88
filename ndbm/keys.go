//go:build linux

package main

import (
	"bytes"
	"fmt"

	"flashdbm/internal/keyspace"
	"flashdbm/logstore"
	"flashdbm/mvcc"
)

// keys says how the keys of ndbm's records are stored in the tree. Zero value: as storedKey returns them. In a
// file with keyspaces (of package dbm) they are shifted into the default keyspace; ndbm does not see the other
// keyspaces.
type keys struct{ shifted bool }

// errExpires: records of the file may expire, so a value may have a time before it, which ndbm does not know.
var errExpires = fmt.Errorf("%w: records of the database may expire, which ndbm does not know: use package dbm or the command flashdbm", logstore.ErrFormat)

// keysOf returns the form of the keys in a file. The superblock's flag says only that the file may have keyspaces.
// If the mark is missing, enabling them was interrupted, and the keys are as before.
func keysOf(e *mvcc.Engine) (k keys, err error) {
	if !mvcc.Keyspaces(e) {
		return k, nil
	}
	var form []byte
	k.shifted, err = e.Look(keyspace.Mark, func(value []byte) { form = bytes.Clone(value) })
	switch {
	case err != nil || !k.shifted || bytes.Equal(form, []byte{keyspace.Plain}):
		return k, err
	case len(form) > 0 && form[0] == keyspace.Stamped:
		return k, errExpires
	}
	return k, fmt.Errorf("%w: keyspaces of form %x: use a newer flashdbm", logstore.ErrFormat, form)
}

// in returns the key in the tree for a stored key.
func (k keys) in(stored []byte) []byte {
	if !k.shifted {
		return stored
	}
	return keyspace.In(nil, stored)
}

// out returns the stored key for a key in the tree; ok is false if the key lies after all keys of ndbm.
func (k keys) out(key []byte) (stored []byte, ok bool) {
	if !k.shifted {
		return key, true
	}
	if bytes.Compare(key, keyspace.End) >= 0 {
		return nil, false
	}
	return keyspace.Out(key), true
}
