package format

import (
	"encoding/binary"
	"errors"
)

const (
	PageSize = 4096               // bytes of a page, the unit of the log
	MuxSize  = 40                 // bytes of its mux area
	BodySize = PageSize - MuxSize // bytes of its body
)

const (
	MaxLogged = 16 // limit of logged values in a page of records: the bits of a mask
	MaxSpan   = 4  // limit of a page of records with its raw pages, in pages of the file
)

// Addr is the index of a page in the file. 0 means none: page 0 is a superblock.
type Addr = uint64

// PageID is the name by which a parent knows a page: the Addr of its base image, or a born name with bit 63 set.
type PageID = uint64

// BornBit is set in a PageID that is not an address.
const BornBit PageID = 1 << 63

// IsAddr reports whether a name is an address.
func IsAddr(id PageID) bool { return id&BornBit == 0 }

// HeaderPage returns the index in a segment of the segment's header. Segment 0 begins with the two superblocks.
func HeaderPage(segment uint32) uint64 {
	if segment == 0 {
		return 2
	}
	return 0
}

// ErrCorrupt is wrapped by every error that means damage of the file.
var ErrCorrupt = errors.New("flashdbm: damaged database")

// U64s decodes n little-endian words from the beginning of b.
func U64s(b []byte, n uint64) []uint64 {
	words := make([]uint64, n)
	for i := range words {
		words[i] = binary.LittleEndian.Uint64(b[i*8:])
	}
	return words
}
