package logstore

import (
	"crypto/rand"
	"encoding/binary"
)

// randomSalt draws the salt of a segment. The salt is random so that no value stored by a user can be made to
// look like a page of a later life of the segment. It is never 0.
func randomSalt() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	return binary.LittleEndian.Uint64(b[:]) | 1
}

func randomUUID() (u [16]byte) {
	rand.Read(u[:])
	u[6], u[8] = u[6]&0x0F|0x40, u[8]&0x3F|0x80 // version 4
	return u
}
