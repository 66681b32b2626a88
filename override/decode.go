package override

import "flashdbm/logstore"

// A Tree is an entry of the list of trees.
type Tree struct {
	Root    logstore.PageID
	Records int64
}

// A TableEntry maps a name to the address of a page.
type TableEntry struct {
	Name logstore.PageID
	Addr logstore.Addr
}

// A Table is the translation table of a checkpoint.
type Table struct {
	Base    uint64 // group up to which the tree has all commits, except in leaves that were left behind
	Redo    uint64 // redo starts after this group
	Born    uint64 // counter of born names
	Trees   []Tree
	Entries []TableEntry
}

// DecodeTable decodes the translation table of a checkpoint. It checks lengths and limits, but not the
// addresses of the entries.
func DecodeTable(b []byte) (t Table, err error) {
	r := &reader{b: b}
	head, err := getTableHead(r)
	if err != nil {
		return t, err
	}
	t = Table{Base: head.base, Redo: head.redo, Born: head.born, Trees: []Tree{{Root, head.records}}, Entries: make([]TableEntry, head.entries)}
	for i := range t.Entries {
		t.Entries[i] = TableEntry{r.u64(), r.u64()}
	}
	return t, nil
}

// A FlushEnd is the decoded end of a flush's last part.
type FlushEnd struct {
	Base, First uint64 // Base: group up to which the tree has all commits. First: group of the flush's first part
	Redo        uint64 // redo starts after this group
	Born        uint64
	Trees       []Tree
	Retired     []TableEntry
	Removed     []logstore.PageID
	Deaths      []Extent // an entry may stand for logged values of one page: see MaskOfDeath
}

// MaskOfDeath returns which logged values of the page at Addr die, as a mask of ordinals. ok is false if the
// entry lists whole pages.
func (x *Extent) MaskOfDeath() (mask uint16, ok bool) {
	return uint16(x.Pages), x.Pages&loggedDeath != 0
}

// DecodeFlushEnd decodes the stream of the flush whose last part is the given group. The stream is padded with
// zeros to the end of its last page.
func DecodeFlushEnd(b []byte, group uint64) (FlushEnd, error) {
	end, err := getFlushEnd(b, group)
	x := FlushEnd{Base: end.base, First: end.first, Redo: end.redo, Born: end.born, Trees: []Tree{{Root, end.records}}, Removed: end.removed, Deaths: end.dying}
	for _, r := range end.retired {
		x.Retired = append(x.Retired, TableEntry{r.id, r.addr})
	}
	return x, err
}
