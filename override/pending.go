package override

import "flashdbm/logstore"

// pending is what the next flush has to list, beside the pages removed from the tree, which are dirty.
type pending struct {
	*names
	retired []retirement // names folded away since the last flush started
	deaths  deaths       // values that left the tree since then
	listed  int          // of the dirty pages those that it lists as removed: they have left the tree, or are dirty under a new name too
	doomed  int64        // pages of those values, and removed from the tree
}

// retirement is a name folded away, on the way out of the table.
type retirement struct {
	entry *entry
	addr  logstore.Addr
}

// Dying returns how many pages the next flush will let die beside those that it replaces, roughly. Token held.
func (p *pending) Dying() int64 { return p.doomed }

// nothingPending reports whether no value was dropped and no name folded away since the last flush.
func (p *pending) nothingPending() bool {
	return len(p.deaths.refs) == 0 && len(p.deaths.logged) == 0 && len(p.retired) == 0
}

// streamBytes is what the lists of the next flush take.
func (p *pending) streamBytes() int {
	return len(p.retired)*retiredSize + p.listed*8 + p.deaths.most(p.store.End())*deathSize
}

// StreamPages bounds the pages that the end of the next flush takes, beside those of the tree.
func (p *pending) StreamPages() int64 { return int64(flushFixed+p.streamBytes())/logstore.BodySize + 1 }
