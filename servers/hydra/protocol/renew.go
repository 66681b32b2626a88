package protocol

import (
	"fmt"
	"iter"
)

// AppendRenew appends one key to the body of a RENEW. A lease is renewed only if the key's item still has that
// version. A RENEW without keys requests only the tenure.
func AppendRenew(b []byte, version uint64, key []byte) []byte {
	b = le.AppendUint64(b, version)
	b = le.AppendUint16(b, uint16(len(key)))
	return append(b, key...)
}

// Renewal is one key of a RENEW.
type Renewal struct {
	Version uint64
	Key     []byte
}

const renewalHead = 10

// CheckRenew reports whether the body of a RENEW is valid, and how many keys it has.
func CheckRenew(body []byte) (n int, err error) {
	for b := body; len(b) > 0; n++ {
		if len(b) < renewalHead || n == MaxRenew {
			return 0, fmt.Errorf("%w: a RENEW of %d bytes, at key %d", ErrMalformed, len(body), n)
		}
		klen := int(le.Uint16(b[8:]))
		if klen > MaxKey || len(b) < renewalHead+klen {
			return 0, fmt.Errorf("%w: a RENEW of %d bytes, at key %d", ErrMalformed, len(body), n)
		}
		b = b[renewalHead+klen:]
	}
	return n, nil
}

// Renewals yields the keys of a body that CheckRenew has found valid. Keys are slices of it.
func Renewals(body []byte) iter.Seq[Renewal] {
	return func(yield func(Renewal) bool) {
		for b := body; len(b) > 0; {
			end := renewalHead + int(le.Uint16(b[8:]))
			if !yield(Renewal{le.Uint64(b), b[renewalHead:end:end]}) {
				return
			}
			b = b[end:]
		}
	}
}

// Renewed is the answer to a RENEW: the tenure of the reign, and the lease of each key in the order of the request,
// in microseconds; 0: not renewed.
type Renewed struct {
	Term   uint64
	Tenure uint32
	Leases []uint32
}

const renewedHead = 16

// AppendBody appends the answer's body.
func (r *Renewed) AppendBody(b []byte) []byte {
	b = le.AppendUint64(b, r.Term)
	b = le.AppendUint32(b, r.Tenure)
	b = le.AppendUint32(b, uint32(len(r.Leases)))
	for _, l := range r.Leases {
		b = le.AppendUint32(b, l)
	}
	return b
}

// Parse decodes the body. It reuses the memory of r.Leases.
func (r *Renewed) Parse(body []byte) error {
	if len(body) < renewedHead {
		return fmt.Errorf("%w: the answer to a RENEW, of %d bytes", ErrMalformed, len(body))
	}
	r.Term, r.Tenure, r.Leases = le.Uint64(body), le.Uint32(body[8:]), r.Leases[:0]
	n := le.Uint32(body[12:])
	if n > MaxRenew || len(body) != renewedHead+4*int(n) {
		return fmt.Errorf("%w: the answer to a RENEW of %d keys, of %d bytes", ErrMalformed, n, len(body))
	}
	for b := body[renewedHead:]; len(b) > 0; b = b[4:] {
		r.Leases = append(r.Leases, le.Uint32(b))
	}
	return nil
}
