package override

import (
	"slices"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// A Build writes a whole tree from the leaves upwards, in the place of an empty one, as one flush: what is written is the first parts of the
// flush, which count only when its last part is whole, and that has the root. So the tree is there whole, or not at all.
//
// Invariants, beside those of Flush:
//
//   - The token is held from StartBuild to Finish or Abandon, and the base, the group that Finish is given, was written before StartBuild. So
//     the parts lie behind the base, and nothing between. The base is above that of the newest checkpoint's table: else recovery would take
//     the flush for one that is in that table.
//   - Nothing is dirty, and no name or value waits for a flush to list it.
//   - All pages but the root bear their own addresses as names, so the table has none of them. Runs and lists of extents stand before the
//     leaves that refer to them, in the same parts: see featureBuilt in package logstore.
//   - What is written is not marked live before the flush is synced. Until then no checkpoint falls between, so its segments are not used
//     again; if the build is abandoned they are dead.
//
// Crash cases. Any number of parts without the last: void, and the tree is empty as before. After the last part: recovery installs all of it.
type Build struct {
	p         *Pages
	f         *Flush
	reserve   func(pages int64) error // makes sure that these may be appended
	spent     func(pages int64)       // says that they were
	g         *logstore.Group         // the part being filled; nil if there is none
	copied    int                     // bytes of values that wait in it
	stretches []Extent                // what was written, pages of the tree and runs
	nodes     []Extent                // of these, pages of the tree
	large     []*logstore.Private
	image     []byte // of the root
	leaf      []byte // body of the leaf that was handed out last, to be counted
}

// buildCopies is how many bytes of values wait in a part at most.
const buildCopies = 1 << 20

// StartBuild begins a build. reserve is asked before each part, spent told behind it. Token held; no flush is in flight, nothing is dirty.
func (p *Pages) StartBuild(reserve func(pages int64) error, spent func(pages int64)) *Build {
	return &Build{p: p, f: p.StartEarly(), reserve: reserve, spent: spent}
}

// CanBuild reports whether the tree may be replaced by a Build whose base is the given group, the newest one. Token held.
func (p *Pages) CanBuild(group uint64) bool {
	return p.dirty.len() == 0 && p.flush == nil && !p.frozen && p.nothingPending() && group > p.base
}

// begin makes sure that pages can be added to the part at hand.
func (b *Build) begin(pages int64) error {
	if b.g != nil && (b.g.Pages()+pages > partPages || b.copied > buildCopies) {
		if err := b.write(); err != nil {
			return err
		}
	}
	if b.g != nil {
		return nil
	}
	if err := b.reserve(max(partPages, logstore.RunReserve(pages)) + 1); err != nil {
		return err
	}
	b.g = b.p.store.Begin(logstore.FlushGroup)
	if b.f.first == 0 {
		b.f.first = b.g.Number()
	}
	return nil
}

// write writes the part at hand. An error has poisoned the store.
func (b *Build) write() error {
	if b.g == nil {
		return nil
	}
	b.noteLeaf()
	pages := b.g.Pages()
	if pages == 0 {
		b.g = nil
		return nil
	}
	_, err := b.g.Commit(b.f.first)
	b.g, b.copied = nil, 0
	b.spent(pages)
	return err
}

func (b *Build) noteLeaf() {
	if b.leaf != nil && b.leaf[0] == 0 {
		b.p.payload.note(b.leaf)
	}
	b.leaf = nil
}

// wrote notes pages, which mostly lie behind those before.
func wrote(list *[]Extent, a logstore.Addr, pages int64) {
	if n := len(*list); n > 0 {
		if last := &(*list)[n-1]; last.Addr+uint64(last.Pages) == a {
			last.Pages += pages
			return
		}
	}
	*list = append(*list, Extent{Addr: a, Pages: pages})
}

// Page is that of btree.PageSink.
func (b *Build) Page(root bool) (btree.PageID, []byte, error) {
	if root {
		b.image = make([]byte, logstore.PageSize)
		return Root, b.image[logstore.MuxSize:], nil
	}
	if err := b.begin(1); err != nil {
		return 0, nil, err
	}
	b.noteLeaf()
	a, body := b.g.SelfNamed()
	b.leaf = body
	wrote(&b.nodes, a, 1)
	return a, body, nil
}

// Run writes a value run, and returns its name. The key is empty if the leaf has it whole.
func (b *Build) Run(key, value []byte) (btree.PageID, error) {
	n := int64(len(key) + len(value))
	pages := logstore.RunPages(n)
	if err := b.begin(pages); err != nil {
		return 0, err
	}
	a := b.g.Run(0, slices.Concat(key, value))
	b.copied += int(n)
	wrote(&b.stretches, a, pages)
	return a, nil
}

// Large writes a value too large for a run, and the list of its extents, whose name it returns.
func (b *Build) Large(key, value []byte) (btree.PageID, error) {
	large := b.p.store.NewPrivate()
	b.large = append(b.large, large)
	if _, err := large.Write(value); err != nil {
		return 0, err
	}
	extents, err := large.Finish()
	if err != nil {
		return 0, err
	}
	pages := logstore.RunPages(int64(len(key)) + logstore.ListBytes(len(extents)))
	if err := b.begin(pages); err != nil {
		return 0, err
	}
	a := b.g.List(0, slices.Clone(key), extents)
	wrote(&b.stretches, a, pages)
	return a, nil
}

// Finish gives the tree its root, as a change of the batch that was begun last, and seals the flush, whose base is a group. The flush is to be
// written and installed, and then Live called. There is room for two pages more. An error has poisoned the store; before it, Abandon may
// be called.
func (b *Build) Finish(group uint64, records int64) (*Flush, error) {
	p := b.p
	if err := b.write(); err != nil {
		return nil, err
	}
	if len(b.large) > 0 {
		if err := p.store.SyncPrivate(); err != nil {
			return nil, err
		}
	}
	p.batch.Put(Root, btree.View(b.image).Own(p.memory))
	b.f.Seal(group, records)
	return b.f, nil
}

// Live marks what was built as live, for readers from the Seq of its batch on. Behind the installation, before any checkpoint.
func (b *Build) Live() {
	p := b.p
	for _, x := range b.nodes {
		for i := range uint64(x.Pages) {
			p.store.MarkNode(x.Addr+i, p.seq)
		}
	}
	for _, x := range b.stretches {
		p.store.MarkLive(x.Addr, x.Pages, p.seq)
	}
	for _, l := range b.large {
		l.Publish(b.f.last, p.seq)
	}
}

// Abandon ends a build before Finish: what was written is void, and dead. An error has poisoned the store.
func (b *Build) Abandon() error {
	err := b.write() // a group that was begun leaves no gap in the log
	b.f.Abandon()
	for _, l := range b.large {
		l.Discard()
	}
	return err
}
