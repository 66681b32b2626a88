package logstore

import (
	"errors"

	"flashdbm/internal/event"
)

// reader reads pages, runs, large and logged values, each verified at its first touch: from the mapping, or as
// copies where the mapping is not to be trusted. Any number of goroutines use it.
type reader struct {
	*disk
	*mapping
	*syncer
	marked bool    // the caller marks what is live, and reads nothing else
	beside *beside // nil unless opened with Options.Beside
	bodies []byte  // scratch of AppendBodies, which one goroutine at a time calls
}

// Page returns the image of a tree page, verified at its first touch. The slice is read-only and does not change
// while the caller's snapshot is registered. After the first touch Page takes no lock and allocates nothing, except
// that an unsynced page is copied each time.
func (s *reader) Page(a Addr) ([]byte, error) {
	if c, o := s.chunkOf(a); c != nil && c.isChecked(o) {
		if p := c.page(o); PageKind(p) == KindTree {
			return p, nil
		}
	}
	return s.verifyPage(a, KindTree)
}

const noSuchReference = "a reference leads here, and the space map says that nothing is here"

// verifyPage verifies a whole page of the given kind and sets its checked bit. Damage is posted as an event, except
// beside a writer: what looks like damage there may be a page that was used again.
func (s *reader) verifyPage(a Addr, kind Kind) ([]byte, error) {
	if s.beside != nil {
		return s.copyPage(a, kind)
	}
	p, err := s.checkPage(a, kind)
	if err != nil && errors.Is(err, ErrCorrupt) {
		s.events.Post(event.Event{Kind: event.Corruption, Err: err})
	}
	return p, err
}

func (s *reader) checkPage(a Addr, kind Kind) ([]byte, error) {
	c, o := s.chunkOf(a)
	salt, ok := s.space.SaltOf(a)
	if c == nil || !ok {
		return nil, s.pageError(a, "no such page in the file")
	}
	if c.isUnsynced(o) {
		return s.copyUnsynced(a, kind, salt)
	}
	if err := s.syncBeforeRead(a); err != nil {
		return nil, err
	}
	p := c.page(o)
	m := getMux(p)
	switch {
	case s.marked && kind != KindTree && !s.space.IsUsed(a):
		return nil, s.pageError(a, noSuchReference)
	case m.crc != pageCRC(salt, a, p):
		return nil, s.pageError(a, "checksum")
	case m.kind != kind:
		return nil, s.pageError(a, "kind %d where %d belongs", m.kind, kind)
	}
	var err error
	if kind == KindTree {
		err = s.opts.CheckNode(p)
	} else if kind == KindRun {
		err = s.verifyRun(a, p)
	} else if kind == KindRecord {
		p, err = s.verifySpan(a, c.data[o*PageSize:])
	}
	if err != nil {
		return nil, s.pageError(a, "%v", err)
	}
	if kind == KindTree && s.marked && !s.space.UseNode(a) { // only now: a page that fails verification must not count as a node
		return nil, s.pageError(a, noSuchReference)
	}
	b := c.sets()
	b.checked.set(o)
	if kind == KindRecord {
		b.record.setAll(o, len(p)/PageSize)
	}
	return p, nil
}
