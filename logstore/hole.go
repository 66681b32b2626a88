package logstore

// At the end of the log recovery asks three things: is the hole damage (vouched), was a group under way (torn), and may the log go on
// right here (clean)?

// vouched looks for a page that was written when group g was durable already: then the hole at g is damage, not the end of the log.
// It reads every segment whose header is not older than the one where the scan stopped. Private segments and raw pages of runs hold
// users' bytes and prove nothing. It returns the address of such a page, or 0.
//
// A segment with a live page was not entered since the space map was written, unless the map is not the newest that ever was: if both
// superblocks are whole, its header need not be read.
func (sc *scanner) vouched(g uint64) (Addr, error) {
	size := uint64(sc.s.segmentPages)
	newest := sc.s.supers[0] != nil && sc.s.supers[1] != nil
	for n := range uint32((sc.end + size - 1) / size) {
		if newest && sc.s.space.isOlder(n, sc.header.sequence) {
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

// vouchedIn is vouched for one segment.
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
		if m.kind == KindRun {
			if length, ok := sc.s.runLength(a, p); ok {
				a += uint64(RunPages(length)) - 1
			}
		}
	}
	return 0, nil
}

// started reports whether the group expected here has begun to be written, as far as can be seen: a page names its number, or the
// digest before it. Whether the page was not all written or is damaged, nobody can tell.
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

// clean reports whether the log may go on right here instead of in a fresh segment: nothing of a group that was cut off is left that
// could join the log once new pages, or sectors of new pages that a power cut lets through, lie beside it.
//
//   - No page from here to the end of the segment names a group as which it could be accepted: groups are numbered one after the other and
//     take a page at least, so n pages behind this one only a group from the next one to the n-th behind it can be. So of each page of
//     such a group at least the first sector is not on the disk, and a page that supplies that sector is that page. What names another
//     group is of an earlier life of the segment, or a user's bytes, and never counts.
//   - The successor was not opened from this segment. So no page of such a group is in any other segment of the chain.
//
// To go on elsewhere costs the rest of the segment until there is a checkpoint. Where a crash has cut off many groups, numbers come again,
// and most segments have pages of later ones: if they counted, each crash in a row would cost a segment, until a full file has none left
// for a checkpoint.
func (sc *scanner) clean() (bool, error) {
	last := sc.s.firstPage(sc.segment) + uint64(sc.s.segmentPages)
	for a := sc.here(); a < last; a++ {
		p, err := sc.window.page(a)
		if err != nil {
			return false, err
		}
		if p == nil {
			break
		}
		if g := getMux(p).group; g >= sc.group && g-sc.group <= a-sc.here() {
			return false, nil
		}
	}
	h, ok, err := sc.headerOf(sc.header.successor)
	return !ok || h.predecessor != sc.header.salt, err
}
