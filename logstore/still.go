package logstore

import "sync/atomic"

// Mapped is one mapping of the file with two bits per page, 64 to a word. Checked and Overridden are the bits
// that chunk describes. The slices belong to the store: the caller only reads them, the words by atomic loads,
// until Close.
type Mapped struct {
	Pages      []byte
	Checked    []atomic.Uint64
	Overridden []atomic.Uint64
}

// Mapped returns the present mappings of the file, each of 1 << shift pages.
func (s *mapping) Mapped() (mapped []Mapped, shift uint) {
	for _, c := range *s.chunks.Load() {
		b := c.sets()
		mapped = append(mapped, Mapped{c.data, b.checked, b.overridden})
	}
	return mapped, s.chunkShift
}
