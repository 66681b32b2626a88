package main

import (
	"encoding/binary"
	"fmt"
)

// Work reaches a store as packs of operations: a C store gets a whole pack in one crossing, a Go store runs the same pack in a loop of
// Go's. So no store is charged for the language it is written in.
//
// An operation is: code 1 | key length 4 | value length 4 | key | value, little endian. pack.h reads the same bytes.
const (
	opGet    = 'G' // look the key up; touch the value
	opFetch  = 'V' // look the key up and append length and value to Outcome.Values
	opPut    = 'P' // put into the transaction, which begins with its first put
	opCommit = 'C' // commit it, with the durability that the store was opened with
	opScan   = 'S' // read "value length" records from key on, touching each
)

// Ops is a pack of operations under construction. It is used again after Reset.
type Ops struct {
	buf   []byte
	Count int // operations but commits
}

// Reset empties the pack.
func (o *Ops) Reset() { o.buf, o.Count = o.buf[:0], 0 }

func (o *Ops) add(code byte, keyLen, valueLen int) {
	o.buf = append(o.buf, code)
	o.buf = binary.LittleEndian.AppendUint32(o.buf, uint32(keyLen))
	o.buf = binary.LittleEndian.AppendUint32(o.buf, uint32(valueLen))
}

// Get adds a lookup.
func (o *Ops) Get(key []byte) {
	o.add(opGet, len(key), 0)
	o.buf = append(o.buf, key...)
	o.Count++
}

// Fetch adds a lookup whose value is wanted back.
func (o *Ops) Fetch(key []byte) {
	o.add(opFetch, len(key), 0)
	o.buf = append(o.buf, key...)
	o.Count++
}

// Put adds a record to the pack's present transaction.
func (o *Ops) Put(key, value []byte) {
	o.add(opPut, len(key), len(value))
	o.buf = append(o.buf, key...)
	o.buf = append(o.buf, value...)
	o.Count++
}

// Commit ends the present transaction.
func (o *Ops) Commit() { o.add(opCommit, 0, 0) }

// Scan adds a range of at most limit records from the first one at or after from.
func (o *Ops) Scan(from []byte, limit int) {
	o.add(opScan, len(from), limit)
	o.buf = append(o.buf, from...)
	o.Count++
}

// Outcome adds up what a client's packs found.
type Outcome struct {
	Found, Missing uint64
	Scanned        uint64 // records
	Sum            uint64 // of what was touched, so that nothing is optimised away
	Values         []byte // of fetches: length 4, value; an absent key has length 1<<32-1
}

const absent = 1<<32 - 1

// touch is what every store does with each value it finds: it looks at the last byte.
func (o *Outcome) touch(value []byte) {
	o.Sum += uint64(len(value))
	if n := len(value); n > 0 {
		o.Sum += uint64(value[n-1])
	}
}

// A conn is what the adapter of a Go store provides for one goroutine; goClient makes a Client of it.
type conn interface {
	Get(key []byte) ([]byte, error) // nil if absent; valid until the next call
	EndReads()                      // comes after a run of Gets: a snapshot or a value may be released
	Put(key, value []byte) error    // both slices stay as they are until Commit has returned
	Commit() error
	Scan(from []byte, limit int, out *Outcome) error
	Close() error
}

type goClient struct{ conn }

func (c goClient) Do(ops *Ops, out *Outcome) error {
	reading := false
	for b := ops.buf; len(b) > 0; {
		code, keyLen, valueLen := b[0], int(binary.LittleEndian.Uint32(b[1:])), int(binary.LittleEndian.Uint32(b[5:]))
		key := b[9 : 9+keyLen : 9+keyLen]
		b = b[9+keyLen:]
		if reading && code != opGet && code != opFetch {
			c.EndReads()
			reading = false
		}
		switch code {
		case opGet, opFetch:
			reading = true
			value, err := c.Get(key)
			if err != nil {
				return err
			}
			out.got(value, code == opFetch)
		case opPut:
			if err := c.Put(key, b[:valueLen:valueLen]); err != nil {
				return err
			}
			b = b[valueLen:]
		case opCommit:
			if err := c.Commit(); err != nil {
				return err
			}
		case opScan:
			if err := c.Scan(key, valueLen, out); err != nil {
				return err
			}
		default:
			return fmt.Errorf("operation %q", code)
		}
	}
	if reading {
		c.EndReads()
	}
	return nil
}

func (o *Outcome) got(value []byte, fetch bool) {
	if value == nil {
		o.Missing++
		if fetch {
			o.Values = binary.LittleEndian.AppendUint32(o.Values, absent)
		}
		return
	}
	o.Found++
	if !fetch {
		o.touch(value)
		return
	}
	o.Values = binary.LittleEndian.AppendUint32(o.Values, uint32(len(value)))
	o.Values = append(o.Values, value...)
}
