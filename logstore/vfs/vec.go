package vfs

import "slices"

// vecLen returns the bytes in all buffers together.
func vecLen(bufs [][]byte) int64 {
	var n int64
	for _, b := range bufs {
		n += int64(len(b))
	}
	return n
}

// joinVec returns the buffers as one, copied if there is more than one.
func joinVec(bufs [][]byte) []byte {
	if len(bufs) == 1 {
		return bufs[0]
	}
	return slices.Concat(bufs...)
}
