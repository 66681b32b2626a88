// Package main is the engine of the C libraries in this directory: flashdbm as a shared library with a dozen C
// functions. The front library (front/, plain C) loads it when a program opens its first database.
//
//	program -> front library (C): dbm_open, dbm_fetch ...     descriptors, buffers, fork
//	             | loaded at the first open; in a forked child another copy of it
//	             v
//	           this package: exports.go, then database.go     the lock between processes
//	             v
//	           package mvcc
//
// Go's runtime does not work in the child of a fork, because its threads do not exist there. So this library keeps
// no state that a child needs: in the child the front library loads another copy of this library and passes the
// descriptors to it. docs/ndbm.md explains the whole.
//
// A database is one file, the .pag of a pair. Its descriptor is passed to open and stays open until the last handle
// of the process is closed, even while the lock is released: closing any descriptor of a file drops all locks that
// the program itself has on the file.
package main

func main() {} // a C library does not run it, but package main needs it
