package btree

import "fmt"

// Pager is one snapshot of the pages of a tree. Its methods are called by any number of goroutines at a time.
type Pager interface {
	// Node returns the image of a page. The image passed CheckPage, or was made by this package.
	Node(id PageID) (Node, error)

	// RunKey returns the first ref.KeyLen bytes of the run, which are the whole key of a long-key record. They are valid for as long
	// as the snapshot.
	RunKey(ref Ref) ([]byte, error)
}

// Editor is the working tree of the single writer. As a Pager it returns the newest images, those of the batch being applied
// included. Apply calls its methods from one goroutine.
type Editor interface {
	Pager

	// Memory returns where versions are made. It is always the same.
	Memory() *Memory

	// Put gives a page a new image. The editor keeps it, and releases the one it replaces when nobody reads that any more. It may
	// replace an image that it was given earlier in the same batch.
	Put(id PageID, n Node)

	// Update is Put of a leaf that keeps its bounds and its references: nothing but records in their cells came, changed or went since
	// the image before, and no other page of the batch follows from that. A Put of the same page may come behind it in the batch.
	Update(id PageID, n Node)

	// Grow is Put of a page of what a batch does when leaves below a parent are split and nothing else happens: of a leaf that was split, of a
	// right sibling that it was split into, or of the parent, which only got the siblings. The references are those that the leaf had. All
	// pages that grow below the same parent belong together: the parent and its leaves as they were before are a tree as well.
	Grow(parent, id PageID, n Node)

	// Narrow says that the bounds of a leaf that keeps its image got narrower: an image that an Update replaced may have records which are
	// out of them.
	Narrow(id PageID)

	// Ahead says that Node will be called for these pages soon. It may do nothing; what takes long to find of one page alone is found faster
	// of several together.
	Ahead(ids []PageID)

	// New bears a name that was never used.
	New() PageID

	// Remove says that the page left the tree. Its image stays for the readers of older snapshots.
	Remove(id PageID)

	// Drop says that a reference is in the tree no longer.
	Drop(ref Ref)
}

// longKey fetches the whole key of a long-key record and makes sure that it is one.
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

// childNode returns child i of n and makes sure that it is one level lower, which bounds every descent.
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

// rootNode returns the root, whose level bounds the height.
func rootNode(p Pager, root PageID) (Node, error) {
	n, err := p.Node(root)
	if err == nil && n.Level() > MaxHeight {
		err = fmt.Errorf("%w: root %#x has level %d", ErrMalformed, root, n.Level())
	}
	return n, err
}

// emptyError is about the child that was taken, which is empty though only a root may be.
func emptyError(s step) error {
	return fmt.Errorf("%w: page %#x is empty", ErrMalformed, s.node.Child(s.index))
}
