package circle

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// MaxShards is the most shards of a map. NoShard is the number of no shard.
const (
	MaxShards = 4096
	NoShard   = 1<<32 - 1
)

// ErrMalformed reports bytes that do not decode, for errors.Is.
var ErrMalformed = errors.New("malformed message")

var le = binary.LittleEndian

// Map says which shards exist, their addresses, and which shard owns each key. Nodes send it to their clients.
type Map struct {
	Version uint32 // in the header of every answer; a higher version replaces a lower one
	Seed    uint64 // of the hash of keys; the cluster chose it at random
	Shards  []Place
	// Moving gives the owners while parts of the circle move; otherwise it is zero, and the shards share the
	// circle.
	Moving Assignment
}

// Circle returns the circle with the present owner of each key.
func (m *Map) Circle() *Circle {
	if m.Moving.Moving() {
		return m.Moving.At(m.Seed)
	}
	a := Assignment{}
	for _, p := range m.Shards {
		a.Shards = append(a.Shards, p.Shard)
	}
	return a.At(m.Seed)
}

// Place is one shard of a map.
type Place struct {
	Shard uint32
	Addrs []string // addresses of its node: "shm:/run/flashdbm/n1.sock", "tcp:10.0.0.1:7400"; any of them works, the best is first
}

const (
	mapHead  = 16
	maxAddrs = 16
	// movingFollows, in the number of shards, says that the assignment follows the places. While nothing moves, maps
	// have the older form, so that clients and nodes of different versions understand each other.
	movingFollows = 1 << 31
)

// AppendBody appends the encoded map.
func (m *Map) AppendBody(b []byte) []byte {
	b = le.AppendUint32(b, m.Version)
	n := uint32(len(m.Shards))
	if m.Moving.Moving() {
		n |= movingFollows
	}
	b = le.AppendUint32(b, n)
	b = le.AppendUint64(b, m.Seed)
	for _, s := range m.Shards {
		b = le.AppendUint32(b, s.Shard)
		b = le.AppendUint16(b, uint16(len(s.Addrs)))
		for _, a := range s.Addrs {
			b = le.AppendUint16(b, uint16(len(a)))
			b = append(b, a...)
		}
	}
	if !m.Moving.Moving() {
		return b
	}
	for _, list := range [][]uint32{m.Moving.Shards, m.Moving.Next} {
		b = le.AppendUint32(b, uint32(len(list)))
		for _, s := range list {
			b = le.AppendUint32(b, s)
		}
	}
	b = le.AppendUint32(b, uint32(len(m.Moving.Moved)))
	for _, p := range m.Moving.Moved {
		b = le.AppendUint32(le.AppendUint32(b, p.From), p.To)
	}
	return b
}

// Parse decodes what AppendBody appends. The map keeps no part of body. Shards have to be in ascending order, each
// once.
func (m *Map) Parse(body []byte) error {
	bad := func(what string) error { return fmt.Errorf("%w: a map of %d bytes: %s", ErrMalformed, len(body), what) }
	if len(body) < mapHead {
		return bad("its head is cut off")
	}
	*m = Map{Version: le.Uint32(body), Seed: le.Uint64(body[8:])}
	n := le.Uint32(body[4:])
	moving := n&movingFollows != 0
	if n &^= movingFollows; n == 0 || n > MaxShards {
		return bad(fmt.Sprintf("%d shards", n))
	}
	b := body[mapHead:]
	for i := range n {
		if len(b) < 6 {
			return bad("a shard is cut off")
		}
		p := Place{Shard: le.Uint32(b)}
		addrs := le.Uint16(b[4:])
		if addrs == 0 || addrs > maxAddrs || p.Shard == NoShard || i > 0 && p.Shard <= m.Shards[i-1].Shard {
			return bad(fmt.Sprintf("shard %d with %d addresses", p.Shard, addrs))
		}
		b = b[6:]
		for range addrs {
			if len(b) < 2 || len(b) < 2+int(le.Uint16(b)) {
				return bad("an address is cut off")
			}
			end := 2 + int(le.Uint16(b))
			p.Addrs = append(p.Addrs, string(b[2:end]))
			b = b[end:]
		}
		m.Shards = append(m.Shards, p)
	}
	if moving {
		var ok bool
		if b, ok = m.parseMoving(b); !ok {
			return bad("what moves")
		}
	}
	if len(b) != 0 {
		return bad("more than its shards")
	}
	return nil
}

// parseMoving decodes the assignment, and returns the bytes after it. Each shard that may own a key has to have a
// place.
func (m *Map) parseMoving(b []byte) (rest []byte, ok bool) {
	word := func() (w uint32) {
		if ok = len(b) >= 4; ok {
			w, b = le.Uint32(b), b[4:]
		}
		return w
	}
	placed := func(shard uint32) bool {
		return slices.ContainsFunc(m.Shards, func(p Place) bool { return p.Shard == shard })
	}
	list := func() (list []uint32) {
		n := word()
		if ok = ok && 0 < n && n <= MaxShards; !ok {
			return nil
		}
		for i := range n {
			s := word()
			if !ok || i > 0 && s <= list[i-1] {
				ok = false
				return nil
			}
			list = append(list, s)
		}
		return list
	}
	if m.Moving.Shards = list(); !ok || slices.ContainsFunc(m.Moving.Shards, func(s uint32) bool { return !placed(s) }) {
		return nil, false
	}
	if m.Moving.Next = list(); !ok {
		return nil, false
	}
	n := word()
	if !ok || uint64(len(b)) < 8*uint64(n) {
		return nil, false
	}
	for range n {
		p := Pair{From: word(), To: word()}
		if !placed(p.To) || !slices.Contains(m.Moving.Next, p.To) {
			return nil, false
		}
		m.Moving.Moved = append(m.Moving.Moved, p)
	}
	return b, true
}
