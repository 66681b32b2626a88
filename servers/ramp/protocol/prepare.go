package protocol

import (
	"bytes"
	"fmt"
	"slices"
)

// A Prepare is the first phase of a PUT+, for the keys of one partition.
type Prepare struct {
	TS     Timestamp
	Client uint64 // random, drawn by the client: distinguishes transactions with the same timestamp
	Kind   Kind
	Hashes []uint64 // of all keys of the transaction, including those of other partitions, in ascending order
	Parts  []Part
}

// A Part is a key and its new value.
type Part struct {
	Removed bool // the key is removed
	Key     []byte
	Value   []byte
}

const (
	prepareHead = 24
	partHead    = 8
	partRemoved = 1
)

// Size returns the number of bytes that AppendBody appends.
func (p *Prepare) Size() int {
	n := prepareHead + 8*len(p.Hashes)
	for i := range p.Parts {
		n += partHead + len(p.Parts[i].Key) + len(p.Parts[i].Value)
	}
	return n
}

// AppendBody appends the request's body.
func (p *Prepare) AppendBody(b []byte) []byte {
	b = le.AppendUint64(b, uint64(p.TS))
	b = le.AppendUint64(b, p.Client)
	b = append(b, byte(p.Kind), 0)
	b = le.AppendUint16(b, uint16(len(p.Hashes)))
	b = le.AppendUint32(b, uint32(len(p.Parts)))
	for _, h := range p.Hashes {
		b = le.AppendUint64(b, h)
	}
	for i := range p.Parts {
		b = p.Parts[i].append(b)
	}
	return b
}

func (p *Part) append(b []byte) []byte {
	flags := uint16(0)
	if p.Removed {
		flags = partRemoved
	}
	b = le.AppendUint16(b, uint16(len(p.Key)))
	b = le.AppendUint16(b, flags)
	b = le.AppendUint32(b, uint32(len(p.Value)))
	b = append(b, p.Key...)
	return append(b, p.Value...)
}

// Parse decodes the body. It reuses the slices of p; keys and values are parts of the body.
func (p *Prepare) Parse(b []byte) error {
	bad := func(what string) error { return fmt.Errorf("%w: PREPARE of %d bytes: %s", ErrMalformed, len(b), what) }
	if len(b) < prepareHead {
		return bad("its head is cut off")
	}
	p.TS, p.Client, p.Kind = Timestamp(le.Uint64(b)), le.Uint64(b[8:]), Kind(b[16])
	n, parts := int(le.Uint16(b[18:])), le.Uint32(b[20:])
	p.Hashes, p.Parts = p.Hashes[:0], p.Parts[:0]
	switch {
	case p.TS == 0 || p.Kind > KindBloom:
		return bad("no timestamp, or an unknown kind")
	case n == 0 || n > MaxKeys || parts == 0 || parts > uint32(n):
		return bad(fmt.Sprintf("%d hashes, %d parts", n, parts))
	case len(b) < prepareHead+8*n:
		return bad("its hashes are cut off")
	}
	r := b[prepareHead:]
	for i := range n {
		h := le.Uint64(r[8*i:])
		if i > 0 && h <= p.Hashes[i-1] {
			return bad("its hashes are not in order")
		}
		p.Hashes = append(p.Hashes, h)
	}
	r = r[8*n:]
	for range parts {
		if len(r) < partHead {
			return bad("a part is cut off")
		}
		klen, flags, vlen := int(le.Uint16(r)), le.Uint16(r[2:]), int64(le.Uint32(r[4:]))
		if klen > MaxKey || vlen > MaxValue || flags > partRemoved || int64(len(r)) < partHead+int64(klen)+vlen || flags == partRemoved && vlen > 0 {
			return bad(fmt.Sprintf("a part with a key of %d bytes and a value of %d", klen, vlen))
		}
		k, v := r[partHead:partHead+klen:partHead+klen], r[partHead+klen:partHead+klen+int(vlen)]
		p.Parts = append(p.Parts, Part{flags&partRemoved != 0, k, v[:len(v):len(v)]})
		r = r[partHead+klen+int(vlen):]
	}
	if len(r) > 0 {
		return bad("more than its parts")
	}
	return nil
}

// A Transaction identifies a transaction. It is the body of COMMIT, ABORT and UNLOCK.
type Transaction struct {
	TS     Timestamp
	Client uint64
}

// TransactionSize is the size of a Transaction's body.
const TransactionSize = 16

// AppendBody appends the request's body.
func (d *Transaction) AppendBody(b []byte) []byte {
	return le.AppendUint64(le.AppendUint64(b, uint64(d.TS)), d.Client)
}

// Parse decodes the body.
func (d *Transaction) Parse(b []byte) error {
	if len(b) != TransactionSize || le.Uint64(b) == 0 {
		return fmt.Errorf("%w: a decision of %d bytes", ErrMalformed, len(b))
	}
	d.TS, d.Client = Timestamp(le.Uint64(b)), le.Uint64(b[8:])
	return nil
}

// Newest is the body of the answer to a PREPARE: the newest timestamp that the partition knows, which the client's
// next one has to exceed. With StatusClock it is the partition's time.
type Newest struct{ TS Timestamp }

// NewestSize is the size of the body of Newest.
const NewestSize = 8

// AppendBody appends the answer's body.
func (n *Newest) AppendBody(b []byte) []byte { return le.AppendUint64(b, uint64(n.TS)) }

// Parse decodes the body.
func (n *Newest) Parse(b []byte) error {
	if len(b) != NewestSize {
		return fmt.Errorf("%w: an answer to PREPARE of %d bytes", ErrMalformed, len(b))
	}
	n.TS = Timestamp(le.Uint64(b))
	return nil
}

// Clone returns a copy that shares no memory with p.
func (p *Prepare) Clone() *Prepare {
	c := *p
	c.Hashes, c.Parts = slices.Clone(p.Hashes), slices.Clone(p.Parts)
	for i := range c.Parts {
		c.Parts[i].Key, c.Parts[i].Value = bytes.Clone(c.Parts[i].Key), bytes.Clone(c.Parts[i].Value)
	}
	return &c
}
