// Package main is the engine behind the C libraries of this directory: flashdbm as a shared library with a dozen C functions, which the
// front library (front/, plain C) loads when a program opens its first database.
//
//	program -> front library (C): dbm_open, dbm_fetch ...     descriptors, buffers, fork
//	             | loaded at the first open; in a forked child another copy of it
//	             v
//	           this package: exports.go, then database.go     the lock between processes
//	             v
//	           package mvcc
//
// The runtime of Go does not survive fork in the child: its threads are not there. So the front library keeps nothing in here that a
// child needs, and gives the child's copy of this library the descriptors anew. docs/ndbm.md tells the whole.
//
// A database is one file, the .pag of a pair. Its descriptor is given to open and is kept until the last handle of the process is closed,
// also while the lock is let go: closing any descriptor of a file drops all locks that the program itself has on it.
package main

func main() {} // a C library has none, but package main needs it
