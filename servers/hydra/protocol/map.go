package protocol

import "fmt"

// Map says which shards there are, and where. It is the answer to a MAP.
type Map struct {
	Version uint32 // stands in the header of every answer; a higher one replaces a lower one
	Seed    uint64 // of the hash of keys, drawn at random by the cluster
	Shards  []Place
}

// Place is one shard of a map.
type Place struct {
	Shard uint32
	Addrs []string // of its node: "shm:/run/flashdbm/n1.sock", "tcp:10.0.0.1:7400"; any of them, the best first
}

const (
	mapHead  = 16
	maxAddrs = 16
)

// AppendBody appends the answer's body.
func (m *Map) AppendBody(b []byte) []byte {
	b = le.AppendUint32(b, m.Version)
	b = le.AppendUint32(b, uint32(len(m.Shards)))
	b = le.AppendUint64(b, m.Seed)
	for _, s := range m.Shards {
		b = le.AppendUint32(b, s.Shard)
		b = le.AppendUint16(b, uint16(len(s.Addrs)))
		for _, a := range s.Addrs {
			b = le.AppendUint16(b, uint16(len(a)))
			b = append(b, a...)
		}
	}
	return b
}

// Parse decodes the body. The map has no part of it. Shards are in rising order, each once.
func (m *Map) Parse(body []byte) error {
	bad := func(what string) error { return fmt.Errorf("%w: a map of %d bytes: %s", ErrMalformed, len(body), what) }
	if len(body) < mapHead {
		return bad("its head is cut off")
	}
	*m = Map{Version: le.Uint32(body), Seed: le.Uint64(body[8:])}
	n := le.Uint32(body[4:])
	if n == 0 || n > MaxShards {
		return bad(fmt.Sprintf("%d shards", n))
	}
	b := body[mapHead:]
	for i := range n {
		if len(b) < 6 {
			return bad("a shard is cut off")
		}
		p := Place{Shard: le.Uint32(b)}
		addrs := le.Uint16(b[4:])
		if addrs == 0 || addrs > maxAddrs || p.Shard == AnyShard || i > 0 && p.Shard <= m.Shards[i-1].Shard {
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
	if len(b) != 0 {
		return bad("more than its shards")
	}
	return nil
}
