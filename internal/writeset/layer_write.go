package writeset

import (
	"bytes"
	"encoding/binary"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// layerWriter writes a layer, record by record in key order. After an error the caller must discard it.
type layerWriter struct {
	l       *Layer
	buf     []byte // complete pages that are not written yet, and the page being filled
	from    int    // offset in buf of the page being filled
	at      int    // end of the records of that page
	offsets []uint16
}

const layerBufPages = 64 // pages in memory of a layer being written

func newLayerWriter(s *logstore.Store, c logstore.Claim) *layerWriter {
	p := s.NewPrivate()
	p.Claim = c
	return &layerWriter{l: &Layer{store: s, private: p}, buf: make([]byte, logstore.PageSize, layerBufPages*logstore.PageSize), at: layerHead}
}

// add appends a record; key is its whole key.
func (w *layerWriter) add(r *layerRecord, key []byte) error {
	var b [1 + 3*binary.MaxVarintLen64]byte
	head := binary.AppendUvarint(append(b[:0], r.code), uint64(r.keyLen))
	switch r.code {
	case layerPut:
		head = binary.AppendUvarint(head, uint64(len(r.value)))
	case layerRun, layerList:
		head = binary.AppendUvarint(head, r.valLen)
	}
	if r.code >= layerRun {
		head = binary.LittleEndian.AppendUint64(head, r.addr)
	}
	size := len(head) + len(r.key) + len(r.value)
	if w.at+size+(len(w.offsets)+1)*layerSlot > logstore.PageSize {
		if err := w.turn(); err != nil {
			return err
		}
	}
	w.offsets = append(w.offsets, uint16(w.at))
	p := w.buf[w.from:]
	w.at += copy(p[w.at:], head)
	w.at += copy(p[w.at:], r.key)
	w.at += copy(p[w.at:], r.value)
	l := w.l
	l.records++
	inLeaf := btree.RecordBytes(len(r.key), len(r.value))
	l.bytes += int64(inLeaf)
	l.widest = max(l.widest, inLeaf)
	l.last = key
	return nil
}

// turn completes the page being filled and begins the next one.
func (w *layerWriter) turn() error {
	p := w.buf[w.from:]
	binary.LittleEndian.PutUint16(p, uint16(len(w.offsets)))
	for i, at := range w.offsets {
		binary.LittleEndian.PutUint16(p[len(p)-(i+1)*layerSlot:], at)
	}
	w.offsets, w.at = w.offsets[:0], layerHead
	w.from += logstore.PageSize
	if len(w.buf) == cap(w.buf) {
		return w.write()
	}
	w.buf = w.buf[:len(w.buf)+logstore.PageSize]
	clear(w.buf[w.from:])
	return nil
}

// write writes the complete pages.
func (w *layerWriter) write() error {
	_, err := w.l.private.Write(w.buf[:w.from])
	w.from = 0
	w.buf = w.buf[:logstore.PageSize]
	clear(w.buf)
	return err
}

// finish returns the layer, which must have at least one record. It is durable after SyncPrivate.
func (w *layerWriter) finish() (*Layer, error) {
	if len(w.offsets) > 0 {
		if err := w.turn(); err != nil {
			return nil, err
		}
	}
	if w.from > 0 {
		if err := w.write(); err != nil {
			return nil, err
		}
	}
	extents, err := w.l.private.Finish()
	if err != nil {
		return nil, err
	}
	l, err := OpenLayer(w.l.store, extents)
	if err != nil {
		return nil, err
	}
	l.private, l.records, l.bytes, l.widest, l.last = w.l.private, w.l.records, w.l.bytes, w.l.widest, bytes.Clone(w.l.last)
	return l, nil
}

// discard frees the segments.
func (w *layerWriter) discard() { w.l.private.Discard() }
