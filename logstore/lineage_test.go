package logstore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
)

// A lineage is what an observer knows about one history of the toy: what was committed, acknowledged and
// written where.
type lineage struct {
	hist    map[uint64]toyState // by commit
	acked   uint64              // newest commit that must survive
	issued  uint64              // newest commit that may survive
	written uint64              // newest commit that the system had when it returned: it must survive a kill
	owner   map[Addr]uint64     // group that wrote a page last
	fresh   map[Addr]bool       // pages written since the last sync began
	private map[uint32]bool     // segments that hold large values
	created bool                // a checkpoint was made
	small   bool                // most commits are small ones, which may share a page
}

func newLineage() *lineage {
	l := &lineage{}
	l.reset()
	return l
}

func (l *lineage) reset() {
	*l = lineage{small: l.small, hist: map[uint64]toyState{0: {}}, owner: map[Addr]uint64{}, fresh: map[Addr]bool{}, private: map[uint32]bool{}}
}

// clone copies the state of knowledge when an image is taken.
func (l *lineage) clone() *lineage {
	return &lineage{
		hist: maps.Clone(l.hist), owner: maps.Clone(l.owner), fresh: maps.Clone(l.fresh), private: maps.Clone(l.private),
		acked: l.acked, issued: l.issued, written: l.written, created: l.created, small: l.small,
	}
}

// cut is clone for an image of a power cut, which may lose what only the system had.
func (l *lineage) cut() *lineage {
	c := l.clone()
	c.written = c.acked
	return c
}

// wrote notes to which group the pages of one write belong, in a file with segments of 8 pages.
func (l *lineage) wrote(p []byte, off int64) {
	var group uint64
	var raw int64 // pages of a run still to come
	for a := uint64(off) / PageSize; len(p) > 0; a, p = a+1, p[PageSize:] {
		n := uint32(a / 8)
		l.fresh[a] = true
		switch {
		case a < 2:
		case a == uint64(n)*8+headerPage(n):
			h, _ := getHeaderCopy(p)
			l.private[n], group = h.private, h.group
			l.owner[a] = group
		case l.private[n]:
		case raw > 0:
			raw--
			l.owner[a] = group
		default:
			m := getMux(p)
			group = m.group
			l.owner[a] = group
			if m.kind == KindRun {
				raw = RunPages(int64(binary.LittleEndian.Uint64(p[MuxSize:]))) - 1
			}
		}
	}
}

// mayRewrite reports whether a page may get other bytes because it is the last page of the log, no sync has
// begun since it was written, and its group becomes longer. The bytes that counted stay, except the word that
// says how far they count.
func (l *lineage) mayRewrite(a Addr, before, after []byte) bool {
	was, is := getMux(before), getMux(after)
	return l.fresh[a] && l.owner[a] == is.group && was.group == is.group && was.flags == growingFlags && is.count > was.count &&
		bytes.Equal(before[:growingAt], after[:growingAt]) && bytes.Equal(before[growingAt+8:was.end], after[growingAt+8:was.end])
}

// forgetFrom drops the places of groups that a crash cut off.
func (l *lineage) forgetFrom(group uint64) {
	for a, g := range l.owner {
		if g >= group {
			delete(l.owner, a)
		}
	}
}

// recovered compares the result of recovery: acknowledged ⊆ recovered ⊆ issued, each commit whole and in order.
// From now on everything recovered was shown and must survive; what was not recovered must never come back.
func (l *lineage) recovered(d *toy) error {
	if d.seq < max(l.acked, l.written) || d.seq > l.issued {
		return fmt.Errorf("%w: recovered commit %d, acknowledged %d, with the system %d, issued %d", errToy, d.seq, l.acked, l.written, l.issued)
	}
	if got, want := d.state(), l.hist[d.seq]; got != want {
		return fmt.Errorf("%w: commit %d recovered as %v, was %v", errToy, d.seq, got, want)
	}
	for seq := range l.hist {
		if seq > d.seq {
			delete(l.hist, seq)
		}
	}
	l.acked, l.issued, l.written = d.seq, d.seq, d.seq
	l.forgetFrom(d.s.LastGroup() + 1)
	return nil
}
