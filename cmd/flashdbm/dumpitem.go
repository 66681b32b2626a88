package main

import "fmt"

// itemDecoder decodes one item of a dump that arrives in pieces. A piece may end in the middle of an escape.
type itemDecoder struct {
	header *dumpHeader // says in which form the item is
	state  itemState   // what the next character is part of
	high   byte        // the upper half of the byte, in stateLow
}

type itemState uint8

const (
	stateStart  itemState = iota // a new byte of the item
	stateEscape                  // format=print: after a backslash
	stateLow                     // the second of two digits
)

// decode appends to dst the bytes that chunk stands for; last says that the item ends with chunk. It returns what
// is wrong with the item, or "".
func (d *itemDecoder) decode(dst, chunk []byte, last bool) (_ []byte, problem string) {
	escapes := d.header.print
	for _, c := range chunk {
		switch {
		case d.state == stateStart && escapes && c == '\\':
			if d.header.lmdb {
				return dst, "mdb_dump -p of LMDB before 0.9.25 does not tell a backslash from an escape: make the dump again without -p"
			}
			d.state = stateEscape
		case d.state == stateStart && escapes:
			dst = append(dst, c)
		case d.state == stateEscape && c == '\\':
			dst = append(dst, '\\')
			d.state = stateStart
		default:
			digit, ok := hexDigit(c)
			if !ok {
				return dst, d.notDigit(c)
			}
			if d.state == stateLow {
				dst = append(dst, d.high|digit)
				d.state = stateStart
			} else {
				d.high = digit << 4
				d.state = stateLow
			}
		}
	}
	if last && d.state != stateStart {
		return dst, "the line ends in the middle of a byte: the dump is damaged, make it again"
	}
	return dst, ""
}

func (d *itemDecoder) notDigit(c byte) string {
	if d.header.print {
		return fmt.Sprintf("%q after a backslash is neither a backslash nor a hexadecimal digit: the dump is damaged, make it again", c)
	}
	return fmt.Sprintf("%q is not a hexadecimal digit: the dump is damaged, make it again", c)
}

func hexDigit(c byte) (digit byte, ok bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}
