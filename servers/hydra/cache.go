package hydra

import (
	"sync/atomic"

	"flashdbm/servers/hydra/protocol"
)

// pointers is the cache of pointers: a table in which each place holds one pointer or none. It is only a hint,
// because every copy obtained by a pointer proves itself. So a hash has only two places, and a new pointer replaces
// the one that ends earlier. Only the engine puts pointers; any goroutine gets and drops them.
type pointers struct {
	places []atomic.Pointer[pointer]
	mask   uint64
}

// A pointer is immutable, except for its counters.
type pointer struct {
	hash    uint64
	key     []byte
	version uint64
	at      protocol.Pointer
	shard   *shard
	extent  *extent       // in which the item lies
	begin   int64         // start of the lease, by the client's clock
	end     int64         // end of the lease
	wall    uint64        // number of suspensions before the lease was requested
	uses    atomic.Uint32 // since begin, at most renewUses
	renewed atomic.Bool   // in the list of pointers to renew
}

// newPointers returns a cache of at least n places.
func newPointers(n int) *pointers {
	size := 2
	for size < n {
		size *= 2
	}
	return &pointers{places: make([]atomic.Pointer[pointer], size), mask: uint64(size - 1)}
}

// set returns the two places of a hash, which are neighbours.
func (c *pointers) set(hash uint64) (a, b *atomic.Pointer[pointer]) {
	i := hash & c.mask
	return &c.places[i], &c.places[i^1]
}

func (c *pointers) get(hash uint64) *pointer {
	a, b := c.set(hash)
	if p := a.Load(); p != nil && p.hash == hash {
		return p
	}
	if p := b.Load(); p != nil && p.hash == hash {
		return p
	}
	return nil
}

// clear removes all pointers.
func (c *pointers) clear() {
	for i := range c.places {
		c.places[i].Store(nil)
	}
}

// put adds a pointer.
func (c *pointers) put(p *pointer) {
	a, b := c.set(p.hash)
	x, y := a.Load(), b.Load()
	switch {
	case x == nil || x.hash == p.hash:
		a.Store(p)
	case y == nil || y.hash == p.hash:
		b.Store(p)
	case x.end <= y.end:
		a.Store(p)
	default:
		b.Store(p)
	}
}

// drop removes a pointer, unless another one has taken its place.
func (c *pointers) drop(p *pointer) {
	a, b := c.set(p.hash)
	if !a.CompareAndSwap(p, nil) {
		b.CompareAndSwap(p, nil)
	}
}
