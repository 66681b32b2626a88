package logstore

import (
	"bytes"
	"fmt"
	"time"
)

// startFollowing keeps Open's scanner for Follow.
func (s *Store) startFollowing(sc *scanner, rec *Recovery) {
	b := s.beside
	sc.refresh(min(uint64(s.segmentPages), followWindowPages))
	b.sc, b.proven, b.heard = sc, rec.proven, rec.proven
	if n := len(rec.Groups); n > 0 {
		b.followed(&rec.Groups[n-1])
	}
	b.said.Store(b.heard)
	rec.Dropped = 0 // an incomplete group at the end is being written
}

// followed records the newest accepted group.
func (b *beside) followed(g *ScannedGroup) {
	b.last, b.page, b.open = g.start, g.Pages[len(g.Pages)-1].Addr, g.open
	if g.lag != lagUnknown && g.No > uint64(g.lag) {
		b.heard = max(b.heard, g.No-uint64(g.lag)-1)
		b.proven = max(b.proven, b.heard)
	}
}

// refresh drops what the scanner has read, which may have changed, and asks for the file's length. pages is the
// number of pages that the scanner reads at a time from now on.
func (sc *scanner) refresh(pages uint64) error {
	sc.pages, sc.buf, sc.first = pages, nil, 0
	size, err := sc.s.file.Size()
	if err != nil {
		return fmt.Errorf("flashdbm: %w", err)
	}
	sc.end = sc.s.space.SawPages(uint64(size) / PageSize)
	return nil
}

// keepBody keeps the body of g, which was just read and may be rewritten. It drops the body of the previous group,
// the last of groups, which was not rewritten.
func (s *Store) keepBody(sc *scanner, g *ScannedGroup, before []ScannedGroup) {
	if s.beside == nil {
		return
	}
	if n := len(before); n > 0 {
		before[n-1].body = nil
	}
	if g.open {
		if p, _ := sc.window.page(g.Pages[0].Addr); p != nil { // the page is still in the window
			p = bytes.Clone(p)
			cutGrowing(p)
			g.body = p[MuxSize:]
		}
	}
}

// backUp drops the last group of Open's scan if the writer has rewritten it since, and reports whether it has.
func (s *Store) backUp(sc *scanner, rec *Recovery) (bool, error) {
	n := len(rec.Groups) - 1
	if n < 0 || !rec.Groups[n].open {
		return false, nil
	}
	g := &rec.Groups[n]
	if again, err := sc.rewritten(g.Pages[0].Addr); !again || err != nil {
		return false, err
	}
	s.appended.Add(-g.pages())
	rec.Groups = rec.Groups[:n]
	if err := sc.refresh(sc.pages); err != nil {
		return false, err
	}
	return true, sc.seek(g.start)
}

const (
	wholeTries = 10                    // reads of a page that is being written
	wholePause = 20 * time.Microsecond // pause before the first of them; each further pause is twice as long
)

// awaitWhole reports whether the writer may be rewriting the page here. If so, awaitWhole has waited for a while.
func (sc *scanner) awaitWhole() (bool, error) {
	if !sc.s.opts.Beside || sc.page >= uint64(sc.s.segmentPages) {
		return false, nil
	}
	m, ok, err := sc.muxAt(sc.here())
	if err != nil || !ok || m.flags&flagOpen == 0 || m.group != sc.group || m.digest != sc.digest {
		return false, err
	}
	if sc.waited != m.crc {
		sc.waited, sc.waits = m.crc, 0
	}
	if sc.waits == wholeTries { // a remnant of a power cut never becomes whole
		return false, nil
	}
	time.Sleep(wholePause << sc.waits)
	sc.waits++
	return true, sc.refresh(sc.pages)
}

// wentOn reports whether the log has another group by now, or a longer one in place of the last.
func (s *Store) wentOn(sc *scanner, rec *Recovery) (bool, error) {
	if s.beside == nil {
		return false, nil
	}
	if again, err := s.backUp(sc, rec); again || err != nil {
		return again, err
	}
	if err := sc.refresh(sc.pages); err != nil {
		return false, err
	}
	at, group, digest := sc.place(), sc.group, sc.digest
	_, ok, err := sc.next(func(header) {})
	sc.restore(at)
	sc.group, sc.digest = group, digest
	return ok, err
}

// Follow returns, in order, the groups that the writer has appended since Open or the last Follow. If the last
// group was rewritten with more records, it is returned again. Headers of segments that the log has entered are
// recorded with the given stamp, see EnteredAt. lost means that the log cannot be followed any further and the file
// has to be opened again. One goroutine at a time may call Follow.
func (s *Store) Follow(stamp uint64) (groups []ScannedGroup, lost bool, err error) {
	b := s.beside
	if b.sc == nil {
		sb, err := s.peekSuperblock()
		return nil, sb != nil, err
	}
	b.mu.Lock()
	b.stamp = stamp
	b.mu.Unlock()
	for try := 0; ; try++ {
		if groups, err = s.followOn(groups); err != nil {
			return nil, true, err
		}
		sb, same, err := s.peekLineage()
		switch {
		case err != nil:
			return nil, true, err
		case !same:
			return nil, true, nil
		case sb.runLast < b.sc.group: // everything that the newest checkpoint needs has been read
			b.heard = max(b.heard, sb.runLast)
			b.said.Store(b.heard)
			s.features.stated.Store(sb.incompatible)
			return groups, false, nil
		case try == followTries:
			return nil, true, nil
		}
	}
}

// followTries is how often Follow looks for groups that a superblock names and that were not there a moment before.
const followTries = 2

// followOn reads on from where the scanner stands.
func (s *Store) followOn(groups []ScannedGroup) ([]ScannedGroup, error) {
	b, sc := s.beside, s.beside.sc
	if again, err := sc.rewritten(b.page); err != nil {
		return groups, err
	} else if again {
		if err := sc.seek(b.last); err != nil {
			return groups, err
		}
		groups = groups[:max(0, len(groups)-1)]
	} else if news, err := sc.news(); err != nil || !news {
		return groups, err
	}
	if err := sc.refresh(sc.pages); err != nil {
		return groups, err
	}
	for {
		g, ok, err := sc.next(s.enterFollowed)
		if !ok && err == nil {
			if ok, err = sc.awaitWhole(); ok && err == nil {
				continue
			}
		}
		if err != nil || !ok {
			s.lastWritten.Store(sc.group - 1)
			return groups, err
		}
		s.keepBody(sc, &g, groups)
		s.space.Wrote(g.No, len(g.Pages), func(i int) Addr { return g.Pages[i].Addr })
		b.followed(&g)
		groups = append(groups, g)
	}
}

// enterFollowed records a header of the chain.
func (s *Store) enterFollowed(h header) {
	s.beside.enter(h.segment)
	s.enter(h)
}

// enter records a new life of a segment. It precedes the salt, so that a goroutine that sees a page of the new life
// also sees the new life.
func (b *beside) enter(segment uint32) {
	b.mu.Lock()
	b.entered[segment] = b.stamp
	b.mu.Unlock()
}

// rewritten reports whether a, the last page of the last group, was rewritten with a longer group. An address of 0
// stands for no page.
func (sc *scanner) rewritten(a Addr) (bool, error) {
	if a == 0 {
		return false, nil
	}
	m, ok, err := sc.muxAt(a)
	return ok && m.group == sc.group-1 && chain(m.digest, m.crc) != sc.digest, err
}

// news reports whether the log may have grown. It costs two short reads.
func (sc *scanner) news() (bool, error) {
	if sc.page < uint64(sc.s.segmentPages) {
		m, ok, err := sc.muxAt(sc.here())
		if err != nil || (ok && m.group == sc.group && m.digest == sc.digest) {
			return true, err
		}
	}
	n := sc.header.successor
	read, err := sc.s.read(sc.peeked, sc.s.firstPage(n)+headerPage(n))
	if err != nil {
		return false, err
	}
	h, ok := getHeader(sc.peeked[:read], n, sc.s.uuid)
	return ok && h.predecessor == sc.header.salt && h.group != invalidGroup, nil
}

// muxAt reads the mux area of a page without checking it.
func (sc *scanner) muxAt(a Addr) (m mux, ok bool, err error) {
	var p [MuxSize]byte
	n, err := sc.s.read(p[:], a)
	return getMux(p[:]), n == len(p), err
}

// SyncFollowed makes the groups followed so far durable, unless the writer has said that they are. It guarantees
// nothing for a group that may be rewritten, because the longer group has the same number.
func (s *Store) SyncFollowed() error {
	b := s.beside
	upto := s.lastWritten.Load()
	if b.proven >= upto {
		return nil
	}
	s.syncing.Lock()
	defer s.syncing.Unlock()
	if err := s.datasync(); err != nil {
		return err
	}
	if b.open {
		upto--
	}
	b.proven = max(b.proven, upto)
	return nil
}
