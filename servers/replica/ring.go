package replica

import (
	"fmt"

	"github.com/zeebo/xxh3"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/words"
)

// A ring is the secondary's end of a log: memory that the primary may Write at any time.
type ring struct {
	region  fabric.Region
	mem     []byte
	next    uint64 // the expected entry
	pos     uint64 // its position
	end     uint64 // the end of the frame that peek has found
	scratch []byte
}

func newRing(d Allocator, size int) (*ring, error) {
	r, err := d.Alloc(size, fabric.RemoteWrite)
	if err != nil {
		return nil, fmt.Errorf("replica: memory of the ring: %w", err)
	}
	return &ring{region: r, mem: r.Bytes()}, nil
}

// peek returns the next entry if it is whole. The body is valid until the next call. peek returns the same entry
// until advance.
func (r *ring) peek() (term uint64, body []byte, ok bool) {
	lap := uint64(len(r.mem))
	for {
		at := r.pos % lap
		rest := lap - at
		if rest < minFrame {
			r.pos += rest
			continue
		}
		if words.LoadLE(r.mem, int(at)+8) != r.next {
			return 0, nil, false
		}
		size := uint32(words.LoadLE(r.mem, int(at)))
		n := uint64(minFrame)
		if size != skipSize {
			if uint64(size) > lap {
				return 0, nil, false
			}
			n = frameSize(int(size))
		}
		if n > rest {
			return 0, nil, false
		}
		if uint64(cap(r.scratch)) < n {
			r.scratch = make([]byte, n)
		}
		b := r.scratch[:n]
		words.Read(b, r.mem[at:at+n]) // from here on only the copy counts
		end := n - frameTail
		if le.Uint32(b) != size || le.Uint64(b[8:]) != r.next || le.Uint64(b[end:]) != xxh3.HashSeed(b[:end], r.next) {
			return 0, nil, false
		}
		if size == skipSize {
			r.pos += rest
			continue
		}
		r.end = r.pos + n
		return le.Uint64(b[16:]), b[frameHead : frameHead+size], true
	}
}

// advance consumes the entry that peek has found.
func (r *ring) advance() { r.pos, r.next = r.end, r.next+1 }
