//go:build linux

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"flashdbm/logstore"
)

// The engine's keys have at most 65,536 bytes; those of a DBM may be longer. A key of less than 65,536 bytes is
// stored as it is. A longer one is stored under its first 65,504 bytes followed by its SHA-256. Together these are
// 65,536 bytes, a length that no other stored key has. The rest of the key is stored before the value:
//
//	stored key    first 65,504 bytes | SHA-256 of the whole key
//	stored value  8: n, little-endian | n bytes: the key from byte 65,504 on | the value
const (
	storedKeyMax = 64 << 10
	longKeyHead  = storedKeyMax - sha256.Size
	longKeyRest  = 8
)

func isLong(key []byte) bool { return len(key) >= storedKeyMax }

// storedKey returns the key under which a record is stored.
func storedKey(key []byte) []byte {
	if !isLong(key) {
		return key
	}
	sum := sha256.Sum256(key)
	return append(bytes.Clone(key[:longKeyHead]), sum[:]...)
}

// storedValue returns what is stored for a long key and its value.
func storedValue(key, value []byte) []byte {
	rest := key[longKeyHead:]
	b := make([]byte, 0, longKeyRest+len(rest)+len(value))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(rest)))
	b = append(b, rest...)
	return append(b, value...)
}

// splitStored returns the long key and the value of a stored record.
func splitStored(stored, value []byte) (key, rest []byte, err error) {
	if len(stored) == storedKeyMax && len(value) >= longKeyRest {
		n := binary.LittleEndian.Uint64(value)
		if n >= sha256.Size && n <= uint64(len(value)-longKeyRest) {
			key = append(bytes.Clone(stored[:longKeyHead]), value[longKeyRest:longKeyRest+n]...)
			return key, value[longKeyRest+n:], nil
		}
	}
	return nil, nil, fmt.Errorf("%w: a record under a key of %d bytes, written by another program", logstore.ErrCorrupt, len(stored))
}
