//go:build race

package guard

import "encoding/binary"

// fill does the same word by word, as the peer's side of fabric/mem loads the words, so that the race detector does
// not report these intended races.
func fill(dst []byte, parts ...[]byte) {
	var all []byte
	for _, p := range parts {
		all = append(all, p...)
	}
	all = append(all, make([]byte, len(dst)-len(all))...)
	for i := 0; i < len(dst); i += WordSize {
		storeWord(dst[i:], binary.NativeEndian.Uint64(all[i:]))
	}
}
