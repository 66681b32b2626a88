package main

// The portable dump format is that of Berkeley DB's db_dump and LMDB's
// mdb_dump:
//
//	dump   = header data
//	header = "VERSION=3" LF { name "=" value LF } "HEADER=END" LF
//	data   = { " " item LF " " item LF } "DATA=END" LF
//
// Items alternate, key and value. The header names their form: with
// format=bytevalue an item is two hexadecimal digits for each byte; with
// format=print a printable ASCII character stands for itself, a backslash for
// a backslash when doubled, and a backslash with two hexadecimal digits for any
// other byte. For example:
//
//	VERSION=3
//	format=print
//	type=btree
//	HEADER=END
//	 greeting
//	 good morning\0a
//	DATA=END
//
// A file may hold several such dumps in a row, one for each named database,
// and a database may hold several values for a key. A flashdbm database has no
// place for several values of a key.
const (
	dumpVersionLine = "VERSION=3"
	dumpHeaderEnd   = "HEADER=END"
	dumpDataEnd     = "DATA=END"

	dumpFormatBytes = "bytevalue"
	dumpFormatPrint = "print"
)

// Limits on the memory that a hostile dump can make the program allocate.
const (
	maxKeyBytes        = 64 << 10
	maxDumpHeaderLines = 100
	maxDumpHeaderBytes = 4 << 10 // of one line; the name of a database may be long
)
