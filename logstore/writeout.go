package logstore

// A sync of a page takes about 100 µs, of which the device writes the page for the first half. If the write-back is started at once and
// the committer has 20 µs of other work to do before it waits, a cycle of commits takes 111 µs instead of 146, and 163 if another
// goroutine syncs meanwhile (each with 20 µs of work before it).

// WriteOut starts the write-back of some pages, so that a later Sync has less to wait for.
func (s *disk) WriteOut(a Addr, pages int64) error {
	return s.file.WriteOut(int64(a)*PageSize, pages*PageSize, false)
}

// WriteOutTail is WriteOut for the group that was written last, as far as it is in the log's last segment: the device is at work while
// the caller does other things before Sync. Baton holder; an error has poisoned the store.
func (s *appender) WriteOutTail() error {
	g, t := &s.group, &s.tail
	pages := min(uint64(g.before), t.page-headerPage(t.header.segment))
	if err := s.WriteOut(s.firstPage(t.header.segment)+t.page-pages, int64(pages)); err != nil {
		return s.fail(err)
	}
	return nil
}
