package override

import "flashdbm/logstore"

// pending is what the next flush has to list, in addition to the pages that were removed from the tree and
// are dirty.
type pending struct {
	*names
	retired []retirement // names folded away since the last flush started
	deaths  deaths       // values that left the tree since the last flush started
	listed  int          // dirty pages that the flush lists as removed: those that left the tree, and old names of renamed pages
	doomed  int64        // pages of deaths, and pages removed from the tree
}

// retirement is a name that was folded away and is on its way out of the table, with the address that parents
// use instead.
type retirement struct {
	entry *entry
	addr  logstore.Addr
}

// Dying returns roughly how many pages will die with the next flush, in addition to those that it replaces.
// Token held.
func (p *pending) Dying() int64 { return p.doomed }

// nothingPending reports whether no value was dropped and no name folded away since the last flush.
func (p *pending) nothingPending() bool {
	return len(p.deaths.refs) == 0 && len(p.deaths.logged) == 0 && len(p.retired) == 0
}

// streamBytes bounds the bytes of the next flush's lists.
func (p *pending) streamBytes() int {
	return len(p.retired)*retiredSize + p.listed*8 + p.deaths.most(p.store.End())*deathSize
}

// StreamPages bounds the pages of the next flush's stream. Token held.
func (p *pending) StreamPages() int64 { return int64(flushFixed+p.streamBytes())/logstore.BodySize + 1 }
