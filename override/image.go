package override

import (
	"encoding/binary"

	"flashdbm/logstore"
)

// An ImageTable is the translation table of a database file that is written from its first byte to its last.
// Every page of the tree but the root is named by its address, so the table has one entry.

// ImageTableSize is the length in bytes of an ImageTable.
const ImageTableSize = tableFixed + tableEntry

// ImageTable returns the table of a tree whose root is at the given address. Its base is group 1, the group of
// all pages of an image.
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
