package protocol

import "fmt"

// Pointer is the place of an item, and how long it is valid.
type Pointer struct {
	Term   uint64 // the reign that gave the pointer; its tenure counts
	Offset uint64 // of the item in the extent, in bytes
	Extent uint32 // number of the extent in the reign; OpExtent returns its key
	Length uint32 // bytes of the item, guardian included
	Lease  uint32 // microseconds for which the place is not reused
	Tenure uint32 // microseconds for which the shard certainly keeps its keys
}

const pointerSize = 32

func (p *Pointer) append(b []byte) []byte {
	b = le.AppendUint64(b, p.Term)
	b = le.AppendUint64(b, p.Offset)
	b = le.AppendUint32(b, p.Extent)
	b = le.AppendUint32(b, p.Length)
	b = le.AppendUint32(b, p.Lease)
	return le.AppendUint32(b, p.Tenure)
}

func (p *Pointer) parse(b []byte) {
	*p = Pointer{
		le.Uint64(b), le.Uint64(b[8:]), le.Uint32(b[16:]), le.Uint32(b[20:]), le.Uint32(b[24:]), le.Uint32(b[28:]),
	}
}

// Item is the answer to a GET with StatusOK. Other statuses have no body.
type Item struct {
	Version    uint64
	Expiry     uint64 // milliseconds since 1970 by the shard's clock; 0: never
	ItemFlags  ItemFlags
	HasPointer bool // in the header, as FlagPointer
	Pointer    Pointer
	Value      []byte
}

const itemHead = 24

// AppendBody appends the answer's body.
func (i *Item) AppendBody(b []byte) []byte {
	b = le.AppendUint64(b, i.Version)
	b = le.AppendUint64(b, i.Expiry)
	b = le.AppendUint16(b, uint16(i.ItemFlags))
	b = append(b, 0, 0)
	b = le.AppendUint32(b, uint32(len(i.Value)))
	if i.HasPointer {
		b = i.Pointer.append(b)
	}
	return append(b, i.Value...)
}

// BodySize returns the number of bytes that AppendBody appends.
func (i *Item) BodySize() int {
	n := itemHead + len(i.Value)
	if i.HasPointer {
		n += pointerSize
	}
	return n
}

// Parse decodes the body. Value is a slice of it.
func (i *Item) Parse(flags Flags, body []byte) error {
	*i = Item{HasPointer: flags&FlagPointer != 0}
	head := itemHead
	if i.HasPointer {
		head += pointerSize
	}
	if len(body) < head || uint64(len(body)-head) != uint64(le.Uint32(body[20:])) {
		return fmt.Errorf("%w: an item of %d bytes", ErrMalformed, len(body))
	}
	i.Version, i.Expiry, i.ItemFlags = le.Uint64(body), le.Uint64(body[8:]), ItemFlags(le.Uint16(body[16:]))
	if i.HasPointer {
		i.Pointer.parse(body[itemHead:])
	}
	i.Value = body[head:]
	return nil
}

// Written is the answer to a write, with any status.
type Written struct {
	// Version is that of the new item. With StatusExists and StatusVersion it is the present version, 0 for none.
	Version uint64
	Sum     int64 // of an ADD
}

// WrittenSize is the size of a write's answer.
const WrittenSize = 16

// AppendBody appends the answer's body.
func (w *Written) AppendBody(b []byte) []byte {
	return le.AppendUint64(le.AppendUint64(b, w.Version), uint64(w.Sum))
}

// Parse decodes the body.
func (w *Written) Parse(body []byte) error {
	if len(body) != WrittenSize {
		return fmt.Errorf("%w: the answer to a write, of %d bytes", ErrMalformed, len(body))
	}
	w.Version, w.Sum = le.Uint64(body), int64(le.Uint64(body[8:]))
	return nil
}

// Extent is the answer to an EXTENT with StatusOK: the fabric's key of the extent, word for word.
type Extent struct {
	Term uint64 // the reign in which the extent has this number
	Key  [5]uint64
}

const extentSize = 48

// AppendBody appends the answer's body.
func (e *Extent) AppendBody(b []byte) []byte {
	b = le.AppendUint64(b, e.Term)
	for _, w := range e.Key {
		b = le.AppendUint64(b, w)
	}
	return b
}

// Parse decodes the body.
func (e *Extent) Parse(body []byte) error {
	if len(body) != extentSize {
		return fmt.Errorf("%w: an extent of %d bytes", ErrMalformed, len(body))
	}
	e.Term = le.Uint64(body)
	for i := range e.Key {
		e.Key[i] = le.Uint64(body[8+8*i:])
	}
	return nil
}
