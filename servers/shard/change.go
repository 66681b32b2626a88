package shard

import (
	"encoding/binary"
	"fmt"

	"flashdbm/servers/guard"
)

var le = binary.LittleEndian

// A change is what an entry of the log says to secondaries: the new state of a key, and the answer that the client gets, so that a secondary that
// is promoted answers a repetition instead of applying it. Layout, integers little-endian:
//
//	offset  size  field
//	0       1     kind
//	1       1     0
//	2       2     flags of the item
//	4       4     size of the key
//	8       8     version of the entry
//	16      8     expiry
//	24      8     client, 0 if no repetition is expected: the next four fields are 0 then, but those of the last two kinds
//	32      8     number of the client's write
//	40      8     oldest number that the client has no answer to
//	48      8     floor: below it the client's numbers may be of earlier entries, or of an earlier life
//	56      8     sum: the answer to an ADD
//	64            key, value
//
// An item of another shard has its version there as the number. The range that is dropped is number and oldest.
type change struct {
	kind uint8
	guard.Item
	entry  uint64 // version of the entry, 0 for the item's
	origin *origin
}

// An origin is who made a write.
type origin struct {
	client, number, oldest, floor uint64
	sum                           int64
}

// The kinds of changes.
const (
	changePut     = 1 + iota
	changeRemove  //
	changeNothing // of no key: the end of a copy
	changeForget  // of no key: the client is not known any more
	changeMoved   // an item that comes from another shard
	changeDrop    // of no key: the shard has nothing of a range any more
)

const changeHead = 64

func (c *change) append(b []byte) []byte {
	b = append(b, c.kind, 0)
	b = le.AppendUint16(b, c.Flags)
	b = le.AppendUint32(b, uint32(len(c.Key)))
	var o origin
	if c.origin != nil {
		o = *c.origin
	}
	entry := c.Version
	if c.entry != 0 {
		entry, o.number = c.entry, max(o.number, c.Version)
	}
	b = le.AppendUint64(le.AppendUint64(b, entry), c.Expiry)
	for _, w := range [...]uint64{o.client, o.number, o.oldest, o.floor, uint64(o.sum)} {
		b = le.AppendUint64(b, w)
	}
	return append(append(b, c.Key...), c.Value...)
}

// parse decodes a change. Key and value are parts of b.
func (c *change) parse(b []byte) error {
	if len(b) < changeHead || b[0] < changePut || b[0] > changeDrop || uint64(le.Uint32(b[4:])) > uint64(len(b)-changeHead) {
		return fmt.Errorf("shard: an entry of %d bytes that says nothing", len(b))
	}
	w := func(at int) uint64 { return le.Uint64(b[at:]) }
	key := b[changeHead : changeHead+le.Uint32(b[4:])]
	*c = change{
		kind: b[0], Item: guard.Item{Flags: le.Uint16(b[2:]), Version: w(8), Expiry: w(16), Key: key, Value: b[changeHead+len(key):]},
		entry: w(8), origin: &origin{w(24), w(32), w(40), w(48), int64(w(56))},
	}
	if c.kind == changeMoved {
		c.Version = c.origin.number
	}
	return nil
}
