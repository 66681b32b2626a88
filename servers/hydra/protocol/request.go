package protocol

import (
	"encoding/binary"
	"fmt"
)

var le = binary.LittleEndian

// Request is a request for one key, or for an extent, or for the map. RENEW, SCAN and BATCH have types of their own.
type Request struct {
	Op    Op
	Flags Flags
	// Number and Oldest are for writes: the write's own number, and the least number of this client without an
	// answer.
	Number, Oldest uint64
	// Expiry is in milliseconds since 1970 by the shard's clock, or, with FlagRelative, from when it serves the
	// write. 0: never.
	Expiry    uint64
	Operand   uint64 // COMPARE-AND-SET: the expected version; ADD: the summand, as int64
	Extent    uint32 // for EXTENT
	ItemFlags ItemFlags
	Key       []byte
	Value     []byte
}

// writeHead is the size of the fixed part of a write's body.
const writeHead = 40

// AppendBody appends the request's body. The caller has checked the limits of key and value.
func (r *Request) AppendBody(b []byte) []byte {
	switch {
	case r.Op.IsWrite():
		b = le.AppendUint64(b, r.Number)
		b = le.AppendUint64(b, r.Oldest)
		b = le.AppendUint64(b, r.Expiry)
		b = le.AppendUint64(b, r.Operand)
		b = le.AppendUint16(b, uint16(len(r.Key)))
		b = le.AppendUint16(b, uint16(r.ItemFlags))
		b = le.AppendUint32(b, uint32(len(r.Value)))
		b = append(b, r.Key...)
		return append(b, r.Value...)
	case r.Op == OpExtent:
		return le.AppendUint32(b, r.Extent)
	default: // GET, AUTH: only the key or the proof
		return append(b, r.Key...)
	}
}

// BodySize returns the number of bytes that AppendBody appends.
func (r *Request) BodySize() int {
	switch {
	case r.Op.IsWrite():
		return writeHead + len(r.Key) + len(r.Value)
	case r.Op == OpExtent:
		return 4
	default:
		return len(r.Key)
	}
}

// KeyOf returns the key of a request for one key, nil if it has none or is invalid. It is a slice of the body.
func KeyOf(op Op, body []byte) []byte {
	switch {
	case op == OpGet:
		return body
	case op.IsWrite() && len(body) >= writeHead:
		if end := writeHead + int(le.Uint16(body[32:])); end <= len(body) {
			return body[writeHead:end:end]
		}
	}
	return nil
}

// Parse decodes the body of a request other than RENEW, SCAN and BATCH. Key and Value are slices of the body.
func (r *Request) Parse(op Op, flags Flags, body []byte) error {
	*r = Request{Op: op, Flags: flags}
	switch {
	case op.IsWrite():
		if len(body) < writeHead {
			return fmt.Errorf("%w: %v of %d bytes", ErrMalformed, op, len(body))
		}
		r.Number, r.Oldest = le.Uint64(body), le.Uint64(body[8:])
		r.Expiry, r.Operand = le.Uint64(body[16:]), le.Uint64(body[24:])
		klen, vlen := int(le.Uint16(body[32:])), le.Uint32(body[36:])
		r.ItemFlags = ItemFlags(le.Uint16(body[34:]))
		if klen > MaxKey || vlen > MaxValue || len(body) != writeHead+klen+int(vlen) {
			return fmt.Errorf("%w: %v of %d bytes, with a key of %d and a value of %d", ErrMalformed, op, len(body), klen, vlen)
		}
		if r.Number == 0 || r.Oldest == 0 || r.Oldest > r.Number || r.Number-r.Oldest >= Window {
			return fmt.Errorf("%w: %v with number %d, oldest %d", ErrMalformed, op, r.Number, r.Oldest)
		}
		if (op == OpRemove || op == OpAdd || flags&FlagRemove != 0) && vlen != 0 {
			return fmt.Errorf("%w: %v with a value", ErrMalformed, op)
		}
		r.Key, r.Value = body[writeHead:writeHead+klen:writeHead+klen], body[writeHead+klen:]
	case op == OpExtent:
		if len(body) != 4 {
			return fmt.Errorf("%w: %v of %d bytes", ErrMalformed, op, len(body))
		}
		r.Extent = le.Uint32(body)
	case op == OpGet:
		if len(body) > MaxKey {
			return fmt.Errorf("%w: a key of %d bytes", ErrMalformed, len(body))
		}
		r.Key = body
	case op == OpAuth:
		if len(body) != ProofSize {
			return fmt.Errorf("%w: a proof of %d bytes", ErrMalformed, len(body))
		}
		r.Key = body
	case op == OpMap:
		if len(body) != 0 {
			return fmt.Errorf("%w: %v of %d bytes", ErrMalformed, op, len(body))
		}
	default:
		return fmt.Errorf("%w: %v", ErrMalformed, op)
	}
	return nil
}
