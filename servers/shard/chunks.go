package shard

import (
	"bytes"

	"flashdbm/servers/circle"
	"flashdbm/servers/guard"
	"flashdbm/servers/hydra/protocol"
)

// A value that is longer than an item may be lies in chunks, items of their own, which its key's item lists: a manifest. Clients write the
// chunks and then the manifest; see package hydra. The shard knows no more of them than this:
//
//   - Whatever ends a manifest, a write, a remove, its expiry or eviction, is followed in the log by the removes of its chunks. So nobody finds
//     a manifest whose chunks have been removed, and no crash brings one back: what is left of the log is a prefix.
//   - A shard that has forgotten what a key had (the table is a cache of the file) lets a PUT replace it unseen. Then the chunks stay, as those do of
//     a client that died before it wrote the manifest: hydra.Client.Sweep finds them.
//
// The alternative, clients that remove the chunks of what they have replaced, would leave those of a client that dies in between, and of what
// expires.

// chunksOf returns the manifest that the item is, nil if it is none.
func chunksOf(it *guard.Item) *protocol.Manifest {
	if it.Flags&guard.Manifest == 0 {
		return nil
	}
	m := &protocol.Manifest{}
	if m.Parse(it.Value) != nil { // a client has written what is no manifest
		return nil
	}
	return m
}

// removeChunks removes the chunks of a manifest that has come to its end; m may be nil.
func (s *Shard) removeChunks(m *protocol.Manifest, key []byte) {
	if m == nil {
		return
	}
	for i := range m.Chunks() {
		c := circle.Chunk{ID: m.ID, Index: i, Key: key}
		k := c.Append(make([]byte, 0, circle.ChunkHead+len(key)))
		if h := s.hash(k); s.serves(h) == protocol.StatusOK { // else Sweep finds it: a point of the circle lies between the two
			s.appendRemove(h, k, nil)
		}
	}
}

// appendEnd removes a key whose item expires or is evicted.
func (s *Shard) appendEnd(h uint64, it *guard.Item) (seq uint64) {
	large, key := chunksOf(it), bytes.Clone(it.Key)
	seq = s.appendRemove(h, key, nil)
	s.removeChunks(large, key)
	return seq
}
