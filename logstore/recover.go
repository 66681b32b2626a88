package logstore

import "fmt"

// EndRecovery makes what was recovered durable and opens the log for appending. It precedes the first reader,
// acknowledgement and reuse of space. After a kill the accepted groups may exist in the page cache only, and after
// a failed sync as pages that the system takes for clean. So EndRecovery writes them again, byte for byte, and
// syncs. The same sync covers the invalidation of interrupted groups (invalidate.go). A read-only store only syncs.
func (s *Store) EndRecovery(rec *Recovery) error {
	if s.beside != nil { // the file belongs to another process
		s.durable.Store(s.lastWritten.Load())
		return nil
	}
	if !rec.Created {
		if !s.opts.ReadOnly {
			if a, wrong := s.space.CheckRoom(); wrong != "" {
				return s.pageError(a, "%s", wrong)
			}
			err := s.rewrite(rec)
			if err == nil {
				err = s.reallocate(rec)
			}
			if err == nil {
				err = s.recoverSuccessor()
			}
			if err == nil {
				err = s.invalidate(rec)
			}
			if err != nil {
				return s.fail(fmt.Errorf("flashdbm: recover %s: %w", s.path, err))
			}
		}
		s.syncing.Lock()
		err := s.datasync()
		s.syncing.Unlock()
		if err != nil {
			return err
		}
		s.durable.Store(s.lastWritten.Load())
	}
	s.space.Recovered()
	if free, err := s.file.Free(); err == nil { // many systems do not tell
		s.space.SetShort(free < int64(s.segmentPages)*PageSize) // then the remaining room is held back from the first commit on
	}
	return nil
}

// BehindEnd returns the range of pages in which the log continues: the rest of the tail. Beside a writer the range
// is empty, because the end of the log moves.
func (s *Store) BehindEnd() (from, end Addr) {
	if s.beside != nil {
		return 0, 0
	}
	return s.space.BehindEnd()
}

// reallocate reserves the space of a growth that no durable checkpoint knows: a crash may have kept the file's new
// size and lost the space. If there is no room, segments in which nothing is live stay out of use. The size is set
// again, because after a failed sync the system may take it for written.
//
// Segments in which nothing is live are kept as far as the file takes space on disk for them; the others become
// absent. So a file that another program has made long does not take the space that its length claims, however
// often it is opened. The system only tells how much space the whole file takes, so the segments that the
// checkpoint knows count as if they all had theirs, also the absent ones, which may have it.
func (s *Store) reallocate(rec *Recovery) error {
	segment, end := uint64(s.segmentPages), s.space.End()
	from := uint64(rec.mapped) * segment
	if end <= segment { // only part of the first segment
		from = min(s.tail.page, end)
	}
	if from >= end {
		return nil
	}
	size, err := s.file.Size()
	if err != nil {
		return err
	}
	held, err := s.file.Blocks()
	if err != nil {
		return err
	}
	stretches := [][2]uint64{{from, end}}
	if end > segment {
		stretches = stretches[:0]
		have := max(held/int64(segment*PageSize)-int64(rec.mapped), 0)
		for _, k := range s.space.KeepTail(rec.mapped, uint64(have)) {
			stretches = append(stretches, [2]uint64{uint64(k[0]) * segment, uint64(k[1]) * segment})
		}
	}
	if err := s.file.Truncate(size + PageSize); err != nil {
		return err
	}
	_ = s.file.Truncate(size) // a mapped file that cannot shrink keeps an extra page, which does no harm
	for _, x := range stretches {
		err := s.file.Allocate(int64(x[0])*PageSize, int64(x[1]-x[0])*PageSize)
		if isNoSpace(err) {
			s.space.Disown(x[0])
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// recoverSuccessor makes sure that the tail's successor has its space. The checkpoint may know the successor as
// absent: given back before the checkpoint and filled since. It had its space before a header named it, so this
// call takes no new space, even where none is left and the file system cannot tell. Without the successor the log
// could enter no other segment.
func (s *Store) recoverSuccessor() error {
	n, absent := s.space.AbsentSuccessor()
	if !absent {
		return nil
	}
	size := int64(s.segmentPages) * PageSize
	err := s.file.Allocate(int64(n)*size, size)
	if isNoSpace(err) {
		if filled, err := s.fill(n); !filled {
			return err
		}
	} else if err != nil {
		return err
	}
	s.space.Filled(n, 1)
	return nil
}

// rewrite writes again the groups that are not proven durable, the headers of their segments, and the chosen
// superblock with a new lineage. The lineage is for readers beside the writer: they may have been shown groups that
// are gone now, because a sync failed and the system dropped their pages. Other groups will come in their places,
// with the same numbers and salt.
func (s *Store) rewrite(rec *Recovery) error {
	buf, most := make([]byte, s.stretchPages()*PageSize), s.stretchPages()
	again := func(a Addr, pages uint64) error {
		for pages > 0 {
			n := min(pages, most)
			b := buf[:n*PageSize]
			if _, err := s.file.ReadAt(b, int64(a)*PageSize); err != nil {
				return err
			}
			if _, err := s.file.WriteAt(b, int64(a)*PageSize); err != nil {
				return err
			}
			a, pages = a+n, pages-n
		}
		return nil
	}
	var from, pages uint64 // a stretch of adjacent pages
	for i := range rec.Groups {
		if rec.Groups[i].No <= rec.proven {
			continue
		}
		for _, p := range rec.Groups[i].Pages {
			if p.Addr != from+pages {
				if err := again(from, pages); err != nil {
					return err
				}
				from, pages = p.Addr, 0
			}
			pages += uint64(max(p.Run, 1))
		}
	}
	if err := again(from, pages); err != nil {
		return err
	}
	for _, h := range rec.entered { // both copies: a power cut may have kept only the first
		if err := s.writeHeader(&h, buf); err != nil {
			return err
		}
	}
	sb := *rec.super
	sb.lineage = randomSalt()
	s.lineage, s.supers[sb.number%2] = sb.lineage, &sb
	sb.put(buf)
	_, err := s.file.WriteAt(buf[:PageSize], int64(sb.number%2)*PageSize)
	return err
}

// RebaseRecovered records which accepted groups lie after the base, as appending them would have done.
func (s *appender) RebaseRecovered(rec *Recovery, base uint64) {
	var appended uint64
	for i := range rec.Groups {
		g := &rec.Groups[i]
		if g.No > base && (g.Kind == RecordGroup || g.Kind == PageGroup) {
			s.sinceBase = append(s.sinceBase, mark{g.start, appended})
		}
		appended += g.pages()
	}
}
