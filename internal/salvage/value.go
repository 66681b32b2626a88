package salvage

import (
	"bytes"
	"io"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// A runValue is a value run that was read.
type runValue struct {
	logstore.RunHead
	head    logstore.PageHead
	payload []byte
}

// run reads the run at a. If the header of its segment is lost, the checksum of the payload suffices: the run of a
// large value is often the only page of a private segment that has the salt in its checksum, and one page does not
// show the salt. Callers compare its key and its length to make sure that it is the right run.
func (s *salvager) run(a logstore.Addr) (r runValue, err error) {
	p := make([]byte, logstore.PageSize)
	if r.head, err = s.f.ReadSound(a, p); err != nil {
		if s.f.Read(a, p) != nil || s.f.Segment(s.f.SegmentOf(a)).HasHeader {
			return r, err
		}
		r.head = logstore.DecodePageHead(p)
	}
	var ok bool
	r.RunHead, ok = logstore.DecodeRunHead(p, s.f.SegmentPages)
	pages := uint64(logstore.RunPages(r.Bytes))
	switch {
	case r.head.Kind != logstore.KindRun:
		return r, s.f.Error(a, "kind %d where a value run belongs", r.head.Kind)
	case !ok || s.f.SegmentOf(a+pages-1) != s.f.SegmentOf(a) || a+pages > s.f.Pages:
		return r, s.f.Error(a, "length of a value run")
	}
	if pages > 1 {
		whole := make([]byte, pages*logstore.PageSize)
		copy(whole, p)
		if err := s.f.Read(a+1, whole[logstore.PageSize:]); err != nil {
			return r, err
		}
		p = whole
	}
	r.payload = p[logstore.RunPayloadAt : logstore.RunPayloadAt+r.Bytes]
	if logstore.Checksum(0, r.payload) != r.CRC {
		return r, s.f.Error(a, "checksum of a value run")
	}
	return r, nil
}

// keyReads bounds the bytes read for long keys: this many times the length of the file.
const keyReads = 16

// keyOf returns the whole key of a record.
func (s *salvager) keyOf(c btree.Cell) ([]byte, error) {
	if !c.IsLong() {
		return c.Key(), nil
	}
	ref := c.Ref()
	r, err := s.run(ref.ID)
	if err != nil {
		return nil, err
	}
	if s.keyBytes += int64(len(r.payload)); s.keyBytes > keyReads*s.f.Size { // in a malicious file, many records may refer to one long run
		return nil, s.f.Error(ref.ID, "too many references lead to runs with keys")
	}
	if uint64(ref.KeyLen) > uint64(len(r.payload)) || !bytes.HasPrefix(r.payload, c.Key()) || int(ref.KeyLen) <= len(c.Key()) {
		return nil, s.f.Error(ref.ID, "the run does not hold the key of its record")
	}
	return r.payload[:ref.KeyLen], nil
}

// extentOnce reads an extent, which must be in the file and must not have been read
// before.
func (s *salvager) extentOnce(x logstore.Extent) ([]byte, error) {
	pages := uint64(x.Pages())
	if pages == 0 || x.Addr+pages > s.f.Pages || x.Addr+pages < x.Addr || s.f.SegmentOf(x.Addr) != s.f.SegmentOf(x.Addr+pages-1) {
		return nil, s.f.Error(x.Addr, "an extent of %d pages", pages)
	}
	if !s.once.Add(x.Addr, x.Pages()) {
		return nil, s.f.Error(x.Addr, "a second reference leads here")
	}
	return s.extent(x)
}

// extent reads an extent that is in the file.
func (s *salvager) extent(x logstore.Extent) ([]byte, error) {
	b := make([]byte, x.Pages()*logstore.PageSize)
	if err := s.f.Read(x.Addr, b); err != nil {
		return nil, err
	}
	if b = b[:x.Bytes]; logstore.Checksum(0, b) != x.CRC {
		return nil, s.f.Error(x.Addr, "checksum of a part of a large value")
	}
	return b, nil
}

// value returns the value that a reference refers to: as bytes or, if it is large, as extents, which it verifies.
// No page is used for two values. written is the group of the value or a later one: a page of a group after
// written holds another value.
func (s *salvager) value(key []byte, ref *btree.Ref, written uint64) (value []byte, large []logstore.Extent, err error) {
	if ref.Kind == btree.Logged {
		value, err = s.logged(key, ref, written)
		return value, nil, err
	}
	if !s.once.Add(ref.ID, 1) {
		return nil, nil, s.f.Error(ref.ID, "a second reference leads here")
	}
	r, err := s.run(ref.ID)
	switch {
	case err != nil:
		return nil, nil, err
	case r.head.No > written:
		return nil, nil, s.f.Error(ref.ID, "the value was written over")
	case uint64(ref.KeyLen) > uint64(len(r.payload)) || !bytes.Equal(r.payload[:ref.KeyLen], key[:min(len(key), int(ref.KeyLen))]):
		return nil, nil, s.f.Error(ref.ID, "the run does not hold the key of its record")
	case r.List != (ref.Kind == btree.Extents):
		return nil, nil, s.f.Error(ref.ID, "the run holds another kind of value")
	}
	rest := r.payload[ref.KeyLen:]
	if !r.List {
		if uint64(len(rest)) != ref.ValueLen {
			return nil, nil, s.f.Error(ref.ID, "length of a value")
		}
		return rest, nil, nil
	}
	extents, err := logstore.GetExtents(rest)
	if err != nil {
		return nil, nil, s.f.Error(ref.ID, "%v", err)
	}
	sum := uint64(0)
	for _, x := range extents {
		sum += uint64(x.Bytes)
		if _, err := s.extentOnce(x); err != nil {
			return nil, nil, err
		}
	}
	if sum != ref.ValueLen {
		return nil, nil, s.f.Error(ref.ID, "length of a large value")
	}
	return nil, extents, nil
}

// logged returns a value in a page of redo records.
func (s *salvager) logged(key []byte, ref *btree.Ref, written uint64) ([]byte, error) {
	place := logstore.Place(ref.ID)
	a := place.Addr()
	if !s.ordinals.Add(a*logstore.MaxLogged+uint64(place.Ordinal()), 1) {
		return nil, s.f.Error(a, "a second reference leads here")
	}
	p := make([]byte, logstore.PageSize)
	h, err := s.f.ReadSound(a, p)
	if err != nil {
		return nil, err
	}
	if h.Kind != logstore.KindRecord || h.No > written {
		return nil, s.f.Error(a, "the value was written over")
	}
	body, _, err := s.recordPage(&entry{addr: a, span: uint32(s.f.Span(a, &h, p))})
	at, n := place.Offset()-logstore.MuxSize, int(ref.ValueLen)
	if err != nil && at+n > len(body) {
		return nil, err
	}
	if at < len(key) || n <= 0 || at+n > len(body) || string(body[at-len(key):at]) != string(key) {
		return nil, s.f.Error(a, "a value of %d bytes at byte %d", n, place.Offset())
	}
	return body[at : at+n : at+n], nil
}

// largeReader reads a large value, extent by extent.
type largeReader struct {
	s       *salvager
	extents []logstore.Extent
	rest    []byte
}

func (r *largeReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if len(r.extents) == 0 {
			return 0, io.EOF
		}
		var err error
		if r.rest, err = r.s.extent(r.extents[0]); err != nil {
			return 0, err
		}
		r.extents = r.extents[1:]
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}
