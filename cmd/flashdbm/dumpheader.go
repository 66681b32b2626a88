package main

import "fmt"

// dumpHeader is the part of a dump's header that load uses. It ignores settings of the program that wrote the
// dump, such as page and map sizes.
type dumpHeader struct {
	print    bool   // format=print; else format=bytevalue
	lmdb     bool   // written by mdb_dump
	database string // its name among several, or empty
}

// dumpError says why a dump cannot be loaded, and at which line.
type dumpError struct {
	line    int64 // counted from 1
	problem string
}

func (e *dumpError) Error() string {
	return fmt.Sprintf("line %d of the dump: %s", e.line, e.problem)
}

// set takes one "name=value" line of a header. It returns the reason why the dump cannot be loaded, or "".
func (h *dumpHeader) set(name, value string) (problem string) {
	switch name {
	case "format":
		if value != dumpFormatBytes && value != dumpFormatPrint {
			return fmt.Sprintf("the format %q is unknown: dump again with format=bytevalue, the default of db_dump and mdb_dump", value)
		}
		h.print = value == dumpFormatPrint
	case "type":
		if value != "btree" && value != "hash" {
			return fmt.Sprintf("a database of type %q has record numbers, not keys: copy it into a btree and dump that", value)
		}
	case "keys":
		if value != "1" {
			return "it holds no keys: dump again with db_dump -k, from a btree or hash database"
		}
	case "duplicates", "dupsort", "dupfixed", "integerdup", "reversedup":
		if value != "0" {
			return fmt.Sprintf("the database may hold several values for a key (%s=%s), flashdbm holds one: "+
				"if no key has two, remove this line from the header and load again, else make the keys unique first", name, value)
		}
	case "maxreaders": // only LMDB has this setting
		h.lmdb = true
	case "database", "subdatabase":
		h.database = value
	}
	return ""
}

// several returns the message for a dump of more than one database.
func (h *dumpHeader) several() string {
	after := "the first one"
	if h.database != "" {
		after = fmt.Sprintf("%q", h.database)
	}
	return fmt.Sprintf("another database follows %s, flashdbm load takes one: "+
		"load with --keyspaces to have a keyspace for each; or dump them one by one (db_dump -s NAME, mdb_dump -s NAME) and load each into its own file", after)
}

// repeated returns the message for a key with a second value.
func repeated(key []byte) string {
	return fmt.Sprintf("the key %s is there twice, flashdbm holds one value for a key: make the keys unique first",
		quotedStart(key))
}

// quotedStart formats a key for a message, shortened to what fits on a line.
func quotedStart(key []byte) string {
	const shownBytes = 60
	if len(key) > shownBytes {
		return quoted(key[:shownBytes]) + "..."
	}
	return quoted(key)
}
