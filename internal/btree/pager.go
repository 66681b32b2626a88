package btree

import "fmt"

// Pager is one snapshot of the pages of a tree. Any number of goroutines may call its methods at a time.
type Pager interface {
	// Node returns the newest image of a page in the snapshot. The image has passed CheckPage, or was made by this
	// package.
	Node(id PageID) (Node, error)

	// RunKey returns the first ref.KeyLen bytes of a run: the whole key of a record with a long key. They are valid
	// for as long as the snapshot.
	RunKey(ref Ref) ([]byte, error)
}

// Prefetching is a Pager with PrefetchChildren, which announces calls of Node for the children from to to-1 of an inner
// node. It makes the system read these pages in parallel, and does not wait for them.
type Prefetching interface{ PrefetchChildren(n Node, from, to int) }

// Editor is the working tree of the single writer. As a Pager it returns the newest images, including those of the
// batch being applied. All its methods are called by one goroutine.
type Editor interface {
	Pager

	// Memory returns the allocator for versions. It is always the same one.
	Memory() *Memory

	// Put gives a page a new image. The editor keeps the image, and releases the one that it replaces when that
	// has no more readers. The replaced image may be one of the same batch.
	Put(id PageID, n Node)

	// Update is Put of a leaf that keeps its bounds and its references: compared with the previous image, only
	// records in its cells were added, changed or removed, and no other page of the batch depends on that change.
	// The batch may Put the same page afterwards.
	Update(id PageID, n Node)

	// Grow is Put of a page when leaves below a parent are split and nothing else happens: of a leaf that was
	// split, of one of its new right siblings, or of the parent, which only got the siblings as children.
	// References stay those that the leaf had. All pages that grow below one parent belong together: the previous
	// images of the parent and its leaves are also a consistent tree.
	Grow(parent, id PageID, n Node)

	// Narrow says that the bounds of a leaf got narrower while it keeps its image. An image that an Update replaced
	// earlier may have records outside of the new bounds.
	Narrow(id PageID)

	// Ahead announces that Node will be called for these pages soon. It may do nothing. It is for editors that find
	// several pages together faster than one by one.
	Ahead(ids []PageID)

	// New returns a name that was never used.
	New() PageID

	// Remove says that a page has left the tree. Its image stays for the readers of older snapshots.
	Remove(id PageID)

	// Drop says that a reference is no longer in the tree.
	Drop(ref Ref)
}

// longKey reads the whole key of a record with a long key, and verifies its length and its inline part.
func longKey(p Pager, c Cell) ([]byte, error) {
	ref := c.Ref()
	k, err := p.RunKey(ref)
	if err != nil {
		return nil, err
	}
	if len(k) != int(ref.KeyLen) || len(k) <= MaxInlineKey || string(k[:MaxInlineKey]) != string(c.Key()) {
		return nil, fmt.Errorf("%w: run %#x does not hold the key of its record", ErrMalformed, ref.ID)
	}
	return k, nil
}

// childNode returns child i of n. It returns an error unless the child is one level lower, which bounds every
// descent.
func childNode(p Pager, n Node, i int) (PageID, Node, error) {
	id := n.Child(i)
	c, err := p.Node(id)
	if err == nil && c.Level() != n.Level()-1 {
		err = levelError(id, c.Level(), n.Level()-1)
	}
	return id, c, err
}

func levelError(id PageID, level, want int) error {
	return fmt.Errorf("%w: page %#x has level %d instead of %d", ErrMalformed, id, level, want)
}

// rootNode returns the root, after a check of its level, which bounds the height.
func rootNode(p Pager, root PageID) (Node, error) {
	n, err := p.Node(root)
	if err == nil && n.Level() > MaxHeight {
		err = fmt.Errorf("%w: root %#x has level %d", ErrMalformed, root, n.Level())
	}
	return n, err
}

// emptyError is the error of a child without records: only a root may be empty.
func emptyError(s step) error {
	return fmt.Errorf("%w: page %#x is empty", ErrMalformed, s.node.Child(s.index))
}
