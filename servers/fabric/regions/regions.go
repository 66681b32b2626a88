// Package regions keeps the memory that one process offers to peers, for providers whose operations on it are carried out inside of that
// process: mem, tcp, sim. It checks keys and bounds, and fences.
package regions

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/words"
)

// A Table holds the regions of a domain. Its methods may be called by any goroutine.
type Table struct {
	nonce  uint64
	random func() uint64

	mu     sync.RWMutex // guards what follows
	byID   map[uint64]*Region
	last   uint64 // ID given out
	closed bool
}

// NewTable returns an empty table of an incarnation. random is the source of what nobody shall guess; the simulator's can be repeated.
func NewTable(nonce uint64, random func() uint64) *Table {
	return &Table{nonce: nonce, random: random, byID: map[uint64]*Region{}}
}

// Random is a source of numbers that nobody can guess: the generator of the runtime, which is ChaCha8 with a seed of the system.
func Random() uint64 { return rand.Uint64() }

// A Region is a fabric.Region.
type Region struct {
	t      *Table
	key    fabric.Key
	access fabric.Access
	mem    []byte

	fenced atomic.Bool
	closed atomic.Bool
	// users are operations that look at mem. Close sets closed, then waits until there are none; Enter counts itself, then looks at closed.
	users atomic.Int64
}

// Alloc adds a region.
func (t *Table) Alloc(n int, a fabric.Access) (*Region, error) {
	if n <= 0 {
		return nil, fmt.Errorf("fabric: a region of %d bytes: want 1 at least", n)
	}
	mem, err := words.Alloc(n)
	if err != nil {
		return nil, fmt.Errorf("fabric: a region of %d bytes: %w", n, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		words.Free(mem)
		return nil, fabric.ErrClosed
	}
	t.last++
	r := &Region{t: t, access: a, mem: mem}
	r.key = fabric.Key{ID: t.last, Rkey: t.random(), Nonce: t.nonce, Len: uint64(n)}
	t.byID[r.key.ID] = r
	return r, nil
}

// Close closes all regions.
func (t *Table) Close() error {
	t.mu.Lock()
	t.closed = true
	all := t.byID
	t.byID = map[uint64]*Region{}
	t.mu.Unlock()
	var failed error
	for _, r := range all {
		if err := r.Close(); err != nil {
			failed = err
		}
	}
	return failed
}

// Reach returns the bytes that an operation of a peer refers to. It checks the key, the right and the bounds, and that the region is not
// fenced. If there is no error, the caller looks at the bytes and then calls Leave, whose result decides whether the operation succeeds.
func (t *Table) Reach(k fabric.Key, off, n uint64, want fabric.Access) (*Region, []byte, error) {
	t.mu.RLock()
	r := t.byID[k.ID]
	t.mu.RUnlock()
	if r == nil || r.key.Rkey != k.Rkey || r.key.Nonce != k.Nonce || r.access&want == 0 {
		return nil, nil, fabric.ErrAccess
	}
	if off > uint64(len(r.mem)) || n > uint64(len(r.mem))-off || n > math.MaxUint32 {
		return nil, nil, fabric.ErrAccess
	}
	if !r.enter() {
		return nil, nil, fabric.ErrAccess
	}
	if r.fenced.Load() {
		r.leave()
		return nil, nil, fabric.ErrAccess
	}
	return r, r.mem[off : off+n], nil
}

// Leave ends what Reach began: it returns ErrAccess if the region was fenced meanwhile. The look at the fence comes after the operation's
// last word and a barrier; Fence sets it before its caller looks at the memory for the last time. So either the caller sees all words
// of the operation, or the operation sees the fence and fails.
func (r *Region) Leave() error {
	r.leave() // a barrier
	if r.fenced.Load() {
		return fabric.ErrAccess
	}
	return nil
}

// Late returns the same bytes of a region that Reach has returned once, whether it is fenced or not, and nil if it is closed. It is for
// words that arrive after their operation has failed. Release ends what it began.
func (r *Region) Late(off, n uint64) []byte {
	if !r.enter() {
		return nil
	}
	return r.mem[off : off+n]
}

// Own returns the bytes of one of the table's regions that a work request of its own process refers to, none if n is 0. If there is no
// error, the caller looks at the bytes and then calls Release of the region, which may be nil.
func (t *Table) Own(of fabric.Region, off, n uint64) (*Region, []byte, error) {
	if n == 0 {
		return nil, nil, nil
	}
	r, ok := of.(*Region)
	if !ok || r == nil || r.t != t {
		return nil, nil, fmt.Errorf("%w: Local is not a region of this domain", fabric.ErrInvalid)
	}
	if off > uint64(len(r.mem)) || n > uint64(len(r.mem))-off || n > math.MaxUint32 {
		return nil, nil, fmt.Errorf("%w: bytes [%d, %d+%d) of a local region of %d", fabric.ErrInvalid, off, off, n, len(r.mem))
	}
	if !r.enter() {
		return nil, nil, fmt.Errorf("%w: the local region is closed", fabric.ErrInvalid)
	}
	return r, r.mem[off : off+n], nil
}

// Release ends what Own or Late began.
func (r *Region) Release() {
	if r != nil {
		r.leave()
	}
}

func (r *Region) enter() bool {
	r.users.Add(1)
	if r.closed.Load() {
		r.users.Add(-1)
		return false
	}
	return true
}

func (r *Region) leave() { r.users.Add(-1) }

// Bytes implements fabric.Region.
func (r *Region) Bytes() []byte { return r.mem }

// Key implements fabric.Region.
func (r *Region) Key() fabric.Key { return r.key }

// Fence implements fabric.Region.
func (r *Region) Fence() error {
	r.fenced.Store(true)
	return nil
}

// Close implements fabric.Region.
func (r *Region) Close() error {
	r.fenced.Store(true)
	if r.closed.Swap(true) {
		return nil
	}
	r.t.mu.Lock()
	delete(r.t.byID, r.key.ID)
	r.t.mu.Unlock()
	for r.users.Load() != 0 { // copies of a few microseconds
		runtime.Gosched()
	}
	return words.Free(r.mem)
}
