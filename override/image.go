package override

import (
	"encoding/binary"

	"flashdbm/logstore"
)

// An ImageTable is the translation table of a database file that is written from its first byte to its last: all pages of the tree are
// called by their addresses but the root.

// ImageTableSize is its length in bytes.
const ImageTableSize = tableFixed + tableEntry

// ImageTable returns the table of a tree whose root lies at an address. Its base is group 1, that of all pages of an image.
func ImageTable(records int64, root logstore.Addr) []byte {
	le := binary.LittleEndian
	b := le.AppendUint64(nil, 1)
	b = le.AppendUint64(b, 0)
	b = le.AppendUint32(b, 1)
	b = le.AppendUint64(b, Root)
	b = le.AppendUint64(b, uint64(records))
	b = le.AppendUint64(b, 1)
	b = le.AppendUint64(b, Root)
	return le.AppendUint64(b, root)
}
