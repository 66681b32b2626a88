package override

import (
	"encoding/binary"
	"fmt"

	"flashdbm/logstore"
)

// The translation table of a checkpoint:
//
//	base group u64 | born counter u64 | trees u32, each: root name u64, records u64 | entries u64, each: name u64, address u64 |
//	behind u64, if it is not 0: base group minus the group after which redo starts
const (
	tableFixed = 8*2 + 4 + 16 + 8 // bytes of a table without its entries and without behind
	tableEntry = 16
	behindSize = 8
)

// EncodeTable returns the table for a checkpoint. The pages are frozen and no flush is in flight, so the token
// is not needed.
func (p *Pages) EncodeTable() []byte {
	le := binary.LittleEndian
	b := make([]byte, 0, tableFixed+int(p.table.count.Load())*tableEntry+behindSize)
	b = le.AppendUint64(b, p.base)
	b = le.AppendUint64(b, p.born.Load())
	b = le.AppendUint32(b, 1)
	b = le.AppendUint64(b, Root)
	b = le.AppendUint64(b, uint64(p.baseRecords))
	at := len(b)
	b = le.AppendUint64(b, 0)
	n := uint64(0)
	p.table.all(func(l *link) {
		if disk := l.entry.disk; disk != 0 {
			b = le.AppendUint64(b, l.id)
			b = le.AppendUint64(b, disk)
			n++
		}
	})
	le.PutUint64(b[at:], n)
	if behind := p.base - p.redo; behind != 0 {
		b = le.AppendUint64(b, behind)
	}
	return b
}

// reader takes fixed-size fields off a stream. short is set when the stream has fewer bytes than a field needs.
type reader struct {
	b     []byte
	short bool
}

func (r *reader) u64() uint64 {
	if len(r.b) < 8 {
		r.b, r.short = nil, true
		return 0
	}
	v := binary.LittleEndian.Uint64(r.b)
	r.b = r.b[8:]
	return v
}

func (r *reader) u32() uint32 {
	if len(r.b) < 4 {
		r.b, r.short = nil, true
		return 0
	}
	v := binary.LittleEndian.Uint32(r.b)
	r.b = r.b[4:]
	return v
}

// count checks a count of items of the given size against the bytes that are left.
func (r *reader) count(n uint64, size int) int {
	if n > uint64(len(r.b)/size) {
		r.b, r.short = nil, true
		return 0
	}
	return int(n)
}

// trees reads the list of trees; this version of the format has exactly one.
func (r *reader) trees() (records int64, err error) {
	if n := r.count(uint64(r.u32()), 16); n != 1 {
		return 0, fmt.Errorf("%w: %d trees instead of 1", logstore.ErrCorrupt, n)
	}
	if root := r.u64(); root != Root {
		return 0, fmt.Errorf("%w: root name %#x", logstore.ErrCorrupt, root)
	}
	records = int64(r.u64())
	if records < 0 {
		return 0, fmt.Errorf("%w: %d records", logstore.ErrCorrupt, records)
	}
	return records, nil
}

// tableHead is the start of a checkpoint's table.
type tableHead struct {
	base, born uint64
	redo       uint64
	records    int64
	entries    int
}

func getTableHead(r *reader) (h tableHead, err error) {
	h.base, h.born = r.u64(), r.u64()
	if h.records, err = r.trees(); err != nil {
		return h, err
	}
	h.entries = r.count(r.u64(), tableEntry)
	h.redo = h.base
	if rest := len(r.b) - h.entries*tableEntry; !r.short && rest == behindSize {
		behind := binary.LittleEndian.Uint64(r.b[len(r.b)-behindSize:])
		h.redo -= behind
		r.short = behind == 0 || behind > h.base
	} else if rest != 0 {
		r.short = true
	}
	if r.short || h.born > maxBorn {
		return h, fmt.Errorf("%w: translation table of a checkpoint", logstore.ErrCorrupt)
	}
	return h, nil
}
