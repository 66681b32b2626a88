package protocol

import (
	"fmt"

	"flashdbm/servers/circle"
)

// A Manifest replaces a value longer than MaxValue: the value is the content of the chunks with its ID, MaxValue
// bytes each except the last.
type Manifest struct {
	ID   circle.ID
	Size uint64 // bytes of the value
	Hash uint64 // XXH3-64 of the value
}

const manifestSize = 32

// Append appends the manifest.
func (m *Manifest) Append(b []byte) []byte {
	b = append(b, m.ID[:]...)
	b = le.AppendUint64(b, m.Size)
	return le.AppendUint64(b, m.Hash)
}

// Parse decodes the manifest.
func (m *Manifest) Parse(b []byte) error {
	if len(b) != manifestSize {
		return fmt.Errorf("%w: a manifest of %d bytes", ErrMalformed, len(b))
	}
	*m = Manifest{ID: circle.ID(b[:16]), Size: le.Uint64(b[16:]), Hash: le.Uint64(b[24:])}
	if m.Size <= MaxValue || m.Size > MaxLarge {
		return fmt.Errorf("%w: a manifest of a value of %d bytes", ErrMalformed, m.Size)
	}
	return nil
}

// Chunks returns the number of chunks of the value.
func (m *Manifest) Chunks() uint32 { return uint32((m.Size + MaxValue - 1) / MaxValue) }

// ChunkSize returns the size of a chunk in bytes.
func (m *Manifest) ChunkSize(index uint32) int {
	return int(min(m.Size-uint64(index)*MaxValue, MaxValue))
}
