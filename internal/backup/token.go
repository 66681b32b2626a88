package backup

import (
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"
)

// A Token names a moment of a database by a group of the log: a backup with this token contains the effect of
// all groups up to that one. The zero Token names no moment.
type Token struct {
	Source [16]byte // UUID of the database
	Group  uint64
}

const tokenSize = 16 + 8

func (t Token) put(b []byte) {
	copy(b, t.Source[:])
	binary.LittleEndian.PutUint64(b[16:], t.Group)
}

func getToken(b []byte) (t Token) {
	copy(t.Source[:], b)
	t.Group = binary.LittleEndian.Uint64(b[16:])
	return t
}

var tokenText = base32.StdEncoding.WithPadding(base32.NoPadding)

// String returns the token, with a checksum, as lower-case letters and digits.
func (t Token) String() string {
	b := make([]byte, tokenSize)
	t.put(b)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	return strings.ToLower(tokenText.EncodeToString(b))
}

// ParseToken parses a result of String.
func ParseToken(text string) (Token, error) {
	b, err := tokenText.DecodeString(strings.ToUpper(strings.TrimSpace(text)))
	if err != nil || len(b) != tokenSize+4 || crc32.Checksum(b[:tokenSize], castagnoli) != binary.LittleEndian.Uint32(b[tokenSize:]) {
		return Token{}, fmt.Errorf("flashdbm: %q is not the token of a backup", text)
	}
	return getToken(b), nil
}
