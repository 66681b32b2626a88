package vfs

// Sparse is a File that knows where its holes are.
type Sparse interface {
	// NextData returns an offset, not below off, before which there is nothing but zeros from off on: where the next data may be, or the
	// end of the file. Space that was reserved and never written need not count as data.
	NextData(off int64) (int64, error)
}

// NextData is that of f, and off itself where f does not know its holes.
func NextData(f File, off int64) (int64, error) {
	if s, ok := f.(Sparse); ok {
		return s.NextData(off)
	}
	return off, nil
}
