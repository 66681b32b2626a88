// Package regions keeps the memory that one process offers to peers, and the memory of its own operations. It checks
// keys and bounds, and fences regions. The providers mem, tcp and sim carry out operations with it; shm supplies
// memory of its own, which peers map.
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

// A Table holds the regions of a domain. Any goroutine may call its methods.
type Table struct {
	nonce  uint64
	random func() uint64

	mu     sync.RWMutex // guards the fields below
	byID   map[uint64]*Region
	last   uint64 // the last ID that was given to a region
	closed bool
}

// NewTable returns an empty table of one incarnation. random supplies the values that a peer must not guess; the
// simulator passes a repeatable source.
func NewTable(nonce uint64, random func() uint64) *Table {
	return &Table{nonce: nonce, random: random, byID: map[uint64]*Region{}}
}

// Random returns a number that cannot be guessed: the runtime's generator is ChaCha8 with a seed from the
// operating system.
func Random() uint64 { return rand.Uint64() }

// A Region is a fabric.Region.
type Region struct {
	t      *Table
	key    fabric.Key
	access fabric.Access
	mem    []byte
	with   Memory

	fenced atomic.Bool
	closed atomic.Bool
	// users counts the operations that access mem. Close sets closed and then waits until users is 0; enter
	// increments users and then reads closed, so an operation sees closed or Close sees the operation.
	users atomic.Int64
}

// Memory describes the memory of a region.
type Memory struct {
	Bytes []byte
	With  any // data of the provider, which With returns
	// Name changes the key by which peers reach the region, if the provider and not this package checks the keys; nil
	// leaves the key.
	Name func(k fabric.Key) fabric.Key
	// Open makes the region of the given ID reachable for peers, if the provider and not this package does that;
	// Fence ends it, and may be called several times. Both may be nil. Free frees the memory, after Fence was called
	// and once no operation accesses the memory.
	Open  func(id uint64)
	Fence func(id uint64)
	Free  func() error
}

// Alloc adds a region of n bytes of this process's memory.
func (t *Table) Alloc(n int, a fabric.Access) (*Region, error) {
	if err := CheckSize(n); err != nil {
		return nil, err
	}
	b, err := words.Alloc(n)
	if err != nil {
		return nil, fmt.Errorf("fabric: a region of %d bytes: %w", n, err)
	}
	return t.Add(Memory{Bytes: b, Free: func() error { return words.Free(b) }}, a)
}

// CheckSize returns an error if a region cannot have n bytes.
func CheckSize(n int) error {
	if n <= 0 {
		return fmt.Errorf("fabric: a region of %d bytes: want 1 at least", n)
	}
	return nil
}

// Add adds a region. If it returns an error, it has freed the memory.
func (t *Table) Add(m Memory, a fabric.Access) (*Region, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		m.Free()
		return nil, fabric.ErrClosed
	}
	t.last++
	r := &Region{t: t, access: a, mem: m.Bytes, with: m}
	r.key = fabric.Key{ID: t.last, Rkey: t.random(), Nonce: t.nonce, Len: uint64(len(m.Bytes))}
	if m.Name != nil {
		r.key = m.Name(r.key)
	}
	if m.Open != nil {
		m.Open(r.key.ID)
	}
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

// Find returns the region of a key, nil if the region is closed or the key is wrong.
func (t *Table) Find(k fabric.Key) *Region {
	t.mu.RLock()
	r := t.byID[k.ID]
	t.mu.RUnlock()
	if r == nil || r.key.Rkey != k.Rkey || r.key.Nonce != k.Nonce {
		return nil
	}
	return r
}

// Reach returns the bytes that a peer's operation refers to. It checks the key, the right and the bounds, and that
// the region is not fenced. If Reach returns no error, the caller accesses the bytes and then calls Leave, whose
// result decides whether the operation succeeds.
func (t *Table) Reach(k fabric.Key, off, n uint64, want fabric.Access) (*Region, []byte, error) {
	r := t.Find(k)
	if r == nil || r.access&want == 0 || !r.within(off, n) || !r.enter() {
		return nil, nil, fabric.ErrAccess
	}
	if r.fenced.Load() {
		r.leave()
		return nil, nil, fabric.ErrAccess
	}
	return r, r.mem[off : off+n], nil
}

// within reports whether the n bytes from off are inside the region. off+n may overflow.
func (r *Region) within(off, n uint64) bool {
	return off <= uint64(len(r.mem)) && n <= uint64(len(r.mem))-off && n <= math.MaxUint32
}

// Leave ends what Reach began, and returns ErrAccess if the region was fenced meanwhile. An operation reads the fence
// after its last word and a barrier; Fence sets the fence before its caller reads the memory for the last time. So
// either that caller sees all words of the operation, or the operation sees the fence and fails.
func (r *Region) Leave() error {
	r.leave() // a barrier
	if r.fenced.Load() {
		return fabric.ErrAccess
	}
	return nil
}

// Late returns the bytes that an earlier Reach has returned, whether the region is fenced or not, and nil if it is
// closed. The simulator uses it for words that arrive after their operation has failed. The caller then calls
// Release.
func (r *Region) Late(off, n uint64) []byte {
	if !r.enter() {
		return nil
	}
	return r.mem[off : off+n]
}

// Own returns the bytes that a work request of this process refers to in one of the table's regions, none if n is 0.
// If Own returns no error, the caller accesses the bytes and then calls Release of the region, which may be nil.
func (t *Table) Own(of fabric.Region, off, n uint64) (*Region, []byte, error) {
	if n == 0 {
		return nil, nil, nil
	}
	r, ok := of.(*Region)
	if !ok || r == nil || r.t != t {
		return nil, nil, fmt.Errorf("%w: Local is not a region of this domain", fabric.ErrInvalid)
	}
	if !r.within(off, n) {
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

// Access returns the rights of peers, none once the region is fenced.
func (r *Region) Access() fabric.Access {
	if r.fenced.Load() {
		return 0
	}
	return r.access
}

// With returns Memory.With.
func (r *Region) With() any { return r.with.With }

// Fence implements fabric.Region.
func (r *Region) Fence() error {
	r.fenced.Store(true)
	if r.with.Fence != nil {
		r.with.Fence(r.key.ID)
	}
	return nil
}

// Close implements fabric.Region.
func (r *Region) Close() error {
	if r.closed.Swap(true) {
		return nil
	}
	r.Fence()
	r.t.mu.Lock()
	delete(r.t.byID, r.key.ID)
	r.t.mu.Unlock()
	for r.users.Load() != 0 { // at most for the copies under way, a few microseconds
		runtime.Gosched()
	}
	return r.with.Free()
}
