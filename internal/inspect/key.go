package inspect

import (
	"bytes"
	"context"
	"fmt"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
	"flashdbm/override"
)

// Node shows the page to which a name leads.
func (x *Inspector) Node(ctx context.Context, name logstore.PageID) error {
	r, err := x.reading(ctx)
	if err != nil {
		return err
	}
	a, _, _, err := r.Node(name, make([]byte, logstore.PageSize))
	if err != nil { // not ErrCorrupt: most likely the name that the user gave is wrong, and the file is sound
		return fmt.Errorf("there is no node %s that can be read: %v", nameOf(name), err)
	}
	return x.Page(ctx, a)
}

// Key shows the path from the root to a key, and the newest redo record of the key after the redo start.
func (x *Inspector) Key(ctx context.Context, key []byte) error {
	r, err := x.reading(ctx)
	if err != nil {
		return err
	}
	name, level := logstore.PageID(override.Root), -1
	for {
		b := make([]byte, logstore.PageSize)
		a, asOf, n, err := r.Node(name, b)
		p := Part{Name: "node"}
		p.add("name", nameOf(name))
		if a != 0 {
			p.add("page", a)
		}
		if err == nil && level >= 0 && n.Level() != level {
			err = fmt.Errorf("level %d where %d belongs", n.Level(), level)
		}
		if err != nil {
			p.add("damaged", err.Error())
			if err := x.Emit(p); err != nil {
				return err
			}
			break
		}
		p.add("level", n.Level())
		p.add("n", n.Count())
		p.add("as of group, at least", asOf)
		if n.IsLeaf() {
			if i, ok := find(r, n, key); ok {
				line := Part{Name: fmt.Sprintf("record %d", i), Line: true}
				line.add("key", n.Cell(i).Key())
				value(&line, n.Cell(i))
				p.Parts = append(p.Parts, line)
			} else {
				p.add("record", "none with this key")
			}
			if err := x.Emit(p); err != nil {
				return err
			}
			break
		}
		i := 0
		for i+1 < n.Count() {
			if bytes.Compare(r.Separator(n, i+1), key) > 0 {
				break
			}
			i++
		}
		p.add("child", i)
		if err := x.Emit(p); err != nil {
			return err
		}
		name, level = n.Child(i), n.Level()-1
	}
	p := Part{Name: "redo"}
	if group, deleted, page, ok := r.Redo(key); ok {
		p.add("group", group)
		p.add("record", map[bool]string{true: "delete", false: "put"}[deleted])
		p.add("page", page)
	} else {
		p.add("record", "none with this key behind the redo start")
	}
	return x.Emit(p)
}

// find returns the index of the record of leaf n with the given key.
func find(r runs, n btree.Node, key []byte) (int, bool) {
	for i := range n.Count() {
		c := n.Cell(i)
		k := c.Key()
		if c.IsLong() {
			whole, err := r.RunKey(c.Ref())
			if err != nil {
				continue
			}
			k = whole
		}
		if bytes.Equal(k, key) {
			return i, true
		}
	}
	return 0, false
}

// runs is the part of a Reading that find needs.
type runs interface {
	RunKey(ref btree.Ref) ([]byte, error)
}
