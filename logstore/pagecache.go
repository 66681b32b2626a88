package logstore

import "sync"

// pageCache keeps checked copies of pages and short value runs. A copy is found by its address and the salt of its segment's life, so it
// never goes stale in one lineage of the log, and a store has one; who holds one keeps it, the cache merely forgets.
type pageCache struct {
	shards [cacheShards]cacheShard
	limit  int64 // bytes of a shard
}

const cacheShards = 16

type cacheShard struct {
	mu    sync.Mutex // guards the rest; nothing else is locked under it
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

// put keeps a copy, at the cost of others when there are too many.
func (c *pageCache) put(a Addr, salt uint64, p []byte) {
	s := c.shard(a)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pages == nil {
		s.pages = map[cacheKey][]byte{}
	}
	for k, old := range s.pages { // in no order
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
