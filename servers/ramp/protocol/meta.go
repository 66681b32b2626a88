package protocol

import (
	"fmt"
	"slices"
)

// Kind says how an item describes the other keys of its transaction. The writer chooses it, by the algorithm that
// readers use.
type Kind uint8

// The kinds.
const (
	KindNone   Kind = 0 // RAMP-Small: nothing
	KindHashes Kind = 1 // RAMP-Fast: the hashes of all keys of the transaction, in ascending order
	KindBloom  Kind = 2 // RAMP-Hybrid: a Bloom filter of these hashes
)

// The Bloom filter has 256 bits, of which a hash sets four. With 4 keys in a transaction, one other key in 17,000 is
// found in the filter; with 32 keys, one in 41. A false positive costs the reader a message.
const (
	BloomSize  = 32 // bytes
	bloomProbe = 4
)

// Meta is an item's description of its transaction.
type Meta struct {
	Kind   Kind
	Client uint64 // the writer: with the timestamp, it identifies the transaction
	Data   []byte // hashes of eight bytes each, or the filter
}

// MakeMeta returns the Meta of a kind for a client's transaction and the hashes of all its keys, which are in
// ascending order.
func MakeMeta(k Kind, client uint64, hashes []uint64) Meta {
	m := Meta{Kind: k, Client: client}
	switch k {
	case KindHashes:
		m.Data = make([]byte, 0, 8*len(hashes))
		for _, h := range hashes {
			m.Data = le.AppendUint64(m.Data, h)
		}
	case KindBloom:
		m.Data = make([]byte, BloomSize)
		for _, h := range hashes {
			for i := range bloomProbe {
				b := bloomBit(h, i)
				m.Data[b/8] |= 1 << (b % 8)
			}
		}
	}
	return m
}

func bloomBit(h uint64, i int) uint8 { return uint8(h >> (8 * i)) }

// Has reports whether the transaction may have written the key with that hash: KindHashes is exact, KindBloom may
// return a false true, KindNone returns false.
func (m *Meta) Has(h uint64) bool {
	switch m.Kind {
	case KindHashes:
		n := len(m.Data) / 8
		lo, hi := 0, n
		for lo < hi {
			if mid := (lo + hi) / 2; le.Uint64(m.Data[8*mid:]) < h {
				lo = mid + 1
			} else {
				hi = mid
			}
		}
		return lo < n && le.Uint64(m.Data[8*lo:]) == h
	case KindBloom:
		for i := range bloomProbe {
			if b := bloomBit(h, i); m.Data[b/8]>>(b%8)&1 == 0 {
				return false
			}
		}
		return true
	}
	return false
}

// Size returns the number of bytes that AppendContent appends for a value of vlen bytes.
func (m *Meta) Size(vlen int) int { return contentHead + len(m.Data) + vlen }

// contentHead is the size of the fixed part of an item's content.
const contentHead = 16

// AppendContent appends the value of an item of package guard: the description of the transaction's keys, and the
// user's value.
func (m *Meta) AppendContent(b, value []byte) []byte {
	b = append(b, byte(m.Kind), 0)
	b = le.AppendUint16(b, uint16(len(m.Data)/8))
	b = le.AppendUint32(b, uint32(len(value)))
	b = le.AppendUint64(b, m.Client)
	b = append(b, m.Data...)
	return append(b, value...)
}

// ParseContent decodes the content of an item. The results are parts of it.
func ParseContent(b []byte) (m Meta, value []byte, err error) {
	if len(b) < contentHead {
		return m, nil, fmt.Errorf("%w: an item's content of %d bytes", ErrMalformed, len(b))
	}
	n, vlen := 8*int(le.Uint16(b[2:])), int64(le.Uint32(b[4:]))
	m.Kind, m.Client = Kind(b[0]), le.Uint64(b[8:])
	if int64(len(b)) != contentHead+int64(n)+vlen || !m.Kind.fits(n) {
		return m, nil, fmt.Errorf("%w: an item's content of %d bytes, kind %d with %d bytes, value of %d", ErrMalformed, len(b), m.Kind, n, vlen)
	}
	end := contentHead + n
	m.Data = b[contentHead:end:end]
	return m, b[end:], nil
}

// AppendWithoutValue appends a content with its value removed.
func AppendWithoutValue(b, content []byte) []byte {
	m, _, err := ParseContent(content)
	if err != nil {
		return b
	}
	return m.AppendContent(b, nil)
}

func (k Kind) fits(n int) bool {
	switch k {
	case KindNone:
		return n == 0
	case KindHashes:
		return n > 0 && n <= 8*MaxKeys
	case KindBloom:
		return n == BloomSize
	}
	return false
}

// SortHashes sorts the hashes of a transaction's keys and removes duplicates.
func SortHashes(h []uint64) []uint64 {
	slices.Sort(h)
	return slices.Compact(h)
}
