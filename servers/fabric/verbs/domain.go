//go:build verbs

package verbs

/*
#cgo LDFLAGS: -lfabric
#cgo noescape vf_poll
#cgo nocallback vf_poll
#cgo noescape vf_post
#cgo nocallback vf_post
#include <stdlib.h>
#include <rdma/fi_errno.h>
#include "link.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/ledger"
	"flashdbm/servers/fabric/regions"
	"flashdbm/servers/fabric/words"
)

// Options choose the device of a domain.
type Options struct {
	// Addr is an IP address of this machine on the device's network; empty for the first device.
	Addr string
	// Provider is a provider of libfabric; empty for "verbs". Provider "tcp" needs no device, and serves to test the
	// code; Caps.OneSided is false then.
	Provider string
}

// A Domain is a fabric.Domain.
type Domain struct {
	c       *C.vf_domain // outside the Go heap
	limits  fabric.Caps
	nonce   uint64
	regions *regions.Table
	open    ledger.Children
	queues  sync.WaitGroup // queues that have an open queue of libfabric
	events  *descriptor
	heard   sync.WaitGroup // the goroutine that reads events

	// links keeps endpoints and listeners of libfabric open while one of their events is read. It is the last lock in
	// the lock order.
	links sync.Mutex
	peps  map[*C.struct_fid_pep]bool // the open listeners

	lose func(context uint64) bool // nil except in a test: selects completions that are lost

	closed sync.Once
	err    error        // the result of Close
	use    sync.RWMutex // held for reading while an object is created; guards ends
	ends   bool         // Close has begun

	mu     sync.RWMutex // guards the fields below; taken after an endpoint's lock
	last   uint64
	byID   map[uint64]*endpoint
	tokens map[uint64]*endpoint // accepted endpoints whose peers have not connected yet
}

// failure turns the return value of a call of libfabric into an error.
func failure(what string, r C.int) error {
	return fmt.Errorf("fabric: verbs: %s: %s", what, C.GoString(C.fi_strerror(-r)))
}

// Open returns a domain of this process.
func Open(o Options) (*Domain, error) {
	if o.Provider == "" {
		o.Provider = "verbs"
	}
	provider, addr := C.CString(o.Provider), C.CString(o.Addr)
	defer C.free(unsafe.Pointer(provider))
	defer C.free(unsafe.Pointer(addr))
	d := &Domain{
		c: (*C.vf_domain)(C.calloc(1, C.sizeof_vf_domain)), nonce: regions.Random(), byID: map[uint64]*endpoint{}, tokens: map[uint64]*endpoint{},
		peps:   map[*C.struct_fid_pep]bool{},
		limits: fabric.Caps{OneSided: o.Provider != "tcp", MaxInline: len(C.vf_wr{}.data), MaxSend: 64 << 10},
	}
	if r := C.vf_open(provider, addr, d.c); r != 0 {
		C.free(unsafe.Pointer(d.c))
		where := "no RDMA device"
		if o.Addr != "" {
			where = "no RDMA device with the address " + o.Addr
		}
		return nil, fmt.Errorf("%w (%s is usable; fi_info -p %s lists them)", failure("open", r), where, o.Provider)
	}
	d.regions = regions.NewTable(d.nonce, regions.Random)
	var err error
	if d.events, err = watchDescriptor(int(d.c.eq_fd), "events"); err != nil {
		d.free()
		return nil, err
	}
	d.heard.Go(d.hear)
	return d, nil
}

func (d *Domain) free() {
	C.vf_close(d.c)
	C.free(unsafe.Pointer(d.c))
}

// Caps implements fabric.Domain.
func (d *Domain) Caps() fabric.Caps { return d.limits }

// Close implements fabric.Domain.
func (d *Domain) Close() error {
	d.closed.Do(func() {
		d.use.Lock()
		d.ends = true
		d.use.Unlock()
		d.open.Close()
		d.err = d.regions.Close()
		d.queues.Wait()
		d.events.close()
		d.heard.Wait()
		d.free()
	})
	return d.err
}

// enter returns ErrClosed once Close has begun; else Close waits until leave is called.
func (d *Domain) enter() error {
	d.use.RLock()
	if d.ends {
		d.use.RUnlock()
		return fabric.ErrClosed
	}
	return nil
}

func (d *Domain) leave() { d.use.RUnlock() }

// registered is the device's registration of a region's memory.
type registered struct {
	own  *C.struct_fid_mr // for operations of this process
	desc unsafe.Pointer   // the descriptor that these operations pass to libfabric

	mu     sync.Mutex       // guards shared, until Fence has returned
	shared *C.struct_fid_mr // for operations of peers; nil if they have no rights, and after a fence
}

// Alloc implements fabric.Domain.
func (d *Domain) Alloc(n int, a fabric.Access) (fabric.Region, error) {
	if err := regions.CheckSize(n); err != nil {
		return nil, err
	}
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	b, err := words.Alloc(n)
	if err != nil {
		return nil, fmt.Errorf("fabric: a region of %d bytes: %w", n, err)
	}
	m := &registered{}
	free := func() error {
		if m.own != nil {
			C.vf_unregister(m.own)
		}
		return words.Free(b)
	}
	read, write := C.int(a&fabric.RemoteRead), C.int(a&fabric.RemoteWrite)
	var key, none C.uint64_t
	var desc unsafe.Pointer
	r := C.vf_register(d.c, unsafe.Pointer(&b[0]), C.size_t(n), 0, 0, 1, random32(), &m.own, &m.desc, &none)
	if r == 0 && a&(fabric.RemoteRead|fabric.RemoteWrite) != 0 {
		r = C.vf_register(d.c, unsafe.Pointer(&b[0]), C.size_t(n), read, write, 0, random32(), &m.shared, &desc, &key)
	}
	if r == 0 && uint64(key) > 1<<32-1 {
		m.fence()
		free()
		return nil, errors.New("fabric: verbs: the device has keys of more than 32 bits")
	}
	if r != 0 {
		free()
		return nil, fmt.Errorf("fabric: a region of %d bytes (memory is locked twice; ulimit -l limits it): %w", n, failure("register", r))
	}
	region, err := d.regions.Add(regions.Memory{
		Bytes: b, With: m, Fence: func(uint64) { m.fence() }, Free: free,
		Name: func(k fabric.Key) fabric.Key {
			if m.shared != nil {
				k.Rkey = uint64(key) | seal(k.ID, uint64(key), k.Nonce)
			}
			if d.c.virtual != 0 {
				k.Base = uint64(uintptr(unsafe.Pointer(&b[0])))
			}
			return k
		},
	}, a)
	if err != nil {
		m.fence()
		return nil, err
	}
	return region, nil
}

// fence ends the registration for peers: once it returns, the device refuses their operations.
func (m *registered) fence() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shared != nil {
		C.vf_unregister(m.shared)
		m.shared = nil
	}
}

func random32() C.uint64_t { return C.uint64_t(regions.Random() >> 32) }

// seal returns the upper half of Key.Rkey, a hash that ties the fields that the device does not check to the device's
// key of 32 bits. It detects keys that were mixed up; it is no secret.
func seal(id, key, nonce uint64) uint64 {
	x := (id*0x9e3779b97f4a7c15 ^ key) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>29 ^ nonce) * 0x94d049bb133111eb
	return (x ^ x>>32) << 32
}

// deviceKey returns the device's key, and whether the fields of k belong together and to the incarnation.
func deviceKey(k fabric.Key, incarnation uint64) (key uint64, ok bool) {
	key = k.Rkey & (1<<32 - 1)
	return key, k.Nonce == incarnation && k.Rkey>>32 == seal(k.ID, key, k.Nonce)>>32
}
