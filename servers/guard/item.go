package guard

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/zeebo/xxh3"
)

// Sizes in bytes.
const (
	HeaderSize = 24
	WordSize   = 8
	MaxKey     = 65_527
	MaxValue   = 1<<32 - 1
)

// Flags of an item.
const (
	// Removed marks an item that records that its key has no value. It is never shown: its guardian stays 0.
	Removed uint16 = 1 << iota
	// Manifest marks a value that lists chunks, which hold the client's value.
	Manifest
	// Chunk marks a part of a value that a manifest lists.
	Chunk
)

// The errors of Verify, for errors.Is.
var (
	ErrStale    = errors.New("guard: the item is no longer current, or the copy is torn")
	ErrOtherKey = errors.New("guard: the item is of another key")
)

// An Item is the content of a place. Key and Value point into the memory that the item was parsed from.
type Item struct {
	Flags   uint16
	Version uint64
	Expiry  uint64 // milliseconds since 1970; 0: none
	Key     []byte
	Value   []byte
}

// Size returns the size in bytes of an item with such a key and value, guardian included. It is a multiple of
// WordSize.
func Size(klen, vlen int) int { return bodySize(klen, vlen) + WordSize }

// bodySize is the size of the part of the item that the guardian covers.
func bodySize(klen, vlen int) int { return (HeaderSize + klen + vlen + WordSize - 1) &^ (WordSize - 1) }

// Build writes the item to dst, which has Size bytes and begins at a multiple of WordSize, and returns the guardian
// for Show. Build sets the guardian in dst to 0 before it writes anything else.
func Build(dst []byte, it *Item) (guardian uint64) {
	klen, vlen := len(it.Key), len(it.Value)
	if len(dst) != Size(klen, vlen) {
		panic(fmt.Sprintf("guard: %d bytes for an item of %d", len(dst), Size(klen, vlen)))
	}
	end := len(dst) - WordSize
	storeWord(dst[end:], 0)
	var header [HeaderSize]byte
	binary.LittleEndian.PutUint16(header[0:], uint16(klen))
	binary.LittleEndian.PutUint16(header[2:], it.Flags)
	binary.LittleEndian.PutUint32(header[4:], uint32(vlen))
	binary.LittleEndian.PutUint64(header[8:], it.Version)
	binary.LittleEndian.PutUint64(header[16:], it.Expiry)
	fill(dst[:end], header[:], it.Key, it.Value)
	return hash(dst[:end])
}

// Show makes the item at b current for peers. guardian is the result of Build.
func Show(b []byte, guardian uint64) { storeWord(b[len(b)-WordSize:], guardian) }

// Hide ends what Show began: no Read that begins after Hide returns finds the item current.
func Hide(b []byte) { storeWord(b[len(b)-WordSize:], 0) }

// Shown reports whether the item at b is current for peers.
func Shown(b []byte) bool { return binary.LittleEndian.Uint64(b[len(b)-WordSize:]) != 0 }

// Of returns the guardian of the item at b, as Build returned it.
func Of(b []byte) (guardian uint64) { return hash(b[:len(b)-WordSize]) }

// Parse returns the item at b. The caller owns the memory, and Build has filled it. b may be longer than the item.
func Parse(b []byte) Item {
	klen := int(binary.LittleEndian.Uint16(b))
	vlen := int(binary.LittleEndian.Uint32(b[4:]))
	return Item{
		Flags: binary.LittleEndian.Uint16(b[2:]), Version: binary.LittleEndian.Uint64(b[8:]), Expiry: binary.LittleEndian.Uint64(b[16:]),
		Key: b[HeaderSize : HeaderSize+klen : HeaderSize+klen], Value: b[HeaderSize+klen : HeaderSize+klen+vlen : HeaderSize+klen+vlen],
	}
}

// Bytes returns the item's part of b. The caller owns b, which begins with an item.
func Bytes(b []byte) []byte {
	n := Size(int(binary.LittleEndian.Uint16(b)), int(binary.LittleEndian.Uint32(b[4:])))
	return b[:n:n]
}

// SizeOf returns the size of the item at the beginning of b, according to its header. ok is false if b is too short.
// b may hold any bytes.
func SizeOf(b []byte) (n int, ok bool) {
	if len(b) < HeaderSize {
		return 0, false
	}
	klen, vlen := int(binary.LittleEndian.Uint16(b)), int64(binary.LittleEndian.Uint32(b[4:]))
	if vlen > int64(len(b)) {
		return 0, false
	}
	n = Size(klen, int(vlen))
	return n, n <= len(b)
}

// Verify returns the item in b, a copy made by a Read, if the copy proves that it is whole, was current within the
// Read, and has the given key. b has the length that the pointer gave. b may hold any bytes: for a copy without
// proof Verify returns ErrStale, for another key ErrOtherKey.
func Verify(b, key []byte) (Item, error) {
	if len(b) < Size(0, 0) || len(b)%WordSize != 0 {
		return Item{}, ErrStale
	}
	klen, vlen := int(binary.LittleEndian.Uint16(b)), int64(binary.LittleEndian.Uint32(b[4:]))
	if vlen > int64(len(b)) || Size(klen, int(vlen)) != len(b) {
		return Item{}, ErrStale
	}
	end := len(b) - WordSize
	if g := binary.LittleEndian.Uint64(b[end:]); g == 0 || g != hash(b[:end]) {
		return Item{}, ErrStale
	}
	it := Parse(b)
	if string(it.Key) != string(key) {
		return Item{}, ErrOtherKey
	}
	return it, nil
}

// Sum returns the hash of a value that is stored in chunks; see package hydra.
func Sum(value []byte) uint64 { return xxh3.Hash(value) }

// hash is never 0, the guardian of an item that is not current.
func hash(body []byte) uint64 { return max(1, xxh3.Hash(body)) }
