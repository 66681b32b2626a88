package shard

import (
	"bytes"

	"flashdbm/servers/circle"
	"flashdbm/servers/guard"
	"flashdbm/servers/hydra/protocol"
)

// A value that is longer than an item may be is stored in chunks, items of their own, which its key's item lists: a
// manifest. Clients write the chunks and then the manifest; see package hydra. The shard's part is this:
//
//   - The end of a manifest, by a write, a remove, expiry or eviction, is followed in the log by the removes of its
//     chunks. So no client finds a manifest whose chunks have been removed, and no crash brings one back: a crash
//     leaves a prefix of the log.
//   - A shard that does not have a key's old item in memory (the table is a cache of the file) lets a PUT replace it
//     unseen. Then the chunks stay, as do the chunks of a client that died before it wrote the manifest:
//     hydra.Client.Sweep finds them.
//
// The alternative is that clients remove the chunks of replaced values. It would leave behind the chunks of values
// that expire, and those of a client that dies in between.

// chunksOf returns the item's manifest, nil if the item is none.
func chunksOf(it *guard.Item) *protocol.Manifest {
	if it.Flags&guard.Manifest == 0 {
		return nil
	}
	m := &protocol.Manifest{}
	if m.Parse(it.Value) != nil { // a client has written an invalid manifest
		return nil
	}
	return m
}

// removeChunks removes the chunks of a manifest that has ended; m may be nil.
func (s *Shard) removeChunks(m *protocol.Manifest, key []byte) {
	if m == nil {
		return
	}
	for i := range m.Chunks() {
		c := circle.Chunk{ID: m.ID, Index: i, Key: key}
		k := c.Append(make([]byte, 0, circle.ChunkHead+len(key)))
		if h := s.hash(k); s.serves(h) == protocol.StatusOK { // otherwise a point of the circle lies between the two hashes, and Sweep finds the chunk
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
