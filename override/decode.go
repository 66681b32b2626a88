package override

import "flashdbm/logstore"

// A Tree is an entry of the list of trees.
type Tree struct {
	Root    logstore.PageID
	Records int64
}

// A TableEntry leads from a name to a page.
type TableEntry struct {
	Name logstore.PageID
	Addr logstore.Addr
}

// A Table is the translation table of a checkpoint.
type Table struct {
	Base    uint64 // group that the tree is as of, but for the leaves left behind
	Redo    uint64 // group behind which redo starts
	Born    uint64 // counter of born names
	Trees   []Tree
	Entries []TableEntry
}

// DecodeTable decodes the translation table of a checkpoint. It checks lengths and limits, and not where the entries lead.
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

// A FlushEnd is what the last part of a flush says.
type FlushEnd struct {
	Base, First uint64 // groups: what the tree is as of, and the flush's first part
	Redo        uint64 // group behind which redo starts
	Born        uint64
	Trees       []Tree
	Retired     []TableEntry
	Removed     []logstore.PageID
	Deaths      []Extent // Pages of a page with dead logged values: see MaskOfDeath
}

// MaskOfDeath returns which logged values of the page at Addr die, if the entry is of such a page.
func (x *Extent) MaskOfDeath() (mask uint16, ok bool) {
	return uint16(x.Pages), x.Pages&loggedDeath != 0
}

// DecodeFlushEnd decodes the stream of the flush that ends in the given group; zeros fill its last page.
func DecodeFlushEnd(b []byte, group uint64) (FlushEnd, error) {
	end, err := getFlushEnd(b, group)
	x := FlushEnd{Base: end.base, First: end.first, Redo: end.redo, Born: end.born, Trees: []Tree{{Root, end.records}}, Removed: end.removed, Deaths: end.dying}
	for _, r := range end.retired {
		x.Retired = append(x.Retired, TableEntry{r.id, r.addr})
	}
	return x, err
}
