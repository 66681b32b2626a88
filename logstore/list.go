package logstore

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// A run lists the extents of a large value, after the key if the record has a long key:
//
//	key | extents, each: address u64, bytes u32, CRC32C u32 | their number u32
//
// The run's header says whether the run holds a list.
const (
	runValue = 0 // form in a run header: the payload is a value
	runList  = 1 // form in a run header: the payload ends with a list of extents

	extentSize = 16
)

// List adds a run that holds a record's key, if that is long, and the extents of its value. See Run.
func (g *Group) List(name PageID, key []byte, extents []Extent) Addr {
	return g.run(name, runList, key, putExtents(extents))
}

func putExtents(extents []Extent) []byte {
	le := binary.LittleEndian
	b := make([]byte, 0, len(extents)*extentSize+4)
	for _, e := range extents {
		b = le.AppendUint64(b, e.Addr)
		b = le.AppendUint32(b, e.Bytes)
		b = le.AppendUint32(b, e.CRC)
	}
	return le.AppendUint32(b, uint32(len(extents)))
}

// GetExtents decodes the list at the end of a run's payload. It refuses lists in which a page is in two extents,
// because otherwise a list of a few KiB could lead to any number of bytes.
func GetExtents(payload []byte) ([]Extent, error) {
	le := binary.LittleEndian
	n := len(payload) - 4
	if n < 0 || uint64(le.Uint32(payload[n:])) > uint64(n/extentSize) {
		return nil, fmt.Errorf("%w: list of extents", ErrCorrupt)
	}
	count := int(le.Uint32(payload[n:]))
	b := payload[n-count*extentSize:]
	extents := make([]Extent, count)
	for i := range extents {
		extents[i] = Extent{Addr: le.Uint64(b), Bytes: le.Uint32(b[8:]), CRC: le.Uint32(b[12:])}
		b = b[extentSize:]
	}
	if !disjoint(extents) {
		return nil, fmt.Errorf("%w: list of extents that overlap", ErrCorrupt)
	}
	return extents, nil
}

func disjoint(extents []Extent) bool {
	ascend := func(extents []Extent) bool {
		end := Addr(0)
		for _, x := range extents {
			if x.Addr < end || x.Addr > math.MaxInt64 {
				return false
			}
			end = x.Addr + uint64(x.Pages())
		}
		return true
	}
	if ascend(extents) { // the usual case: the file grew
		return true
	}
	sorted := slices.SortedFunc(slices.Values(extents), func(a, b Extent) int { return cmp.Compare(a.Addr, b.Addr) })
	return ascend(sorted)
}

// ListAt returns the extents that the run at a lists, or nil if the run holds a value.
func (s *reader) ListAt(a Addr) ([]Extent, error) {
	if s.beside != nil {
		salt, _ := s.space.SaltOf(a)
		p, err := s.copied(a, 1, salt)
		if err != nil || runForm(p) != runList {
			return nil, err
		}
		if p, err = s.copyPage(a, KindRun); err != nil {
			return nil, err
		}
		n := binary.LittleEndian.Uint64(p[MuxSize:])
		return GetExtents(p[runPayloadAt : runPayloadAt+n])
	}
	form, payload, err := s.run(a)
	if err != nil || form != runList {
		return nil, err
	}
	return GetExtents(payload)
}

// AppendBodies reads the bodies of a group's pages of the given kind and appends them to b. Adjacent pages are read
// together.
func (s *reader) AppendBodies(b []byte, pages []ScannedPage, kind Kind) ([]byte, error) {
	for len(pages) > 0 {
		n, all := 0, uint64(0)
		for n < len(pages) && pages[n].Kind == kind && pages[n].Addr == pages[0].Addr+all {
			more := uint64(max(pages[n].Run, 1))
			if n > 0 && all+more > s.stretchPages() {
				break
			}
			all += more
			n++
		}
		if n == 0 {
			pages = pages[1:]
			continue
		}
		if s.bodies == nil {
			s.bodies = make([]byte, s.stretchPages()*PageSize)
		}
		buf := s.bodies[:all*PageSize]
		if _, err := s.read(buf, pages[0].Addr); err != nil { // where the file was cut short after the scan, no stream is whole
			return nil, err
		}
		for i := range n {
			of := max(pages[i].Run, 1) * PageSize
			cutGrowing(buf[:PageSize])
			b = append(b, buf[MuxSize:of]...)
			buf = buf[of:]
		}
		pages = pages[n:]
	}
	return b, nil
}

// Body reads the body of an accepted page of a stream into newly allocated memory.
func (s *reader) Body(page ScannedPage) ([]byte, error) {
	a, n := page.Addr, max(page.Run, 1)
	p := make([]byte, n*PageSize)
	if s.beside != nil {
		salt, _ := s.space.SaltOf(a)
		var err error
		if p, err = s.copied(a, n, salt); err == nil && page.Kind == KindRecord {
			_, err = s.verifySpan(a, p)
		}
		if err != nil {
			return nil, err
		}
	} else if _, err := s.read(p, a); err != nil {
		return nil, err
	}
	cutGrowing(p)
	return p[MuxSize:], nil
}

// ListBytes returns the number of bytes that a list of n extents takes in its run.
func ListBytes(n int) int64 { return int64(n)*extentSize + 4 }
