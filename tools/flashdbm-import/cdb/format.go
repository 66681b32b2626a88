// Package cdb reads and writes D. J. Bernstein's constant databases: a file of at most 4 GiB, written once.
//
//	header   256 x (place u32, slots u32)           of the hash tables, at 0
//	records  (key length u32, value length u32, key, value)...   at 2048, in the order in which they were added
//	tables   (hash u32, place u32)...               of records; place 0 is an empty slot
//
// All numbers are little-endian. A record with the hash h of its key is in table h % 256, in the first slot that was free from slot
// (h / 256) % slots on. A key may have several records: a lookup finds the first one that was added.
package cdb

import "errors"

const (
	tables     = 256
	headerSize = tables * 8
	maxSize    = 1<<32 - 1 // places are 32 bits
)

// ErrDamaged: the file is no cdb, or is damaged. Errors of Reader wrap it and say where.
var ErrDamaged = errors.New("not a whole cdb file")

// ErrTooLarge: the records do not fit a file of 4 GiB.
var ErrTooLarge = errors.New("a cdb file cannot be larger than 4 GiB")

// Hash returns the hash of a key.
func Hash(key []byte) uint32 {
	h := uint32(5381)
	for _, c := range key {
		h = (h<<5 + h) ^ uint32(c)
	}
	return h
}
