package resp

import (
	"io"
	"strconv"
)

const (
	outputFlush = 64 << 10 // most bytes of answers that are kept before they are sent
	outputKeep  = 256 << 10
)

// A writer collects answers. After an error it drops everything, and err stays.
type writer struct {
	dst io.Writer
	out []byte
	v3  bool // RESP3
	err error
}

// flush sends the collected answers.
func (w *writer) flush() {
	if len(w.out) > 0 && w.err == nil {
		_, w.err = w.dst.Write(w.out)
	}
	w.sent()
}

// sent drops the collected answers.
func (w *writer) sent() {
	w.out = w.out[:0]
	if cap(w.out) > outputKeep {
		w.out = nil
	}
}

// bounded sends the collected answers if there are many bytes of them.
func (w *writer) bounded() {
	if len(w.out) >= outputFlush {
		w.flush()
	}
}

func (w *writer) head(kind byte, n int64) {
	w.out = append(w.out, kind)
	w.out = strconv.AppendInt(w.out, n, 10)
	w.out = append(w.out, '\r', '\n')
}

func (w *writer) simple(s string) {
	w.out = append(w.out, '+')
	w.out = append(w.out, s...)
	w.out = append(w.out, '\r', '\n')
}

// fail answers with an error, on one line whatever the text contains.
func (w *writer) fail(s string) {
	w.out = append(w.out, '-')
	for i := range len(s) {
		c := s[i]
		if c == '\r' || c == '\n' {
			c = ' '
		}
		w.out = append(w.out, c)
	}
	w.out = append(w.out, '\r', '\n')
}

func (w *writer) integer(n int64) { w.head(':', n) }

func (w *writer) bulk(b []byte) {
	w.head('$', int64(len(b)))
	if len(b) >= outputKeep { // the value is sent from where it is
		w.flush()
		if w.err == nil {
			_, w.err = w.dst.Write(b)
		}
	} else {
		w.out = append(w.out, b...)
	}
	w.out = append(w.out, '\r', '\n')
}

func (w *writer) text(s string) {
	w.head('$', int64(len(s)))
	w.out = append(w.out, s...)
	w.out = append(w.out, '\r', '\n')
}

func (w *writer) null() {
	if w.v3 {
		w.out = append(w.out, "_\r\n"...)
	} else {
		w.out = append(w.out, "$-1\r\n"...)
	}
}

func (w *writer) array(n int) { w.head('*', int64(n)) }

// dict begins a map of n pairs, which RESP2 has as an array.
func (w *writer) dict(n int) {
	if w.v3 {
		w.head('%', int64(n))
	} else {
		w.head('*', int64(2*n))
	}
}

// set begins a set of n elements, which RESP2 has as an array.
func (w *writer) set(n int) {
	if w.v3 {
		w.head('~', int64(n))
	} else {
		w.head('*', int64(n))
	}
}

// verbatim answers with a text for people to read.
func (w *writer) verbatim(s string) {
	if !w.v3 {
		w.text(s)
		return
	}
	w.head('=', int64(len(s)+4))
	w.out = append(w.out, "txt:"...)
	w.out = append(w.out, s...)
	w.out = append(w.out, '\r', '\n')
}
