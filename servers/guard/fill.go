//go:build !race

package guard

// fill writes the parts, one behind the other, and zeros up to the end of dst. Peers may Read dst meanwhile and find any mixture; the
// guardian, which is 0, tells them so.
func fill(dst []byte, parts ...[]byte) {
	for _, p := range parts {
		dst = dst[copy(dst, p):]
	}
	clear(dst)
}
