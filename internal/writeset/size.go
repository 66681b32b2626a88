package writeset

import (
	"flashdbm/internal/btree"
	"flashdbm/internal/redo"
	"flashdbm/logstore"
)

// Size is what a write set needs when it is committed. Each number but Bytes is an upper bound.
type Size struct {
	Keys      int64
	Bytes     int64 // approximate bytes of keys and values
	InLeaves  int64 // bytes that the records take in leaves
	Widest    int   // most bytes that one record takes in a leaf
	RedoPages int64 // pages of the group's redo records and, for layers, of the lists of their extents
	RunPages  int64 // pages of runs, including the pages that their placement may waste; not the runs of layers, which are written already
}

// OnePage reports whether the redo of the set fits one page, and its Size has two RedoPages and no RunPages.
func (w *Set) OnePage() bool {
	return w.spill == nil && w.runPages == 0 && (w.redoBytes+int64(w.records.n)*redo.MaxRecord)*4/3 <= logstore.BodySize
}

// Size returns the size of the set. If part of the set was spilled, all of it must have been.
func (w *Set) Size() Size {
	z := Size{Keys: int64(w.Len()), Bytes: w.RedoBytes(), Widest: w.widest, RunPages: w.runPages}
	if s := w.spill; s != nil {
		z.RedoPages = s.listPages(s.store.MaxRun())
		z.Keys = s.Keys()
		z.InLeaves, z.Widest = s.size()
		z.Bytes = z.InLeaves
		return z
	}
	// All redo pages but the last are at least three quarters full. Short records are not split and so leave at
	// most a quarter of a page free: see logstore's Group.Append. Logged values do not leave more either: if the
	// next value does not fit, another page of the file continues the page, unless it has nearly as many values as
	// a page may have, or its segment ends.
	z.RedoPages = redo.Pages((z.Bytes+z.Keys*redo.MaxRecord)*4/3) + 1
	z.InLeaves = z.Bytes + z.Keys*int64(btree.RecordBytes(0, 0))
	return z
}
