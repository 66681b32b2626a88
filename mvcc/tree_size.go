package mvcc

import "flashdbm/logstore"

// leaves returns about how many pages the tree has: most that are dirty have a place already, or most have none yet. Token held.
func (t *tree) leaves() int64 {
	return max(t.treeBytes(), t.sizes().dirty) / logstore.PageSize
}

// changedPages bounds the pages that ops with so many bytes of keys and values make dirty: no more than there are ops, nor than there are
// leaves and what they split into; and leaves that the next flush writes for the first time.
func (t *tree) changedPages(ops, bytes int64) int64 {
	grown := bytes/splitBytes + 1
	return min(ops, t.livePages()+t.sizes().must+grown) + grown
}

// treeBytes returns the bytes of live pages, without those of logged values.
func (f *file) treeBytes() int64 {
	s := f.store.SpaceStats()
	return s.LiveBytes - s.LoggedBytes
}

// livePages bounds the pages of the tree that have room of their own: those that live, and those that a flush in flight brings to life.
func (f *file) livePages() int64 {
	unplaced := f.pages.Unplaced() // first: what gets its place in between counts twice, not never
	return unplaced + f.treeBytes()/logstore.PageSize
}
