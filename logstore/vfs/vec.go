package vfs

import "slices"

// vecLen returns the sum of the lengths of all buffers.
func vecLen(bufs [][]byte) int64 {
	var n int64
	for _, b := range bufs {
		n += int64(len(b))
	}
	return n
}

// skipVec removes the first n bytes of the buffers, none of which is empty, and returns the rest. It changes
// the slice of buffers in place.
func skipVec(bufs [][]byte, n int) [][]byte {
	for n > 0 && n >= len(bufs[0]) {
		n -= len(bufs[0])
		bufs = bufs[1:]
	}
	if n > 0 {
		bufs[0] = bufs[0][n:]
	}
	return bufs
}

// joinVec returns the buffers as one. It copies them if there is more than one.
func joinVec(bufs [][]byte) []byte {
	if len(bufs) == 1 {
		return bufs[0]
	}
	return slices.Concat(bufs...)
}
