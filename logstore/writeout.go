package logstore

// A sync of a page takes about 100 µs. The device writes the page in the first half of that. If the store starts
// the write-back at once and the committer has 20 µs of other work before it waits, a cycle of commits takes 111 µs
// instead of 146. It takes 163 µs if another goroutine syncs meanwhile, each with 20 µs of work before it.

// WriteOut starts the write-back of some pages, so that a later Sync has less to wait for.
func (s *disk) WriteOut(a Addr, pages int64) error {
	return s.file.WriteOut(int64(a)*PageSize, pages*PageSize, false)
}

// WriteOutTail is WriteOut for the part of the newest group that lies in the log's last segment. The device writes
// while the caller does other work before Sync. Called by the log's appender. An error has poisoned the store.
func (s *appender) WriteOutTail() error {
	g, t := &s.group, &s.tail
	pages := min(uint64(g.before), t.page-headerPage(t.header.segment))
	if err := s.WriteOut(s.firstPage(t.header.segment)+t.page-pages, int64(pages)); err != nil {
		return s.fail(err)
	}
	return nil
}
