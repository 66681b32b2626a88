package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"io"
	"strconv"
	"time"
	"unicode/utf8"
)

// heldBytes is the longest value that is formatted in memory. Longer values, which may be gigabytes long, are read
// piece by piece.
const heldBytes = 1 << 20

// openValue opens a value for reading, each time from its beginning. A long value is read twice, because the form
// in which it is shown depends on all of its bytes.
type openValue func() (r io.ReadCloser, size int64, err error)

// pieceBytes is the size of a piece of a long value.
const pieceBytes = 64 << 10

// eachPiece calls fn with the bytes of r, piece by piece. A piece does not end in the middle of a UTF-8 character.
func eachPiece(r io.Reader, fn func(piece []byte) error) error {
	buf := make([]byte, pieceBytes)
	kept := 0
	for {
		n, err := r.Read(buf[kept:])
		n += kept
		if err != nil && err != io.EOF {
			return err
		}
		whole := n
		if err == nil {
			whole = wholeCharacters(buf[:n])
		}
		if whole > 0 {
			if err := fn(buf[:whole]); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		kept = copy(buf, buf[whole:n])
	}
}

// wholeCharacters returns the length of b without an incomplete character at its end.
func wholeCharacters(b []byte) int {
	for i := len(b) - 1; i >= max(0, len(b)-utf8.UTFMax+1); i-- {
		if utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) {
				return i
			}
			break
		}
	}
	return len(b)
}

// textForm has the properties of a value: see the functions of these names.
type textForm struct {
	utf8, harmless, plain bool
	lineEnd               bool // the value ends with a line end
}

func formOf(r io.Reader) (form textForm, err error) {
	form = textForm{utf8: true, harmless: true, plain: true}
	var first, last byte
	size := 0
	err = eachPiece(r, func(piece []byte) error {
		form.utf8 = form.utf8 && utf8.Valid(piece)
		form.harmless = form.harmless && harmless(piece)
		form.plain = form.plain && printable(piece, strconv.IsPrint)
		if size == 0 {
			first = piece[0]
		}
		last = piece[len(piece)-1]
		size += len(piece)
		return nil
	})
	form.plain = form.plain && size > 0 && first != '"' && first != ' ' && last != ' '
	form.lineEnd = last == '\n'
	return form, err
}

// withForm reads a value to find out its form, opens it again, and calls fn.
func withForm(open openValue, fn func(r io.Reader, form textForm) error) error {
	r, _, err := open()
	if err != nil {
		return err
	}
	form, err := formOf(r)
	if err = closeAfter(r, err); err != nil {
		return err
	}
	return withValue(open, func(r io.Reader) error { return fn(r, form) })
}

func withValue(open openValue, fn func(r io.Reader) error) error {
	r, _, err := open()
	if err != nil {
		return err
	}
	return closeAfter(r, fn(r))
}

func closeAfter(r io.Closer, err error) error {
	if cerr := r.Close(); err == nil {
		err = cerr
	}
	return err
}

// writeLong writes a value like notation.format.
func (n *notation) writeLong(w *bufio.Writer, open openValue) error {
	if n.hex || n.base64 {
		return withValue(open, func(r io.Reader) error {
			encoder := n.encoder(w)
			_, err := io.Copy(encoder, r)
			return closeAfter(encoder, err)
		})
	}
	return withForm(open, func(r io.Reader, form textForm) error {
		if form.plain {
			_, err := io.Copy(w, r)
			return err
		}
		return writeQuoted(w, r)
	})
}

// writeQuoted writes the result of strconv.Quote for all of r.
func writeQuoted(w *bufio.Writer, r io.Reader) error {
	return writeStringLiteral(w, r, func(piece []byte) ([]byte, error) { return strconv.AppendQuote(nil, string(piece)), nil })
}

// writeJSONString writes the text that r returns as a JSON string.
func writeJSONString(w *bufio.Writer, r io.Reader) error {
	return writeStringLiteral(w, r, func(piece []byte) ([]byte, error) {
		var literal bytes.Buffer
		err := printJSON(&literal, string(piece))
		return bytes.TrimSuffix(literal.Bytes(), []byte("\n")), err
	})
}

// writeStringLiteral writes one literal, joined from the literals of the pieces of r.
func writeStringLiteral(w *bufio.Writer, r io.Reader, literal func(piece []byte) ([]byte, error)) error {
	w.WriteByte('"')
	err := eachPiece(r, func(piece []byte) error {
		quoted, err := literal(piece)
		if err != nil {
			return err
		}
		_, err = w.Write(quoted[1 : len(quoted)-1])
		return err
	})
	if err != nil {
		return err
	}
	return w.WriteByte('"')
}

// writeJSONRecord writes a line with the JSON object of a record: key, value, and its time if it expires, in the
// form of addTo and printJSON. The value may be long.
func (n *notation) writeJSONRecord(w *bufio.Writer, key []byte, expires time.Time, open openValue) error {
	record := map[string]any{}
	n.addTo(record, "key", key)
	if !expires.IsZero() {
		record["expires"] = expires.UTC().Round(time.Millisecond).Format(time.RFC3339Nano)
	}
	var line bytes.Buffer
	err := printJSON(&line, record)
	if err != nil {
		return err
	}
	w.Write(bytes.TrimSuffix(line.Bytes(), []byte("}\n")))
	encoded := func(name string, encoder io.WriteCloser, r io.Reader) error {
		w.WriteString(`,"` + name + `":"`)
		_, err := io.Copy(encoder, r)
		if err = closeAfter(encoder, err); err != nil {
			return err
		}
		return w.WriteByte('"')
	}
	if n.hex {
		err = withValue(open, func(r io.Reader) error { return encoded("value_hex", nopCloser{hex.NewEncoder(w)}, r) })
	} else {
		err = withForm(open, func(r io.Reader, form textForm) error {
			if n.base64 || !form.utf8 {
				return encoded("value_base64", base64.NewEncoder(base64.StdEncoding, w), r)
			}
			w.WriteString(`,"value":`)
			return writeJSONString(w, r)
		})
	}
	if err != nil {
		return err
	}
	_, err = w.WriteString("}\n")
	return err
}
