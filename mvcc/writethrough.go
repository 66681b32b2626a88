package mvcc

import "flashdbm/logstore"

// A WriteThrough commit is with the system when it returns, and no sync follows. So small ones share a page of the log, which is written
// again with each (see logstore's lastPage), and wait for the tree as Buffered ones do. A page group would write the leaf instead, a page
// of its own for each commit: that pays only where the redo does not fit in the last page.

// sharesPage reports whether the batch may share a page: it has no long values, and its redo fits.
func (c *committer) sharesPage(b *batch) bool {
	return c.opts.Durability == WriteThrough && !b.runs && !b.logged && len(c.log.redo) <= logstore.BodySize
}

// writeThrough logs the batch behind what the last page has, or in a page that others may share.
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
