package mvcc

import "flashdbm/logstore"

// A WriteThrough commit has been handed to the operating system when it returns, and no sync follows. So small
// commits share a page of the log, which is written again with each of them (logstore's lastPage), and they wait to
// be merged as Buffered ones do. A page group would write the leaf, one page for each commit: that is better only if
// the redo does not fit into the last page.

// sharesPage reports whether the batch may share a page: it has no long values, and its redo fits.
func (c *committer) sharesPage(b *batch) bool {
	return c.opts.Durability == WriteThrough && !b.runs && !b.logged && len(c.log.redo) <= logstore.BodySize
}

// writeThrough appends the redo of the batch to the last page of the log, or begins a page that later batches may
// share.
func (c *committer) writeThrough(g *logstore.Group, b *batch) error {
	group, extended, err := c.store.Extend(c.log.redo, c.log.redoOps)
	switch {
	case err != nil:
		return err
	case extended:
		c.bear(group) // large values that were overwritten give their segments back
		c.log.redo, c.log.redoOps = c.log.redo[:0], 0
	default:
		g.KeepOpen()
		if err := c.commitRecords(g); err != nil {
			return err
		}
	}
	c.published(b)
	return nil
}
