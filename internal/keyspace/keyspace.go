// Package keyspace has what all who read a file with keyspaces must know: where the keys of the default keyspace are in the tree, and the
// record that says that the tree is written so. Package dbm has the rest, and docs/format.md the whole.
//
// In such a file a key of the default keyspace is the key, but one that begins with FF is FF 00 and the rest of it. So these keys keep their
// order, and are the range below End; the records of the other keyspaces and the catalog are behind it.
package keyspace

const (
	// Lead is the first byte of all keys in the tree but those of the default keyspace that begin with another one.
	Lead = 0xFF
	// Escape follows Lead in those keys of the default keyspace that begin with Lead.
	Escape = 0x00
	// First is the least byte that follows Lead in keys of the other keyspaces.
	First = 0x01
	// Catalog follows Lead in the keys of the catalog.
	Catalog = 0xFF
)

// Forms of the tree: the first byte of the value of Mark.
const (
	Plain   = 1 // keyspaces, and nothing follows
	Stamped = 2 // and records may expire: docs/format.md, "Records that expire"
)

var (
	// Mark is the key of the record that says that keys are written so. The superblock's flag alone says only that they may be.
	Mark = append([]byte{Lead, Catalog, 0x00}, "flashdbm keyspaces \x9d\x1f\x42\xe0\x6b\x5c\x88\xd7"...)
	// End is where the default keyspace ends.
	End = []byte{Lead, First}
)

// Shifted reports whether a key of the default keyspace is another one in the tree.
func Shifted(key []byte) bool { return len(key) > 0 && key[0] == Lead }

// In returns the key in the tree for one of the default keyspace: the same slice, or, if it is shifted, room with that key appended.
func In(room, key []byte) []byte {
	if !Shifted(key) {
		return key
	}
	return append(append(room, Lead, Escape), key[1:]...)
}

// Out is the opposite of In. It does not change key; what it returns is a part of it, or new.
func Out(key []byte) []byte {
	if len(key) > 1 && key[0] == Lead {
		return append([]byte{Lead}, key[2:]...)
	}
	return key
}
