package circle

import (
	"encoding/binary"
	"time"
)

// A Chunk names a part of a value that is too long for one item. The chunk has a key of its own, made from these
// fields. Its place on the circle is that of its value's key plus 1 plus the index. So the chunks of a value belong
// to the shard of the value's key, unless a point of the circle lies within those few places; and the shard's log
// keeps a prefix of the writes of a value and its chunks.
type Chunk struct {
	ID    ID     // shared by all chunks of one value
	Index uint32 // from 0
	Key   []byte // the value's key
}

// An ID begins with the time at which it was drawn, in milliseconds since 1970, 6 bytes, big-endian; the other bytes
// are random. IDs are unique.
type ID [16]byte

// Drawn returns the time at which the ID was drawn, by the drawing client's clock.
func (id ID) Drawn() time.Time {
	return time.UnixMilli(int64(binary.BigEndian.Uint64(append([]byte{0, 0}, id[:6]...))))
}

const (
	chunkMagic = "\x00FDBCHNK"
	// ChunkHead is the number of bytes before the value's key in the key of a chunk.
	ChunkHead = len(chunkMagic) + len(ID{}) + 4
)

// Append appends the chunk's key.
func (c *Chunk) Append(b []byte) []byte {
	b = append(b, chunkMagic...)
	b = append(b, c.ID[:]...)
	b = binary.BigEndian.AppendUint32(b, c.Index)
	return append(b, c.Key...)
}

// ParseChunk decodes the key of a chunk; ok is false if it is none. c.Key is a slice of key.
func ParseChunk(key []byte) (c Chunk, ok bool) {
	if len(key) < ChunkHead || string(key[:len(chunkMagic)]) != chunkMagic {
		return c, false
	}
	at := len(chunkMagic)
	at += copy(c.ID[:], key[at:])
	c.Index, c.Key = binary.BigEndian.Uint32(key[at:]), key[ChunkHead:]
	return c, true
}
