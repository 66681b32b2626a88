// Package keyspace has the rules that every reader of a file with keyspaces needs: how the keys of the default
// keyspace are stored in the tree, and which record says that the tree is written in this form. The other rules
// are in package dbm; docs/format.md has all of them.
//
// In such a file, a key of the default keyspace is stored as it is, unless it begins with FF: then it is stored as
// FF 00 and its other bytes. The stored keys keep the order of the keys, and are the range below End. The records
// of the other keyspaces and the catalog lie after End.
package keyspace

const (
	// Lead is the first byte of all keys in the tree except the keys of the default keyspace that do not begin with
	// FF.
	Lead = 0xFF
	// Escape follows Lead in keys of the default keyspace that begin with FF.
	Escape = 0x00
	// First is the least byte that follows Lead in keys of other keyspaces.
	First = 0x01
	// Catalog follows Lead in the keys of the catalog.
	Catalog = 0xFF
)

// Forms of the tree: the first byte of the value of Mark.
const (
	Plain   = 1 // keyspaces; nothing follows
	Stamped = 2 // keyspaces, and records may expire: docs/format.md, "Records that expire"
)

var (
	// Mark is the key of the record that says that the tree has this form. The superblock's flag says only that it
	// may have it.
	Mark = append([]byte{Lead, Catalog, 0x00}, "flashdbm keyspaces \x9d\x1f\x42\xe0\x6b\x5c\x88\xd7"...)
	// End is the upper bound of the default keyspace's keys in the tree.
	End = []byte{Lead, First}
)

// Shifted reports whether a key of the default keyspace is stored as another key.
func Shifted(key []byte) bool { return len(key) > 0 && key[0] == Lead }

// In returns the key in the tree for a key of the default keyspace: key itself, or, if it is shifted, room with the
// stored key appended.
func In(room, key []byte) []byte {
	if !Shifted(key) {
		return key
	}
	return append(append(room, Lead, Escape), key[1:]...)
}

// Out is the inverse of In. It does not modify key; the result is key itself, or new.
func Out(key []byte) []byte {
	if len(key) > 1 && key[0] == Lead {
		return append([]byte{Lead}, key[2:]...)
	}
	return key
}
