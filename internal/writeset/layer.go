package writeset

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sort"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// A Layer is a sorted run of a spilled write set: entries in key order, each key once, in raw pages of private
// segments. Each page can be decoded by itself:
//
//	count u16 | records, one after the other | free | offset of each record u16, that of the first at the end of the page
//
//	put      1 | key length uvarint | value length uvarint | key | value
//	delete   2 | key length uvarint | key
//	run      3 | key length uvarint | value length uvarint | address of the run u64 | key
//	list     4 | the same; the run lists the extents of a large value
//	long     5 | key length uvarint | address of a run that holds the key u64 | key: deletes a key longer than a leaf has room for
//
// Of a key longer than btree.MaxInlineKey only that many bytes are in the record; the run has the whole key before
// the value. So every record fits a page. Runs lie in private segments, too, and stay there when the transaction
// commits.
//
// A layer never changes. Its pages are read where the file is mapped, so it takes only a few bytes of memory for
// each MiB.
type Layer struct {
	store   *logstore.Store
	pieces  [][]byte // its pages in the mapping
	starts  []int    // index of the first page of each piece
	pages   int
	records int64
	bytes   int64 // approximate number of bytes that the records take in leaves
	widest  int   // most bytes that one record takes in a leaf
	tier    int   // how often its records were rewritten
	private *logstore.Private
	extents []logstore.Extent
	last    []byte // the greatest key
}

const (
	layerPut    = 1
	layerDelete = 2
	layerRun    = 3
	layerList   = 4
	layerLong   = 5

	layerHead = 2 // bytes of a page before the first record
	layerSlot = 2 // bytes of one offset
)

// layerRecord is a decoded record.
type layerRecord struct {
	code   byte
	key    []byte // the part of the key in the page
	keyLen int    // bytes of the whole key
	value  []byte // of a put
	valLen uint64 // of a run or list
	addr   logstore.Addr
}

// deletes reports whether the record deletes its key.
func (r *layerRecord) deletes() bool { return r.code == layerDelete || r.code == layerLong }

// ref returns the run to which the record refers.
func (r *layerRecord) ref() (ref btree.Ref, ok bool) {
	if r.code == layerPut || r.code == layerDelete {
		return ref, false
	}
	ref = btree.Ref{Kind: btree.Run, ID: r.addr, ValueLen: r.valLen}
	if r.keyLen > btree.MaxInlineKey {
		ref.KeyLen = uint32(r.keyLen)
	}
	if r.code == layerList {
		ref.Kind = btree.Extents
	}
	return ref, true
}

var errLayer = fmt.Errorf("%w: a page of a write set that was not kept in memory", logstore.ErrCorrupt)

// layerCount returns the number of records in a page.
func layerCount(p []byte) (int, error) {
	n := int(binary.LittleEndian.Uint16(p))
	if n == 0 || layerHead+n*layerSlot > len(p) {
		return 0, errLayer
	}
	return n, nil
}

// getLayerRecord decodes record i of a page, which must have more than i records.
func getLayerRecord(p []byte, i int) (r layerRecord, err error) {
	at := int(binary.LittleEndian.Uint16(p[len(p)-(i+1)*layerSlot:]))
	if at < layerHead || at+2 > len(p) {
		return r, errLayer
	}
	b := p[at:]
	r.code, b = b[0], b[1:]
	length := func() uint64 {
		n, size := binary.Uvarint(b)
		if size <= 0 {
			err = errLayer
			return 0
		}
		b = b[size:]
		return n
	}
	keyLen, room := length(), uint64(0)
	if keyLen > btree.MaxKey {
		return r, errLayer
	}
	r.keyLen = int(keyLen)
	long := r.keyLen > btree.MaxInlineKey
	switch r.code {
	case layerPut:
		room = length()
	case layerRun, layerList:
		r.valLen = length()
	case layerDelete, layerLong:
	default:
		return r, errLayer
	}
	if r.code >= layerRun {
		if len(b) < 8 {
			return r, errLayer
		}
		r.addr, b = binary.LittleEndian.Uint64(b), b[8:]
	}
	part := min(r.keyLen, btree.MaxInlineKey)
	if err != nil || long && r.code < layerRun || r.code == layerLong && !long || r.valLen > btree.MaxValue ||
		room > btree.MaxInline || part+int(room) > len(b) || r.code == layerPut && !btree.FitsInline(r.keyLen, int(room)) {
		return r, errLayer
	}
	r.key = b[:part:part]
	if r.code == layerPut {
		r.value = b[part : part+int(room) : part+int(room)]
	}
	return r, nil
}

// ReadLayerPage calls f for each record of a page of a layer. If a key is long, op.Key is only its beginning, and
// op.Ref is the run that has the whole key, even if op is a delete. Keys and values are slices of p.
func ReadLayerPage(p []byte, f func(op btree.Op)) error {
	n, err := layerCount(p)
	if err != nil {
		return err
	}
	for i := range n {
		r, err := getLayerRecord(p, i)
		if err != nil {
			return err
		}
		op := btree.Op{Key: r.key, Value: r.value, Delete: r.deletes()}
		if ref, ok := r.ref(); ok {
			op.Ref = &ref
		}
		f(op)
	}
	return nil
}

// OpenLayer returns the layer with the pages in the given extents. It verifies their checksums. For that, Store.Raw
// first syncs writes that no sync has covered. So an open layer is durable, and so are the runs and large values
// written before it.
func OpenLayer(s *logstore.Store, extents []logstore.Extent) (*Layer, error) {
	l := &Layer{store: s, extents: extents}
	for _, x := range extents {
		b, err := s.Raw(x)
		if err != nil {
			return nil, err
		}
		if len(b)%logstore.PageSize != 0 {
			return nil, errLayer
		}
		l.pieces, l.starts = append(l.pieces, b), append(l.starts, l.pages)
		l.pages += len(b) / logstore.PageSize
	}
	if l.pages == 0 {
		return nil, errLayer
	}
	return l, nil
}

// Extents returns where the pages of the layer lie.
func (l *Layer) Extents() []logstore.Extent { return l.extents }

func (l *Layer) page(i int) []byte {
	n := sort.SearchInts(l.starts, i+1) - 1
	o := (i - l.starts[n]) * logstore.PageSize
	return l.pieces[n][o : o+logstore.PageSize : o+logstore.PageSize]
}

// keyOf returns the whole key of a record.
func (l *Layer) keyOf(r *layerRecord) ([]byte, error) {
	if r.keyLen == len(r.key) {
		return r.key, nil
	}
	payload, err := l.store.Run(r.addr)
	if err != nil {
		return nil, err
	}
	if len(payload) < r.keyLen || !bytes.HasPrefix(payload, r.key) {
		return nil, errLayer
	}
	return payload[:r.keyLen:r.keyLen], nil
}

// entryOf returns a record as an Entry, with its value or the place of the value.
func (l *Layer) entryOf(key []byte, r *layerRecord) (Entry, error) {
	en := Entry{Key: key, Value: r.value, Deleted: r.deletes()}
	if r.code != layerRun && r.code != layerList {
		return en, nil
	}
	payload, err := l.store.Run(r.addr)
	if err != nil {
		return en, err
	}
	head := 0
	if r.keyLen > btree.MaxInlineKey {
		head = r.keyLen
	}
	if len(payload) < head {
		return en, errLayer
	}
	if payload = payload[head:len(payload):len(payload)]; r.code == layerRun {
		en.Value = payload
		return en, nil
	}
	extents, err := logstore.GetExtents(payload)
	en.Ref = &ValueRef{Len: r.valLen, Extents: extents}
	return en, err
}

// compare compares the key of record i of page p with key.
func (l *Layer) compare(p []byte, i int, key []byte) (int, error) {
	r, err := getLayerRecord(p, i)
	if err != nil {
		return 0, err
	}
	if r.keyLen > len(r.key) && bytes.HasPrefix(key, r.key) {
		if r.key, err = l.keyOf(&r); err != nil {
			return 0, err
		}
	}
	return bytes.Compare(r.key, key), nil
}

// find returns the place of the first record with a key >= key; page is l.pages if there is none.
func (l *Layer) find(key []byte) (page, index int, err error) {
	low, high := 0, l.pages // pages before low begin at or below key, pages from high on begin above it
	for low < high {
		mid := int(uint(low+high) / 2)
		order, err := l.compare(l.page(mid), 0, key)
		if err != nil {
			return 0, 0, err
		}
		if order <= 0 {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == 0 {
		return 0, 0, nil
	}
	page = low - 1
	p := l.page(page)
	count, err := layerCount(p)
	if err != nil {
		return 0, 0, err
	}
	low, high = 0, count
	for low < high {
		mid := int(uint(low+high) / 2)
		order, err := l.compare(p, mid, key)
		if err != nil {
			return 0, 0, err
		}
		if order < 0 {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == count {
		return page + 1, 0, nil
	}
	return page, low, nil
}
