package circle

import (
	"encoding/binary"
	"time"
)

// A Chunk names a part of a value that is too long for one item. Its own key is made of that, and its place on the circle is the one behind
// its value's key, by its index. So the chunks of a value belong to the shard of the value's key, unless a point of the circle lies within
// those few places, and what a shard's log keeps of a value and its chunks is a prefix of their writes.
type Chunk struct {
	ID    ID     // of all chunks of one value
	Index uint32 // from 0
	Key   []byte // the value's
}

// An ID begins with when it was drawn, in milliseconds since 1970, 6 bytes, big-endian; the rest is random. No two are the same.
type ID [16]byte

// Drawn returns when the ID was drawn, by the clock of who has drawn it.
func (id ID) Drawn() time.Time {
	return time.UnixMilli(int64(binary.BigEndian.Uint64(append([]byte{0, 0}, id[:6]...))))
}

const (
	chunkMagic = "\x00FDBCHNK"
	// ChunkHead is how many bytes the key of a chunk has before the key of its value.
	ChunkHead = len(chunkMagic) + len(ID{}) + 4
)

// Append appends the chunk's key.
func (c *Chunk) Append(b []byte) []byte {
	b = append(b, chunkMagic...)
	b = append(b, c.ID[:]...)
	b = binary.BigEndian.AppendUint32(b, c.Index)
	return append(b, c.Key...)
}

// ParseChunk returns what the key of a chunk says; ok is false if it is no such key. Key is a slice of it.
func ParseChunk(key []byte) (c Chunk, ok bool) {
	if len(key) < ChunkHead || string(key[:len(chunkMagic)]) != chunkMagic {
		return c, false
	}
	at := len(chunkMagic)
	at += copy(c.ID[:], key[at:])
	c.Index, c.Key = binary.BigEndian.Uint32(key[at:]), key[ChunkHead:]
	return c, true
}
