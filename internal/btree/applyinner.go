package btree

import "sort"

// change is what a batch did to the children of an inner node: the child at went away, or before it came another.
type change struct {
	at     int
	gone   bool
	insert entry
}

// entry is a child of an inner node being built. The separator of the first is not used.
type entry struct {
	separator
	id    PageID
	small bool // should be merged with a neighbour, if one has room
}

// Merging: a node with less than smallBytes is merged with a neighbour under the same parent if both together have no more than
// mergedBytes, so that neither deletes nor inserts soon undo it.
const (
	smallBytes  = BodySize / 3
	mergedBytes = BodySize * 8 / 10
)

// inner applies ops to the subtrees under an inner node and then, if children came or went, to the node. last says that no node of its
// level follows it.
func (a *applier) inner(n Node, ops []Op, last bool) (outcome, error) {
	changes, shrunk := len(a.changes), len(a.shrunk)
	for from := 0; len(ops) > 0; from++ { // children before from are done; what they were is not known any more
		i, err := n.route(a.e, ops[0].Key, from)
		if err != nil {
			return outcome{}, err
		}
		mine, err := a.belowNext(n, i, ops)
		if err != nil {
			return outcome{}, err
		}
		if err := a.child(n, i, ops[:mine], last && i == n.Count()-1); err != nil {
			return outcome{}, err
		}
		ops, from = ops[mine:], i
	}
	o, err := a.reshape(n, a.changes[changes:], a.shrunk[shrunk:], last)
	a.changes, a.shrunk = a.changes[:changes], a.shrunk[:shrunk]
	return o, err
}

// belowNext returns how many of the ops, the first of which belongs below child i, belong there.
func (a *applier) belowNext(n Node, i int, ops []Op) (int, error) {
	if i == n.Count()-1 {
		return len(ops), nil
	}
	low, high := 1, 2 // ops before low belong there; the search widens from the first, for most batches are sparse
	for high <= len(ops) {
		above, err := n.reachesSeparator(a.e, ops[high-1].Key, i+1)
		if err != nil {
			return 0, err
		}
		if above {
			break
		}
		low, high = high, 2*high
	}
	high = min(high-1, len(ops)) // ops from high on do not
	var failed error
	k := sort.Search(high-low, func(k int) bool {
		above, err := n.reachesSeparator(a.e, ops[low+k].Key, i+1)
		if err != nil {
			failed = err
		}
		return above
	})
	return low + k, failed
}

// child applies ops to the subtree under child i and notes what n has to know.
func (a *applier) child(n Node, i int, ops []Op, last bool) error {
	id, c, err := childNode(a.e, n, i)
	if err != nil {
		return err
	}
	pieces := len(a.pieces)
	o, err := a.node(c, ops, last)
	if err != nil {
		return err
	}
	switch o.state {
	case removed:
		a.e.Remove(id)
		a.changes = append(a.changes, change{at: i, gone: true})
	case changed:
		a.e.Put(id, o.node)
		if o.shrunk && o.node.bytes() < smallBytes {
			a.shrunk = append(a.shrunk, i)
		}
	}
	for _, p := range a.pieces[pieces:] {
		a.changes = append(a.changes, change{at: i + 1, insert: entry{separator: p.separator, id: a.bear(p.node)}})
	}
	clear(a.pieces[pieces:])
	a.pieces = a.pieces[:pieces]
	return nil
}

// reshape makes the new version of an inner node from what became of its children.
func (a *applier) reshape(n Node, changes []change, shrunk []int, last bool) (outcome, error) {
	merge, err := a.canMerge(n, len(changes) > 0, shrunk)
	switch {
	case err != nil:
		return outcome{}, err
	case len(changes) == 0 && !merge:
		return outcome{}, nil
	case !merge:
		if v, ok := a.patchInner(n, changes); ok {
			return outcome{node: v, state: changed}, nil
		}
	}
	mark := len(a.entries)
	a.listEntries(n, changes, shrunk)
	entries := a.entries[mark:]
	a.entries = a.entries[:mark]
	if merge {
		if entries, err = a.mergeSmall(n.Level()-1, entries); err != nil {
			return outcome{}, err
		}
	}
	switch {
	case len(entries) == 0:
		return outcome{state: removed}, nil
	case len(entries) == n.Count() && len(changes) == 0:
		return outcome{}, nil // nothing could be merged after all
	}
	ascending := last && len(changes) > 0 && changes[0].at == n.Count()
	o := a.splitInner(n.Level(), entries, ascending)
	o.shrunk = o.node.bytes() < n.bytes()
	return o, nil
}

// listEntries puts the children of n after the changes on the stack of entries.
func (a *applier) listEntries(n Node, changes []change, shrunk []int) {
	for i := 0; ; i++ {
		gone := false
		for ; len(changes) > 0 && changes[0].at == i; changes = changes[1:] {
			if changes[0].gone {
				gone = true
			} else {
				a.entries = append(a.entries, changes[0].insert)
			}
		}
		if i == n.Count() {
			return
		}
		small := len(shrunk) > 0 && shrunk[0] == i
		if small {
			shrunk = shrunk[1:]
		}
		if !gone {
			a.entries = append(a.entries, entry{separator: a.separatorAt(n, i), id: n.Child(i), small: small})
		}
	}
}

// separatorAt returns separator i of n, whole.
func (a *applier) separatorAt(n Node, i int) separator {
	at := len(a.text)
	var cut bool
	a.text, cut = n.Separator(i, a.text)
	return separator{a.text[at:len(a.text):len(a.text)], cut}
}
