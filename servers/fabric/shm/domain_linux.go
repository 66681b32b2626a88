package shm

import (
	"fmt"

	"golang.org/x/sys/unix"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/ledger"
	"flashdbm/servers/fabric/regions"
	"flashdbm/servers/fabric/words"
)

var limits = fabric.Caps{OneSided: true, MaxInline: 64, MaxSend: 64 << 10}

// A Domain is a fabric.Domain.
type Domain struct {
	nonce   uint64
	regions *regions.Table
	fences  *fences
	open    ledger.Children
}

// Open returns a domain of this process. Several domains of one process treat each other like domains of different
// processes.
func Open() (*Domain, error) {
	f, err := newFences()
	if err != nil {
		return nil, fmt.Errorf("fabric: shm: %w", err)
	}
	nonce := regions.Random()
	return &Domain{nonce: nonce, fences: f, regions: regions.NewTable(nonce, regions.Random)}, nil
}

// Caps implements fabric.Domain.
func (d *Domain) Caps() fabric.Caps { return limits }

// Alloc implements fabric.Domain.
func (d *Domain) Alloc(n int, a fabric.Access) (fabric.Region, error) {
	if a&(fabric.RemoteRead|fabric.RemoteWrite) == 0 {
		r, err := d.regions.Alloc(n, a)
		if err != nil {
			return nil, err
		}
		return r, nil
	}
	if err := regions.CheckSize(n); err != nil {
		return nil, err
	}
	at, err := d.fences.take()
	if err != nil {
		return nil, err
	}
	mem, err := newMemfd("region", n)
	if err != nil {
		d.fences.give(at)
		return nil, fmt.Errorf("fabric: a region of %d bytes: %w", n, err)
	}
	r, err := d.regions.Add(regions.Memory{
		Bytes: mem.b, With: &shared{mem, at},
		Open:  func(id uint64) { d.fences.open(at, id) },
		Fence: func(id uint64) { d.fences.fence(at, id) },
		Free: func() error {
			d.fences.give(at)
			return mem.free()
		},
	}, a)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// A queue is a fabric.Queue whose bell peers of other processes can ring.
type queue struct {
	*ledger.Queue
	bell *bell
}

// Account returns the ledger's queue, for ledger.Of.
func (q *queue) Account() *ledger.Queue { return q.Queue }

// NewQueue implements fabric.Domain.
func (d *Domain) NewQueue(depth int) (fabric.Queue, error) {
	b, err := newBell()
	if err != nil {
		return nil, fmt.Errorf("fabric: a queue: %w", err)
	}
	inner, err := ledger.NewQueue(depth, b)
	if err != nil {
		return nil, err
	}
	q := &queue{inner, b}
	if err := d.open.Keep(q); err != nil {
		return nil, err
	}
	return q, nil
}

// Close implements fabric.Domain.
func (d *Domain) Close() error {
	d.open.Close()
	return d.regions.Close()
}

// A window is a peer's region, mapped by this process.
type window struct {
	key    fabric.Key // the owner's key, but for Base and Len
	access fabric.Access
	mem    []byte
	at     int // index of its fence word
}

// reach returns the bytes that an operation refers to, nil if the key differs, the right is missing, or the bytes are
// outside the region.
func (w *window) reach(k fabric.Key, off, n uint64, want fabric.Access) []byte {
	size := uint64(len(w.mem))
	if w.key.Rkey != k.Rkey || w.key.Nonce != k.Nonce || w.access&want == 0 || off > size || n > size-off {
		return nil
	}
	return w.mem[off : off+n]
}

// fenced reports whether the owner has fenced the region. fences are the owner's words. A copy precedes the load of
// the word if there is a barrier between a Write and the load; words.Read needs none.
func (w *window) fenced(fences []byte) bool { return words.Load(fences, w.at*words.Size) != w.key.ID }

func unmap(b []byte) {
	if b != nil {
		unix.Munmap(b)
	}
}
