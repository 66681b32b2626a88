package store

import "fmt"

// The changes of an entry travel between replicas, and so do the records of a copy. Each is encoded as
//
//	size of the key u32 | size of the value u32, 0xFFFFFFFF: the record is deleted | key | value
//
// All integers are little-endian.
const (
	changeHead   = 8
	changeDelete = 1<<32 - 1
)

// ChangesSize returns the number of bytes that AppendChanges appends.
func ChangesSize(list []Change) (n int) {
	for i := range list {
		n += changeHead + len(list[i].Key) + len(list[i].Value)
	}
	return n
}

// AppendChanges appends encoded changes.
func AppendChanges(b []byte, list []Change) []byte {
	for i := range list {
		c := &list[i]
		b = le.AppendUint32(b, uint32(len(c.Key)))
		if c.Delete {
			b = append(le.AppendUint32(b, changeDelete), c.Key...)
			continue
		}
		b = le.AppendUint32(b, uint32(len(c.Value)))
		b = append(append(b, c.Key...), c.Value...)
	}
	return b
}

// ParseChanges decodes changes. Keys and values are parts of b.
func ParseChanges(b []byte) (list []Change, err error) {
	for len(b) > 0 {
		if len(b) < changeHead {
			return nil, fmt.Errorf("%w: the head of a change, of %d bytes", ErrCorrupt, len(b))
		}
		k, v := uint64(le.Uint32(b)), uint64(le.Uint32(b[4:]))
		c := Change{Delete: v == changeDelete}
		if c.Delete {
			v = 0
		}
		if b = b[changeHead:]; uint64(len(b)) < k+v {
			return nil, fmt.Errorf("%w: a change of %d bytes, of which there are %d", ErrCorrupt, k+v, len(b))
		}
		c.Key, c.Value = b[:k:k], b[k:k+v:k+v]
		if c.Delete {
			c.Value = nil
		}
		list = append(list, c)
		b = b[k+v:]
	}
	return list, nil
}
