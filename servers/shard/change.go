package shard

import (
	"encoding/binary"
	"fmt"

	"flashdbm/servers/guard"
)

var le = binary.LittleEndian

// A change is the content of an entry of the log: the new state of a key, and the client's answer, so that a
// promoted secondary answers a repetition of the write instead of applying it again. Layout, with little-endian
// integers:
//
//	offset  size  field
//	0       1     kind
//	1       1     0
//	2       2     flags of the item
//	4       4     size of the key
//	8       8     version of the entry
//	16      8     expiry
//	24      8     client, 0 if no repetition is expected; then the next four fields are 0, too, except in the last
//	        two kinds
//	32      8     number of the client's write
//	40      8     oldest number to which the client has no answer
//	48      8     floor: the client's numbers below it may be of earlier entries, or of an earlier life
//	56      8     sum: the answer to an ADD
//	64            key, value
//
// In changeMoved the number is the item's version. In changeDrop number and oldest are the dropped range.
type change struct {
	kind uint8
	guard.Item
	entry  uint64 // version of the entry, 0: the item's
	origin *origin
}

// An origin is the client's part of a write.
type origin struct {
	client, number, oldest, floor uint64
	sum                           int64
}

// The kinds of changes.
const (
	changePut     = 1 + iota
	changeRemove  //
	changeNothing // without a key: the end of a copy
	changeForget  // without a key: the client is forgotten
	changeMoved   // an item that comes from another shard
	changeDrop    // without a key: the shard no longer has anything of a range
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
