package writeset

const (
	minChunkBytes = 512
	maxChunkBytes = 256 << 10

	// MaxShared is the longest slice, in bytes, that shares a chunk with others. A longer one gets a chunk of its
	// own, so at most a quarter of a chunk stays unused.
	MaxShared = maxChunkBytes / 4

	// keepArenaBytes is the most memory that Reset keeps.
	keepArenaBytes = 256 << 10
)

// Arena keeps copies of byte slices. A copy never moves or changes. It is valid until Reset reuses its memory; if
// the arena is dropped instead, a copy is valid for as long as it is referenced. Only one goroutine at a time
// may add copies; others may at the same time read copies added before.
type Arena struct {
	// chunks hold the copies. Short copies are cut from chunks[filling]; each new chunk for them is at least twice as
	// large as the last. The first kept chunks are from before the last Reset; of these, the chunks after
	// chunks[filling] are still empty.
	chunks  [][]byte
	filling int
	kept    int

	held int64 // bytes of all chunks
}

// place is where a copy begins in an arena: chunk << 32 | offset.
type place uint64

// Copy returns a copy of b. Its capacity is its length, so that append makes another copy.
func (a *Arena) Copy(b []byte) []byte { return a.at(a.add(b), uint32(len(b))) }

// CopyBoth returns copies of b and c, side by side if a chunk has room for both.
func (a *Arena) CopyBoth(b, c []byte) (copyOfB, copyOfC []byte) {
	p, q := a.addBoth(b, c)
	return a.at(p, uint32(len(b))), a.at(q, uint32(len(c)))
}

// add copies b.
func (a *Arena) add(b []byte) place {
	if len(b) == 0 {
		return 0
	}
	if len(b) > MaxShared {
		a.addChunk(len(b))
		last := len(a.chunks) - 1
		a.chunks[last] = append(a.chunks[last], b...)
		return place(last) << 32
	}
	if len(a.chunks) == 0 || cap(a.chunks[a.filling])-len(a.chunks[a.filling]) < len(b) {
		a.turn(len(b))
	}
	chunk := a.chunks[a.filling]
	a.chunks[a.filling] = append(chunk, b...)
	return place(a.filling)<<32 | place(len(chunk))
}

// addBoth copies b and c; c lies after b if there is room in the chunk.
func (a *Arena) addBoth(b, c []byte) (place, place) {
	n := len(b) + len(c)
	if n == 0 || n > MaxShared {
		return a.add(b), a.add(c)
	}
	if len(a.chunks) == 0 {
		a.turn(n)
	}
	chunk := a.chunks[a.filling]
	if n > cap(chunk)-len(chunk) {
		return a.add(b), a.add(c)
	}
	at := place(a.filling)<<32 | place(len(chunk))
	a.chunks[a.filling] = append(append(chunk, b...), c...)
	return at, at + place(len(b))
}

// Reserve returns the place of the current chunk, which has a capacity for at least need more bytes. The caller may
// append as many; they count as copies.
func (a *Arena) Reserve(need int) *[]byte {
	if a.filling < len(a.chunks) {
		if chunk := &a.chunks[a.filling]; cap(*chunk)-len(*chunk) >= need {
			return chunk
		}
	}
	a.turn(need)
	return &a.chunks[a.filling]
}

// turn makes a chunk with room for need bytes the current chunk.
func (a *Arena) turn(need int) {
	for a.filling+1 < a.kept {
		a.filling++
		if cap(a.chunks[a.filling]) >= need {
			return
		}
	}
	size := minChunkBytes
	if len(a.chunks) > 0 {
		size = max(size, 2*cap(a.chunks[a.filling]))
	}
	a.addChunk(min(max(size, need), maxChunkBytes))
	a.filling = len(a.chunks) - 1
}

func (a *Arena) addChunk(size int) {
	a.chunks = append(a.chunks, make([]byte, 0, size))
	a.held += int64(size)
}

// at returns the n bytes at p. Their capacity is their length, so that append makes a copy.
func (a *Arena) at(p place, n uint32) []byte {
	if n == 0 {
		return []byte{}
	}
	from := uint64(uint32(p))
	return a.chunks[p>>32][from : from+uint64(n) : from+uint64(n)]
}

// drop gives up a copy that has a chunk of its own, and reports whether it has one. The memory is left to the
// garbage collector, so slices of it stay valid.
func (a *Arena) drop(p place, n uint32) bool {
	if n <= MaxShared {
		return false
	}
	chunk := &a.chunks[p>>32]
	a.held -= int64(cap(*chunk))
	*chunk = nil
	return true
}

// Reset forgets all copies. It keeps the memory for reuse, or drops it if it is more than keepArenaBytes.
func (a *Arena) Reset() {
	if a.held > keepArenaBytes {
		*a = Arena{}
		return
	}
	for i := range a.chunks {
		a.chunks[i] = a.chunks[i][:0]
	}
	a.filling, a.kept = 0, len(a.chunks)
}
