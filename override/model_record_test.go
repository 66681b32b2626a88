package override

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// recordMaker knows the keys of a model, in order, and the value of each version of a key. Neighbours have long
// common prefixes, so separators are long and few records make a high tree.
type recordMaker struct {
	keys   [][]byte
	style  int // style of the values
	fixed  func(key int, version uint32) (btree.ValueKind, int)
	maxRun int64  // bytes
	grows  bool   // few records are deleted, and all values are in the tree: leaves are split and nothing else happens
	value  []byte // scratch
}

func newRecordMaker(r *rand.Rand) recordMaker {
	rm := recordMaker{style: r.IntN(3)}
	n := []int{12, 40, 90, 160}[r.IntN(4)]
	clusters, longKeys := r.IntN(3) > 0, r.IntN(3) == 0
	if rm.grows = r.IntN(4) == 0; rm.grows {
		n, clusters, longKeys = 300, true, false
		rm.fixed = func(_ int, version uint32) (btree.ValueKind, int) { return btree.Inline, 8 + int(version%3)*150 }
	}
	for i := 0; len(rm.keys) < n; i++ {
		key := fmt.Appendf(nil, "%05d", i)
		if !clusters {
			rm.keys = append(rm.keys, key)
			continue
		}
		fill := 300 + r.IntN(400)
		if longKeys && r.IntN(6) == 0 {
			fill = btree.MaxInlineKey + r.IntN(200)
		}
		for len(key) < fill {
			key = append(key, byte('a'+i%26))
		}
		for j := range 1 + r.IntN(3) {
			rm.keys = append(rm.keys, fmt.Appendf(bytes.Clone(key), "%d", j))
		}
	}
	return rm
}

func mix(xs ...uint64) uint64 {
	h := uint64(0x9E3779B97F4A7C15)
	for _, x := range xs {
		h = (h ^ x) * 0xBF58476D1CE4E5B9
		h ^= h >> 29
	}
	return h
}

// form returns the length of the value of a key's version, and where the value belongs.
func (rm *recordMaker) form(key int, version uint32) (kind btree.ValueKind, n int) {
	if rm.fixed != nil {
		return rm.fixed(key, version)
	}
	h := mix(uint64(key), uint64(version), 1)
	k := len(rm.keys[key])
	switch x := h % 32; {
	case x == 0:
		return btree.Extents, 1 + int(h>>8)%(9*logstore.PageSize)
	case x < 4 || k > btree.MaxInlineKey:
		return btree.Run, int(h>>8) % int(rm.maxRun-int64(k))
	}
	n = btree.MaxInline - k
	switch rm.style {
	case 0:
		n /= 8
	case 1:
		return btree.Inline, n - int(h>>8)%(n/4)
	}
	return btree.Inline, int(h>>8) % n
}

// valueOf returns the value of a key's version. The slice is valid until the next call.
func (rm *recordMaker) valueOf(key int, version uint32) []byte {
	_, n := rm.form(key, version)
	if n > len(rm.value) {
		rm.value = make([]byte, n)
	}
	v := rm.value[:n]
	var seed [8]byte
	binary.LittleEndian.PutUint64(seed[:], mix(uint64(key), uint64(version), 2))
	for at := copy(v, seed[:]); at < n; at *= 2 {
		copy(v[at:], v[:at])
	}
	return v
}

// refKeyLen returns how many bytes of the key its run holds.
func (rm *recordMaker) refKeyLen(key int) uint32 {
	if n := len(rm.keys[key]); n > btree.MaxInlineKey {
		return uint32(n)
	}
	return 0
}
