package override

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"flashdbm/logstore"
)

const (
	flushFixed  = 8*6 + 4*4 // bytes of a flush's stream without the entries of its lists
	retiredSize = 16
	deathSize   = 12
)

// stream encodes the end of a flush:
//
//	base group u64 | first part's group u64 | born counter u64 |
//	trees u32, each: root name u64, records u64 |
//	retired u32, each: name u64, address u64 | removed u32, each: name u64 | deaths u32, each: address u64, pages u32 |
//	behind u64: base group minus the group after which redo starts
func (f *Flush) stream() []byte {
	le := binary.LittleEndian
	b := make([]byte, 0, flushFixed+len(f.retired)*retiredSize+len(f.removed)*8+len(f.dying)*deathSize)
	b = le.AppendUint64(b, f.base)
	b = le.AppendUint64(b, f.first)
	b = le.AppendUint64(b, f.p.born.Load())
	b = le.AppendUint32(b, 1)
	b = le.AppendUint64(b, Root)
	b = le.AppendUint64(b, uint64(f.records))
	b = le.AppendUint32(b, uint32(len(f.retired)))
	for _, r := range f.retired {
		b = le.AppendUint64(b, r.entry.id)
		b = le.AppendUint64(b, r.addr)
	}
	b = le.AppendUint32(b, uint32(len(f.removed)))
	for _, e := range f.removed {
		b = le.AppendUint64(b, e.id)
	}
	b = le.AppendUint32(b, uint32(len(f.dying)))
	for _, d := range f.dying {
		b = le.AppendUint64(b, d.Addr)
		b = le.AppendUint32(b, uint32(d.Pages))
	}
	return le.AppendUint64(b, f.base-f.redo)
}

// flushEnd is a decoded stream.
type flushEnd struct {
	base, first, born uint64
	redo              uint64
	records           int64
	retired           []retiredName
	removed           []logstore.PageID
	dying             []Extent
}

type retiredName struct {
	id   logstore.PageID
	addr logstore.Addr
}

// getFlushEnd decodes the stream of the flush whose last part is the given group. The stream is padded with
// zeros to the end of its last page.
func getFlushEnd(b []byte, group uint64) (end flushEnd, err error) {
	r := &reader{b: b}
	end.base, end.first, end.born = r.u64(), r.u64(), r.u64()
	if end.records, err = r.trees(); err != nil {
		return end, err
	}
	end.retired = make([]retiredName, r.count(uint64(r.u32()), retiredSize))
	for i := range end.retired {
		end.retired[i] = retiredName{r.u64(), r.u64()}
	}
	end.removed = make([]logstore.PageID, r.count(uint64(r.u32()), 8))
	for i := range end.removed {
		end.removed[i] = r.u64()
	}
	end.dying = make([]Extent, r.count(uint64(r.u32()), deathSize))
	for i := range end.dying {
		end.dying[i] = Extent{r.u64(), int64(r.u32())}
	}
	behind := uint64(0)
	if len(r.b) >= behindSize { // absent at the end of a flush that an earlier version wrote, which left nothing behind
		behind = r.u64()
	}
	end.redo = end.base - behind
	if r.short || behind > end.base || len(bytes.TrimLeft(r.b, "\x00")) > 0 || end.born > maxBorn || end.base >= end.first || end.first > group {
		return end, fmt.Errorf("%w: the end of a flush in group %d", logstore.ErrCorrupt, group)
	}
	return end, nil
}
