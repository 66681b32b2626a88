package vfs

// Sparse is a File that knows where its holes are.
type Sparse interface {
	// NextData returns an offset, not below off, such that all bytes from off up to it are zero: where the next
	// data may be, or the end of the file. Space that was reserved and never written need not count as data.
	NextData(off int64) (int64, error)
}

// NextData calls f's NextData. It returns off if f is not Sparse.
func NextData(f File, off int64) (int64, error) {
	if s, ok := f.(Sparse); ok {
		return s.NextData(off)
	}
	return off, nil
}
