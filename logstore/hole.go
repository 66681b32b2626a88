package logstore

import (
	"fmt"

	"flashdbm/logstore/vfs"
)

// At the end of the log recovery has two questions: is the hole damage (vouched), and had a group begun there
// (started)? The third question, what could join the log later, is answered in invalidate.go.

// vouched looks for a page that was written when group g was already durable. If there is one, the hole at g is
// damage and not the end of the log. vouched returns the address of such a page, or 0. It reads every segment whose
// header is not older than that of the segment where the scan stopped. Private segments and the raw pages of runs
// hold users' bytes and prove nothing.
//
// A segment with a live page was not entered since the space map was written, provided that the map is the newest
// that ever was: newest says so. Then the header of such a segment need not be read.
func (sc *scanner) vouched(g uint64, mapped uint32, newest bool) (Addr, error) {
	size := uint64(sc.s.segmentPages)
	for n, segments := uint32(0), uint32((sc.end+size-1)/size); n < segments; n++ {
		if n >= mapped { // the checkpoint does not know these segments; most of them may be holes in the file
			data, err := vfs.NextData(sc.s.file, int64(sc.s.firstPage(n))*PageSize)
			if err != nil {
				return 0, fmt.Errorf("flashdbm: %w", err)
			}
			if n = max(n, uint32(min(uint64(data)/PageSize/size, uint64(segments)))); n == segments {
				break
			}
		}
		if newest && sc.s.space.IsOlder(n, sc.header.sequence) {
			continue
		}
		h, ok, err := sc.headerOf(n)
		if err != nil {
			return 0, err
		}
		if !ok || h.private || h.sequence < sc.header.sequence {
			continue
		}
		if by, err := sc.vouchedIn(n, h.salt, g); by != 0 || err != nil {
			return by, err
		}
	}
	return 0, nil
}

// vouchedIn is vouched for segment n, whose salt is given.
func (sc *scanner) vouchedIn(n uint32, salt uint64, g uint64) (Addr, error) {
	for a := sc.s.firstPage(n) + headerPage(n) + 1; a < sc.s.firstPage(n)+uint64(sc.s.segmentPages); a++ {
		p, err := sc.window.page(a)
		if err != nil || p == nil {
			return 0, err
		}
		m := getMux(p)
		if m.crc != pageCRC(salt, a, p) {
			continue
		}
		if m.lag != lagUnknown && m.group > g && m.group-uint64(m.lag) > g {
			return a, nil
		}
		switch m.kind {
		case KindRun:
			if length, ok := sc.s.runLength(a, p); ok {
				a += uint64(RunPages(length)) - 1
			}
		case KindRecord:
			a += max(sc.s.spanOf(a, m.name), 1) - 1
		}
	}
	return 0, nil
}

// started reports whether the group expected here had begun to be written, as far as can be told: a page names the
// group's number, or the digest of the page before it. It cannot be told whether that page is incomplete or
// damaged.
func (sc *scanner) started() (bool, error) {
	if sc.torn || sc.page >= uint64(sc.s.segmentPages) {
		return sc.torn, nil
	}
	p, err := sc.window.page(sc.here())
	if p == nil {
		return false, err
	}
	m := getMux(p)
	return m.group == sc.group || m.digest == sc.digest, nil
}
