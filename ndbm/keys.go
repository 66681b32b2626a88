//go:build linux

package main

import (
	"bytes"
	"fmt"

	"flashdbm/internal/keyspace"
	"flashdbm/logstore"
	"flashdbm/mvcc"
)

// keys says what the keys of ndbm's records are in the tree. The zero value: those of storedKey. A file that package dbm has given keyspaces has
// them, shifted, in its default keyspace, which is all that ndbm sees of it.
type keys struct{ shifted bool }

// errExpires is of a file in which the value of a record may have a time before it, past which the record is not there.
var errExpires = fmt.Errorf("%w: records of the database may expire, which ndbm does not know: use package dbm or the command flashdbm", logstore.ErrFormat)

// keysOf says what the keys of a file are. The superblock's flag says that the file may have keyspaces; where the mark is missing, making it so was
// cut short, and the keys are as before.
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

// in returns the key in the tree of a stored key.
func (k keys) in(stored []byte) []byte {
	if !k.shifted {
		return stored
	}
	return keyspace.In(nil, stored)
}

// out returns the stored key of one in the tree; ok is false if that is behind all of them.
func (k keys) out(key []byte) (stored []byte, ok bool) {
	if !k.shifted {
		return key, true
	}
	if bytes.Compare(key, keyspace.End) >= 0 {
		return nil, false
	}
	return keyspace.Out(key), true
}
