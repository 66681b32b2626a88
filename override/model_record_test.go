package override

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// recordMaker knows the keys of a model, in order, and what value each version of a key has. Long common prefixes of neighbours make
// long separators, so that few records make a high tree.
type recordMaker struct {
	keys   [][]byte
	style  int    // of values
	maxRun int64  // bytes
	value  []byte // scratch
}

func newRecordMaker(r *rand.Rand) recordMaker {
	rm := recordMaker{style: r.IntN(3)}
	n := []int{12, 40, 90, 160}[r.IntN(4)]
	clusters, longKeys := r.IntN(3) > 0, r.IntN(3) == 0
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

// form tells how long the value of a key's version is and where it belongs.
func (rm *recordMaker) form(key int, version uint32) (kind btree.ValueKind, n int) {
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

// valueOf returns the value of a key's version, until the next call.
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

// checkCell compares a record in a leaf with a key's version.
func (m *model) checkCell(s Snapshot, c btree.Cell, key int, version uint32) error {
	want := m.records.keys[key]
	got, err := c.WholeKey(&s)
	if err != nil {
		return fmt.Errorf("key %d: %w", key, err)
	}
	if !bytes.Equal(got, want) {
		return modelErr("key %.8q where %.8q belongs", got, want)
	}
	value := c.Value()
	switch c.Kind() {
	case btree.Run:
		value, err = s.Run(c.Ref())
	case btree.Extents:
		value, err = m.assemble(s, c.Ref())
	}
	if err != nil {
		return fmt.Errorf("key %d: %w", key, err)
	}
	if kind, _ := m.records.form(key, version); kind != c.Kind() || !bytes.Equal(value, m.records.valueOf(key, version)) {
		return modelErr("key %d does not have the value of version %d", key, version)
	}
	return nil
}

func (m *model) assemble(s Snapshot, ref btree.Ref) (value []byte, err error) {
	extents, err := s.Extents(ref)
	if err != nil {
		return nil, err
	}
	for _, x := range extents {
		b, err := m.s.Raw(x)
		if err != nil {
			return nil, err
		}
		value = append(value, b...)
	}
	return value, nil
}

// readAll compares the tree at a snapshot with a state.
func (m *model) readAll(s Snapshot, st modelState) error {
	var c btree.Cursor
	c.Reset(&s, Root)
	for key, version := range st {
		if version == 0 {
			continue
		}
		if !c.Next() {
			if err := c.Err(); err != nil {
				return err
			}
			return modelErr("key %d is not there at Seq %d", key, s.Seq())
		}
		if err := m.checkCell(s, c.Cell(), key, version); err != nil {
			return fmt.Errorf("at Seq %d: %w", s.Seq(), err)
		}
	}
	if c.Next() {
		return modelErr("a record too many at Seq %d: %.8q", s.Seq(), c.Key())
	}
	return c.Err()
}

func (m *model) verifyNewest() error {
	seq := m.appliedSeq.Load()
	return m.readAll(m.p.At(seq), m.state(seq))
}
