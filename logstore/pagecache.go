package logstore

import "sync"

// pageCache keeps checked copies of pages and short value runs. A copy is found by its address and the salt of
// its segment's life, so a copy cannot become stale within one lineage of the log, and a store is of one
// lineage. Evicting a copy does not affect a reader that holds it.
type pageCache struct {
	shards [cacheShards]cacheShard
	limit  int64 // limit of the bytes in a shard
}

const cacheShards = 16

type cacheShard struct {
	mu    sync.Mutex // guards the other fields; a leaf lock
	pages map[cacheKey][]byte
	bytes int64
}

type cacheKey struct {
	addr Addr
	salt uint64
}

func (c *pageCache) shard(a Addr) *cacheShard { return &c.shards[a%cacheShards] }

func (c *pageCache) get(a Addr, salt uint64) []byte {
	s := c.shard(a)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pages[cacheKey{a, salt}]
}

// put keeps a copy and evicts others if the shard would exceed its limit.
func (c *pageCache) put(a Addr, salt uint64, p []byte) {
	s := c.shard(a)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pages == nil {
		s.pages = map[cacheKey][]byte{}
	}
	for k, old := range s.pages { // arbitrary order
		if s.bytes+int64(len(p)) <= c.limit {
			break
		}
		s.bytes -= int64(len(old))
		delete(s.pages, k)
	}
	if old, ok := s.pages[cacheKey{a, salt}]; ok {
		s.bytes -= int64(len(old))
	}
	s.pages[cacheKey{a, salt}] = p
	s.bytes += int64(len(p))
}
