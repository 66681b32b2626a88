package override

import (
	"slices"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// A Build writes pages that were made from the leaves upwards, as the first parts of a flush: a whole tree that
// replaces an empty one, or a row of leaves that becomes a part of the tree. The parts count only once the flush's
// last part is complete; that has the root, or the inner nodes that lead to the leaves. So after a crash either all
// of it is there or nothing.
//
// Invariants, in addition to those of Flush:
//
//   - The token is held from StartBuild to Finish or Abandon. The base, which is the group that Finish is
//     given, was written before StartBuild, so the parts follow the base and no other group lies between. The
//     base is above the base of the newest checkpoint's table; otherwise recovery would take the flush for one
//     that the table already includes.
//   - If a whole tree is built, no page is dirty at StartBuild, and no removed name or dead value waits to be listed
//     by a flush. If a row of leaves is built, there may be both. The flush then also writes all pages that are dirty
//     when Finish seals it: those that were dirty before, and those that the graft has changed.
//   - Nothing leads to the leaves of a row before the graft, and the pages of a row never change.
//   - Every page but the root is named by its own address, so the table has no entries for them. Runs and lists
//     of extents stand before the leaves that refer to them, in the same parts: see featureBuilt in package
//     logstore.
//   - No written page is marked live before the flush is synced. No checkpoint happens until then, so the
//     segments of these pages are not reused. After Abandon the pages are dead.
//
// Crash cases. Without the last part, recovery ignores all parts and the tree is as before. With the last part,
// recovery installs the whole flush.
type Build struct {
	p         *Pages
	f         *Flush
	reserve   func(pages int64) error // reserves pages before a part is built, so that appending them cannot fail for lack of room
	spent     func(pages int64)       // told the pages of a part once it is appended
	g         *logstore.Group         // the part being filled; nil if none is open
	copied    int                     // bytes of runs in the open part
	stretches []Extent                // runs and lists that were written
	nodes     []Extent                // tree pages that were written, without the root
	large     []*logstore.Private
	image     []byte // of the root
	leaf      []byte // body of the last leaf handed out; noteLeaf counts it once the caller has filled it
}

// buildCopies is how many bytes of runs the open part may hold in memory; a part that exceeds it is written
// before the next page is added.
const buildCopies = 1 << 20

// StartBuild begins a build. The build calls reserve before each part and spent after it. No flush is in flight.
// For a whole tree, CanBuild must have returned true. Token held.
func (p *Pages) StartBuild(reserve func(pages int64) error, spent func(pages int64)) *Build {
	return &Build{p: p, f: p.StartEarly(), reserve: reserve, spent: spent}
}

// CanBuild reports whether a Build with the given base may replace the tree; group is the newest group. Token
// held.
func (p *Pages) CanBuild(group uint64) bool {
	return p.dirty.len() == 0 && p.flush == nil && !p.frozen && p.nothingPending() && group > p.base
}

// begin makes sure that a part is open to which the pages can be added. It writes the open part first if that
// is full.
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

// write appends the open part. An error has poisoned the store.
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

// wrote adds pages to the list. Most of them follow the pages added last, whose extent grows then.
func wrote(list *[]Extent, a logstore.Addr, pages int64) {
	if n := len(*list); n > 0 {
		if last := &(*list)[n-1]; last.Addr+uint64(last.Pages) == a {
			last.Pages += pages
			return
		}
	}
	*list = append(*list, Extent{Addr: a, Pages: pages})
}

// Page implements btree.PageSink.
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

// Run writes a value run and returns its name. The key is empty if the leaf holds the whole key.
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

// Large writes a value that is too large for a run, and the run that lists its extents. It returns the name of
// that run.
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
	list := int64(len(key)) + logstore.ListBytes(len(extents))
	if list > b.p.store.MaxRun() {
		return 0, logstore.ErrSmallSegments
	}
	pages := logstore.RunPages(list)
	if err := b.begin(pages); err != nil {
		return 0, err
	}
	a := b.g.List(0, slices.Clone(key), extents)
	wrote(&b.stretches, a, pages)
	return a, nil
}

// Finish puts the root of a whole tree into the newest batch, and seals the flush: its base is the given group. The
// caller then writes and installs the flush, and calls Live. Beside the built pages the flush writes two more, the
// root and its last part's stream; the caller has reserved them. After an error the store is poisoned. Instead of
// Finish the caller may call Abandon.
func (b *Build) Finish(group uint64, records int64) (*Flush, error) {
	return b.FinishBy(group, func(batch *Batch) (int64, error) {
		batch.Put(Root, btree.View(b.image).Own(b.p.memory))
		return records, nil
	})
}

// FinishBy is Finish for a row of leaves. graft makes the leaves part of the tree, in the newest batch, and returns the
// number of records in the tree. The caller has reserved the pages that are dirty after graft.
func (b *Build) FinishBy(group uint64, graft func(*Batch) (records int64, err error)) (f *Flush, err error) {
	p := b.p
	defer func() {
		if err != nil {
			b.f.Abandon()
		}
	}()
	if err := b.write(); err != nil {
		return nil, err
	}
	if len(b.large) > 0 {
		if err := p.store.SyncPrivate(); err != nil {
			return nil, err
		}
	}
	records, err := graft(&p.batch)
	if err != nil {
		return nil, err
	}
	b.f.Seal(group, records)
	return b.f, nil
}

// Live marks the built pages as live for readers from the Seq of the batch on. The caller calls it after the
// flush is installed and before any checkpoint.
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

// Abandon ends a build before Finish. The written parts never count and their pages are dead. An error has
// poisoned the store.
func (b *Build) Abandon() error {
	err := b.write() // a group with pages must be committed, or the log would have a gap
	b.f.Abandon()
	for _, l := range b.large {
		l.Discard()
	}
	return err
}
