//go:build linux && cgo

package main

// #include <stddef.h>
// #include <stdint.h>
import "C"

import (
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// These are the functions that the front library calls; front/engine.h describes them for C. They return 0 or 1, or
// a negative errno. No panic leaves them, and they keep no memory of the caller.

// databases are the open databases, by handle - 1. A slot is set under opening, and reused after close.
var (
	opening   sync.Mutex
	databases [1 << 16]atomic.Pointer[database]
)

func get(handle C.int) *database {
	if handle < 1 || int(handle) > len(databases) {
		return nil
	}
	return databases[handle-1].Load()
}

// recovered is deferred by every export: a panic becomes EIO. So does a memory fault on a mapping of a truncated
// file.
func recovered(ret *C.int) {
	if r := recover(); r != nil {
		*ret = failed(errPanic)
	}
}

func failed(err error) C.int { return -C.int(errno(err)) }

func boolean(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

// view returns memory of the caller as a slice.
func view(p unsafe.Pointer, n C.size_t) []byte { return unsafe.Slice((*byte)(p), int(n)) }

//export flashdbm_engine_open
func flashdbm_engine_open(fd, readOnly, posix, durable C.int, shown unsafe.Pointer) (ret C.int) {
	defer recovered(&ret)
	opening.Lock()
	defer opening.Unlock()
	for i := range databases {
		if databases[i].Load() != nil {
			continue
		}
		d, err := open(uintptr(fd), settings{readOnly: readOnly != 0, posix: posix != 0, durable: durable != 0, still: (*still)(shown)})
		if err != nil {
			return failed(err)
		}
		databases[i].Store(d)
		return C.int(i + 1)
	}
	return failed(syscall.EMFILE)
}

//export flashdbm_engine_bind
func flashdbm_engine_bind() C.int {
	roomForHandlers()
	return 0
}

// roomForHandlers makes the stack of the calling thread's goroutine large enough for a signal handler of the
// program. The stack does not shrink again, because the front library sets gcshrinkstackoff.
//
//go:noinline
func roomForHandlers() byte {
	var room [96 << 10]byte
	for i := 0; i < len(room); i += 4096 {
		room[i] = byte(i)
	}
	return room[len(room)-1]
}

//export flashdbm_engine_start
func flashdbm_engine_start(handle C.int) (ret C.int) {
	defer recovered(&ret)
	d := get(handle)
	if d == nil {
		return failed(errNoHandle)
	}
	if err := d.enter(); err != nil {
		return failed(err)
	}
	d.leave()
	return 0
}

//export flashdbm_engine_truncate
func flashdbm_engine_truncate(handle C.int) (ret C.int) { return do(handle, (*database).truncate) }

//export flashdbm_engine_sync
func flashdbm_engine_sync(handle C.int) (ret C.int) { return do(handle, (*database).sync) }

//export flashdbm_engine_shut
func flashdbm_engine_shut(handle C.int) (ret C.int) { return do(handle, (*database).letGo) }

//export flashdbm_engine_cancel
func flashdbm_engine_cancel(handle C.int) (ret C.int) {
	return do(handle, func(d *database) error { d.cancel(); return nil })
}

//export flashdbm_engine_close
func flashdbm_engine_close(handle C.int) (ret C.int) {
	return do(handle, func(d *database) error {
		databases[handle-1].Store(nil)
		return d.close()
	})
}

func do(handle C.int, fn func(*database) error) (ret C.int) {
	defer recovered(&ret)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	d := get(handle)
	if d == nil {
		return failed(errNoHandle)
	}
	if err := fn(d); err != nil {
		return failed(err)
	}
	return 0
}

//export flashdbm_engine_fetch
func flashdbm_engine_fetch(handle C.int, key unsafe.Pointer, keySize C.size_t, reply unsafe.Pointer, room C.size_t, size *C.size_t) (ret C.int) {
	defer recovered(&ret)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	d := get(handle)
	if d == nil {
		return failed(errNoHandle)
	}
	n, ok, err := d.fetch(view(key, keySize), view(reply, room))
	if err != nil {
		return failed(err)
	}
	*size = C.size_t(n)
	return boolean(ok)
}

//export flashdbm_engine_after
func flashdbm_engine_after(handle C.int, key unsafe.Pointer, keySize C.size_t, first C.int, reply unsafe.Pointer, room C.size_t, size *C.size_t) (ret C.int) {
	defer recovered(&ret)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	d := get(handle)
	if d == nil {
		return failed(errNoHandle)
	}
	n, ok, err := d.after(view(key, keySize), first != 0, view(reply, room))
	if err != nil {
		return failed(err)
	}
	*size = C.size_t(n)
	return boolean(ok)
}

//export flashdbm_engine_store
func flashdbm_engine_store(handle C.int, key unsafe.Pointer, keySize C.size_t, value unsafe.Pointer, valueSize C.size_t, insert C.int) (ret C.int) {
	defer recovered(&ret)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	d := get(handle)
	if d == nil {
		return failed(errNoHandle)
	}
	stored, err := d.store(view(key, keySize), view(value, valueSize), insert != 0)
	if err != nil {
		return failed(err)
	}
	return boolean(stored)
}

//export flashdbm_engine_delete
func flashdbm_engine_delete(handle C.int, key unsafe.Pointer, keySize C.size_t) (ret C.int) {
	defer recovered(&ret)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	d := get(handle)
	if d == nil {
		return failed(errNoHandle)
	}
	found, err := d.remove(view(key, keySize))
	if err != nil {
		return failed(err)
	}
	return boolean(found)
}
