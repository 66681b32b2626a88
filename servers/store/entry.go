package store

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// An Entry is one change of the shard.
type Entry struct {
	Seq    uint64
	Term   uint64 // of the reign that made the entry; 0 for a shard without replicas
	Hash   uint64 // of the key
	Remove bool
	Empty  bool // the entry changes no record
	// Drop removes the records of all hashes from Hash to Last.
	Drop bool
	Last uint64
	Record
	// Changes, if not nil, are the entry's effect on the file; the fields above are then ignored. The caller
	// must not modify them.
	Changes []Change
}

// A Change puts or deletes one record of the file. The functions of versions.go make changes.
type Change struct {
	Key    []byte
	Value  []byte
	Delete bool
}

// A Record is a key and its record in the file.
type Record struct {
	Version uint64
	Expiry  uint64 // milliseconds since 1970; 0: none
	Flags   uint16 // of the item
	Key     []byte
	Value   []byte
	Older   []uint64 // in a table of versions: the timestamps of the key's older versions in the file
}

// State is record 0.
type State struct {
	Term uint64 // how many times a shard has served from the file
	Seq  uint64 // of the newest entry in the file
	Base uint64 // version = seq + base
	// Terms names the reigns that made the newest entries, the latest first; a zero term ends the list. A shard
	// without replicas has none.
	Terms [maxTerms]Term
}

// A Term says with which entry a reign began.
type Term struct{ Term, First uint64 }

// maxTerms is the number of reigns that record 0 remembers. A replica whose newest entry is from an older reign
// receives a whole copy instead of the missing entries.
const maxTerms = 8

// note adds the reign of an entry if it is new.
func (s *State) note(e *Entry) {
	if e.Term == 0 || s.Terms[0].Term == e.Term {
		return
	}
	copy(s.Terms[1:], s.Terms[:])
	s.Terms[0] = Term{e.Term, e.Seq}
}

// versionGap is the increase of the base at each opening of a file: more than the number of entries that can have
// been given versions and then lost. To lose more, a shard would have to be a day ahead of its file.
const versionGap = 1 << 36

// ErrCorrupt reports that the file is not a shard's file, or damaged, for errors.Is.
var ErrCorrupt = errors.New("store: not a shard's file, or damaged")

const (
	recordHead  = 18
	stateLayout = 1 // without replicas
	termsLayout = 2 // with the table of terms
	stateSize   = 25
	termsSize   = stateSize + maxTerms*16
	itemKey     = 1 // first byte of a record's key
	keyHead     = 9
)

var (
	le       = binary.LittleEndian
	stateKey = []byte{0}
)

func (s *State) append(b []byte) []byte {
	terms := s.Terms != [maxTerms]Term{}
	if terms {
		b = append(b, termsLayout)
	} else {
		b = append(b, stateLayout)
	}
	b = le.AppendUint64(b, s.Term)
	b = le.AppendUint64(b, s.Seq)
	b = le.AppendUint64(b, s.Base)
	if terms {
		for _, t := range s.Terms {
			b = le.AppendUint64(le.AppendUint64(b, t.Term), t.First)
		}
	}
	return b
}

func (s *State) parse(b []byte) error {
	layout, size := first(b), stateSize
	if layout == termsLayout {
		size = termsSize
	}
	if len(b) != size || layout != stateLayout && layout != termsLayout {
		return fmt.Errorf("%w: record 0 has %d bytes and layout %d; this program knows layouts %d and %d", ErrCorrupt, len(b), layout, stateLayout, termsLayout)
	}
	*s = State{Term: le.Uint64(b[1:]), Seq: le.Uint64(b[9:]), Base: le.Uint64(b[17:])}
	if layout == termsLayout {
		for i := range s.Terms {
			s.Terms[i] = Term{le.Uint64(b[stateSize+16*i:]), le.Uint64(b[stateSize+16*i+8:])}
		}
	}
	return nil
}

func first(b []byte) byte {
	if len(b) == 0 {
		return 0
	}
	return b[0]
}

// appendKey appends the key of an item's record.
func appendKey(b []byte, hash uint64, key []byte) []byte {
	b = append(b, itemKey)
	b = binary.BigEndian.AppendUint64(b, hash)
	return append(b, key...)
}

func appendValue(b []byte, r *Record) []byte {
	b = le.AppendUint64(b, r.Version)
	b = le.AppendUint64(b, r.Expiry)
	b = le.AppendUint16(b, r.Flags)
	return append(b, r.Value...)
}

// parseRecord decodes a record. Its slices are parts of k and v.
func parseRecord(k, v []byte) (hash uint64, r Record, err error) {
	if len(k) < keyHead || k[0] != itemKey || len(v) < recordHead {
		return 0, r, fmt.Errorf("%w: a record with a key of %d bytes and a value of %d", ErrCorrupt, len(k), len(v))
	}
	r = Record{Version: le.Uint64(v), Expiry: le.Uint64(v[8:]), Flags: le.Uint16(v[16:]), Key: k[keyHead:], Value: v[recordHead:]}
	return binary.BigEndian.Uint64(k[1:]), r, nil
}
