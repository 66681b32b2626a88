package writeset

const (
	minChunkBytes = 512
	maxChunkBytes = 256 << 10

	// MaxShared is how long a slice may be that shares a chunk with others. Longer ones get a chunk of their own, so that at most a quarter
	// of a chunk is left unused.
	MaxShared = maxChunkBytes / 4

	// keepArenaBytes is the most that Reset keeps.
	keepArenaBytes = 256 << 10
)

// Arena keeps copies of byte slices. They never move or change: a copy is valid until Reset uses its memory again, and for as long as
// somebody holds it if the arena is dropped instead. Only one goroutine at a time adds; others may read meanwhile what was added before.
type Arena struct {
	// chunks hold the copies. Short ones are cut from chunks[filling]; from one to the next those double in size. The first kept chunks are
	// from before the last Reset, the ones after filling still empty.
	chunks  [][]byte
	filling int
	kept    int

	held int64 // bytes of all chunks
}

// place says where in an arena a copy begins: chunk << 32 | offset.
type place uint64

// Copy returns a copy of b, capped so that to append to it copies it.
func (a *Arena) Copy(b []byte) []byte { return a.at(a.add(b), uint32(len(b))) }

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

// addBoth copies b and c, c behind b as a rule.
func (a *Arena) addBoth(b, c []byte) (place, place) {
	if len(a.chunks) == 0 {
		return a.add(b), a.add(c)
	}
	chunk := a.chunks[a.filling]
	if n := len(b) + len(c); n > MaxShared || n > cap(chunk)-len(chunk) {
		return a.add(b), a.add(c)
	}
	at := place(a.filling)<<32 | place(len(chunk))
	a.chunks[a.filling] = append(append(chunk, b...), c...)
	return at, at + place(len(b))
}

// Reserve returns what the chunk has that is being filled, with room for need bytes behind it. What was appended there is a copy once
// Fill is told.
func (a *Arena) Reserve(need int) []byte {
	if len(a.chunks) == 0 || cap(a.chunks[a.filling])-len(a.chunks[a.filling]) < need {
		a.turn(need)
	}
	return a.chunks[a.filling]
}

func (a *Arena) Fill(chunk []byte) { a.chunks[a.filling] = chunk }

// turn makes filling a chunk with room for need bytes.
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
	for size < need {
		size *= 2
	}
	a.addChunk(min(size, maxChunkBytes))
	a.filling = len(a.chunks) - 1
}

func (a *Arena) addChunk(size int) {
	a.chunks = append(a.chunks, make([]byte, 0, size))
	a.held += int64(size)
}

// at returns the n bytes at p, capped so that to append to them copies them.
func (a *Arena) at(p place, n uint32) []byte {
	if n == 0 {
		return []byte{}
	}
	from := uint64(uint32(p))
	return a.chunks[p>>32][from : from+uint64(n) : from+uint64(n)]
}

// drop gives a copy up that has a chunk of its own, and reports whether it has. Its memory is left to the collector: whoever holds a slice
// of it keeps it.
func (a *Arena) drop(p place, n uint32) bool {
	if n <= MaxShared {
		return false
	}
	chunk := &a.chunks[p>>32]
	a.held -= int64(cap(*chunk))
	*chunk = nil
	return true
}

// Reset forgets all copies. What memory there is it uses again, or drops if it is much.
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
