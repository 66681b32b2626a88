package cdb

import (
	"bufio"
	"encoding/binary"
	"io"
)

// Writer writes a database: Add each record, then Finish. One goroutine uses it. What was written before Finish is no database. It keeps 8
// bytes in memory for each record.
type Writer struct {
	to      io.WriteSeeker
	out     *bufio.Writer
	at      uint64
	count   uint64 // of records
	entries [tables][]entry
	err     error // the first one, which all later calls return
}

type entry struct{ hash, place uint32 }

// NewWriter begins a database at the present place of to, which should be the beginning of an empty file.
func NewWriter(to io.WriteSeeker) *Writer {
	w := &Writer{to: to, out: bufio.NewWriterSize(to, 1<<16), at: headerSize}
	_, w.err = w.out.Write(make([]byte, headerSize))
	return w
}

// Add adds a record. It does not look whether the key is there already.
func (w *Writer) Add(key, value []byte) error {
	if w.err != nil {
		return w.err
	}
	end := w.at + 8 + uint64(len(key)) + uint64(len(value))
	if w.count++; end+w.count*16 > maxSize { // the tables have two slots for each record
		w.err = ErrTooLarge
		return w.err
	}
	h := Hash(key)
	w.entries[h%tables] = append(w.entries[h%tables], entry{h, uint32(w.at)})
	w.pair(uint32(len(key)), uint32(len(value)))
	w.out.Write(key) // the writer keeps its first error
	_, w.err = w.out.Write(value)
	w.at = end
	return w.err
}

func (w *Writer) pair(a, b uint32) {
	var p [8]byte
	binary.LittleEndian.PutUint32(p[:], a)
	binary.LittleEndian.PutUint32(p[4:], b)
	if _, err := w.out.Write(p[:]); w.err == nil {
		w.err = err
	}
}

// Finish writes the tables and the header. It does not sync.
func (w *Writer) Finish() error {
	if w.err != nil {
		return w.err
	}
	var header [headerSize]byte
	for i := range w.entries {
		slots := make([]entry, 2*len(w.entries[i]))
		binary.LittleEndian.PutUint32(header[8*i:], uint32(w.at))
		binary.LittleEndian.PutUint32(header[8*i+4:], uint32(len(slots)))
		for _, e := range w.entries[i] {
			n := int(e.hash/tables) % len(slots)
			for slots[n].place != 0 {
				n = (n + 1) % len(slots)
			}
			slots[n] = e
		}
		for _, e := range slots {
			w.pair(e.hash, e.place)
		}
		w.at += uint64(len(slots)) * 8
	}
	if err := w.out.Flush(); w.err == nil {
		w.err = err
	}
	if w.err != nil {
		return w.err
	}
	if _, w.err = w.to.Seek(0, io.SeekStart); w.err == nil {
		_, w.err = w.to.Write(header[:])
	}
	return w.err
}
