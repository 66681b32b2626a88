//go:build !linux

package btree

// adviseHuge asks for large pages behind b, where the system lets a program ask.
func adviseHuge(b []byte) {}
