package writeset

import (
	"flashdbm/internal/btree"
	"flashdbm/internal/redo"
)

// Size is what a write set comes to where it is committed. Each number is an upper bound, but for Bytes.
type Size struct {
	Keys      int64
	Bytes     int64 // of keys and values, about
	InLeaves  int64 // bytes that the records take in leaves
	Widest    int   // bytes that one takes there
	RedoPages int64 // of the group's redo and, where layers are listed, of their lists
	RunPages  int64 // of runs, with what placing them may waste; those of layers are written already
}

// Size returns that of the set. If part of the set has left memory all of it must have.
func (w *Set) Size() Size {
	z := Size{Keys: int64(w.Len()), Bytes: w.RedoBytes(), Widest: w.widest, RunPages: w.runPages}
	if s := w.spill; s != nil {
		z.RedoPages = s.listPages(s.store.MaxRun())
		z.Keys = s.Keys()
		z.InLeaves, z.Widest = s.size()
		z.Bytes = z.InLeaves
		return z
	}
	// All of them but the last are three quarters full at least. Short records, which are not split, leave no more: see logstore's
	// Group.Append. Nor do logged values: a page that the next one does not fit goes on in another page of the file, unless it has nearly as
	// many values as it may, or its segment ends.
	z.RedoPages = redo.Pages((z.Bytes+z.Keys*redo.MaxRecord)*4/3) + 1
	z.InLeaves = z.Bytes + z.Keys*int64(btree.RecordBytes(0, 0))
	return z
}
