//go:build cstores

package main

/*
#cgo CFLAGS: -O2
#include "pack.h"

static void *store_open(const struct cstore *s, const char *dir, int durable, int clients, uint64_t cache, char *message) {
	return s->open(dir, durable, clients, cache, message);
}
static int store_sync(const struct cstore *s, void *store, char *message) { return s->sync(store, message); }
static int store_close(const struct cstore *s, void *store, char *message) { return s->close(store, message); }
static void *store_connect(const struct cstore *s, void *store) { return s->connect(store); }
static void store_disconnect(const struct cstore *s, void *conn) { s->disconnect(conn); }
static int store_run(const struct cstore *s, void *conn, const uint8_t *ops, size_t len, struct outcome *out) {
	return s->run(conn, ops, len, out);
}
*/
import "C"

import (
	"errors"
	"fmt"
	"os/exec"
	"unsafe"
)

// registerC registers a store in C. The version is that of the Debian package it comes from.
func registerC(name, debian, settings string, api *C.struct_cstore) {
	register(&engine{
		Name: name, Settings: settings,
		Version: func() string {
			version, err := exec.Command("dpkg-query", "-W", "-f", "${Version}", debian).Output()
			if err != nil {
				return "unknown"
			}
			return string(version)
		},
		Open: func(dir string, o OpenOptions) (Store, error) {
			var message [C.MESSAGE_BYTES]C.char
			path := C.CString(dir)
			defer C.free(unsafe.Pointer(path))
			durable := C.int(0)
			if o.Durable {
				durable = 1
			}
			db := C.store_open(api, path, durable, C.int(o.Clients), cacheBytes, &message[0])
			if db == nil {
				return nil, errors.New(C.GoString(&message[0]))
			}
			return &cStore{api, db}, nil
		},
	})
}

type cStore struct {
	api *C.struct_cstore
	db  unsafe.Pointer
}

func (s *cStore) Sync() error {
	var message [C.MESSAGE_BYTES]C.char
	return cError(C.store_sync(s.api, s.db, &message[0]), &message)
}

func (s *cStore) Close() error {
	var message [C.MESSAGE_BYTES]C.char
	return cError(C.store_close(s.api, s.db, &message[0]), &message)
}

func cError(status C.int, message *[C.MESSAGE_BYTES]C.char) error {
	if status == 0 {
		return nil
	}
	return fmt.Errorf("%s", C.GoString(&message[0]))
}

func (s *cStore) Client() (Client, error) {
	conn := C.store_connect(s.api, s.db)
	if conn == nil {
		return nil, errors.New("no connection to the store")
	}
	return &cClient{s.api, conn, (*C.struct_outcome)(C.calloc(1, C.sizeof_struct_outcome))}, nil
}

type cClient struct {
	api  *C.struct_cstore
	conn unsafe.Pointer
	out  *C.struct_outcome // C's, because it points to memory of C's
}

func (c *cClient) Do(ops *Ops, out *Outcome) error {
	if len(ops.buf) == 0 {
		return nil
	}
	o := c.out
	o.found, o.missing, o.scanned, o.sum, o.values_len = 0, 0, 0, 0, 0
	status := C.store_run(c.api, c.conn, (*C.uint8_t)(&ops.buf[0]), C.size_t(len(ops.buf)), o)
	if status != 0 {
		return cError(status, &o.message)
	}
	out.Found += uint64(o.found)
	out.Missing += uint64(o.missing)
	out.Scanned += uint64(o.scanned)
	out.Sum += uint64(o.sum)
	if o.values_len > 0 {
		out.Values = append(out.Values, unsafe.Slice((*byte)(o.values), int(o.values_len))...)
	}
	return nil
}

func (c *cClient) Close() error {
	C.store_disconnect(c.api, c.conn)
	C.free(unsafe.Pointer(c.out.values))
	C.free(unsafe.Pointer(c.out))
	return nil
}
