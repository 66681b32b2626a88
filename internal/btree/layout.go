package btree

// The format of a tree page. All integers are little endian.
//
//	 0            40        48                     48+4n                       48+10n
//	+------------+---------+----------------------+---------------------------+-----------------------+------+
//	| mux area   | header  | heads[n] u32         | slots[n] 6 bytes each     | cells in key order    | 0... |   leaf
//	+------------+---------+----------------------+---------------------------+-----------------------+------+
//	                        heads[n] u32 | slot 6 bytes | cells in key order                          | 0... |   even leaf
//	                        heads[n] u32 | slots[n] 4 bytes | children[n] u64 | prefix | tails        | 0... |   inner node
//
//	header:      level u8 | flags u8 | count n u16 | prefix u16 | bytes of the cells u16
//	leaf slot:   offset u16 | key length u16 | value length u16
//	inner slot:  offset u16 | separator length u16
//	reference:   PageID u64 | length of the value u64 | length of a long key u32, else 0
//
// A leaf has level 0; another node has one level more than its children. Offsets count from the start of the page.
// Cells lie back to back in the order of their slots, without gaps, and the rest of the page is zero: the bytes of
// a page depend only on its records.
//
// Leaf: prefix is the number of bytes that the inline parts of all keys have in common (0 for fewer than two
// records). A head is the four bytes of the key after those, big endian, padded with zeros. A cell is the key,
// whole, and then the value. The lower 12 bits of a length count bytes in the cell; the upper four are flags.
//
// Even leaf: the slots of all records, two at least, have the same lengths and flags, so only the slot of the first
// record is stored; the others follow from it. A record of a four-byte key and an eight-byte value takes 16 bytes
// instead of 22. A leaf that could be even need not be: older files have none.
//
// Inner node: separator i is a lower bound of the keys below child i and above all keys below child i-1. Separator
// 0 is not stored: its head and length are zero. prefix is the number of bytes that separators 1 to n-1 have in
// common (0 if there are fewer than two), kept once in front of the tails. A head is the four bytes after those, a
// tail the bytes after the head. The length counts head and tail, without padding.
//
// A separator that would need more than MaxSeparator bytes to separate its two neighbours is cut to MaxSeparator
// bytes and flagged. A cut separator stands for the first key below its child: a search whose key starts with it
// compares with that first key. That key always exists, because a leaf that becomes empty is removed at once.
const (
	PageSize = 4096               // bytes of a page
	MuxSize  = 40                 // bytes of a page that belong to the log
	BodySize = PageSize - MuxSize // bytes of a page that belong to the node

	headerBytes     = 8
	headBytes       = 4
	leafSlotBytes   = 6
	innerSlotBytes  = 4
	childBytes      = 8
	leafEntryBytes  = headBytes + leafSlotBytes               // bytes that a record takes beside its cell
	innerEntryBytes = headBytes + innerSlotBytes + childBytes // bytes that a child takes in addition to its tail
	refBytes        = 20
	loggedBytes     = 10 // of a Ref to a Logged value: place u64, length u16
	placeLengthAt   = 8  // offset of that length

	// roomBytes is the most that entries and cells of one page may take.
	roomBytes = BodySize - headerBytes
)

// Offsets of the fields of a header.
const (
	levelAt     = 0
	flagsAt     = 1
	countAt     = 2
	prefixAt    = 4
	cellBytesAt = 6
)

// Limits of records and trees.
const (
	MaxKey       = 64<<10 + 8 // bytes of a key: the user's 64 KiB after the prefix of a keyspace
	MaxValue     = 4 << 30    // bytes of a value
	MaxInlineKey = 1000       // bytes of a key in its leaf
	MaxSeparator = 496        // bytes of a separator in an inner node
	MaxHeight    = 40         // levels of a tree

	// MaxInline is the most bytes that key and value together may have in a leaf: two such records fill a page.
	MaxInline = roomBytes/2 - leafEntryBytes

	maxLeafCount  = roomBytes / leafEntryBytes // of even leaves too: their versions in memory have all slots
	maxInnerCount = roomBytes / innerEntryBytes
)

// Flags of a node.
const flagEven = 1 << 0 // of a leaf

// Flags in the lengths of slots.
const (
	lengthMask = 1<<12 - 1

	keyLong      = 1 << 15 // leaf, key length: the whole key is in the run
	keyReserved  = 7 << 12
	separatorCut = 1 << 15 // inner node: the separator was cut
	cutReserved  = 7 << 12

	kindShift     = 12 // leaf, value length: two bits of ValueKind
	kindMask      = 3
	valueReserved = 3 << 14
)

// ValueKind says where the value of a record is.
type ValueKind uint8

const (
	Inline  ValueKind = 0 // in the leaf
	Run     ValueKind = 1 // in a value run; the leaf has a Ref
	Extents ValueKind = 2 // in private segments, whose list is a run; the leaf has a Ref
	Logged  ValueKind = 3 // in the page of the log that carried it; the leaf has a Ref
)

// FitsInline reports whether a record with a key and a value of these lengths is stored in its leaf. All others need a Ref.
func FitsInline(keyBytes, valueBytes int) bool {
	return keyBytes <= MaxInlineKey && valueBytes <= MaxInline-keyBytes
}

// RecordBytes returns the bytes that a record takes in a leaf, with keyBytes of its key and valueBytes of its value
// there.
func RecordBytes(keyBytes, valueBytes int) int { return leafEntryBytes + keyBytes + valueBytes }

// leafBytes returns the bytes that a leaf takes in a page, without the mux area.
func leafBytes(count, cells int, even bool) int {
	if even {
		return headerBytes + leafSlotBytes + count*headBytes + cells
	}
	return headerBytes + count*leafEntryBytes + cells
}

// leafFits reports whether a leaf fits a page.
func leafFits(count, cells int, even bool) bool {
	return leafBytes(count, cells, even) <= BodySize && count <= maxLeafCount
}

// leafRoom returns the bytes that a record takes beyond its cell, and the bytes that all records of a leaf
// may take together.
func leafRoom(even bool) (entry, room int) {
	if even {
		return headBytes, roomBytes - leafSlotBytes
	}
	return leafEntryBytes, roomBytes
}

func innerBytes(count, cells int) int { return headerBytes + count*innerEntryBytes + cells }
