package logstore

import "sync/atomic"

// Mapped is a mapping of the file and what the store knows of its pages: two sets of them, a bit for each, 64 in a word. Page and
// Overridden say what they mean. The slices are the store's own and to be read only, the words by atomic loads; they are good until Close.
type Mapped struct {
	Pages      []byte
	Checked    []atomic.Uint64
	Overridden []atomic.Uint64
}

// Mapped returns the mappings of the file so far, each of 1 << shift pages.
func (s *mapping) Mapped() (mapped []Mapped, shift uint) {
	for _, c := range *s.chunks.Load() {
		b := c.sets()
		mapped = append(mapped, Mapped{c.data, b.checked, b.overridden})
	}
	return mapped, s.chunkShift
}
