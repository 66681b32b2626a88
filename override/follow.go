package override

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// following is what pages have that are read beside a writer in another process. They go on where recovery ended: groups are taken in as
// they come, the caller applies the redo of record groups behind the base. That makes versions in memory, with names of its own choice,
// and they are thrown away when the writer's next flush or page group brings the pages of that state; what lies behind the new base is
// applied again. Readers of earlier Seqs keep what they see, by the same chains and the same limbo as in the writer.
//
// What differs from the writer:
//   - Names born here have a bit that no writer's name has, so the two never meet.
//   - The writer does not wait for readers here before it uses a segment again. A name that has left the table is kept for them as a
//     tombstone; should the same number be an address of the tree by then, the tombstone says so.
//   - A page that a reader wants may be gone: see stillThere.
type following struct {
	tableBase uint64
	parts     map[uint64][]logstore.ScannedPage // tree pages of flushes under way, by the group of the first part

	mu     sync.Mutex // guards groups
	groups []groupAt  // newest group that each Seq includes, ascending
}

type groupAt struct{ seq, group uint64 }

// ownNames is set in the names born by a follower. Writers count from 1.
const ownNames = 1 << 61

func (p *Pages) startFollowing(tableBase uint64, parts map[uint64][]logstore.ScannedPage) {
	p.follow = &following{tableBase: tableBase, parts: parts, groups: []groupAt{{0, p.store.LastGroup()}}}
	p.born.Store(ownNames)
}

// stillThere is asked about each page that a reader at seq has tried to read. The page of a segment's later life is not the one it
// wanted, even if it is whole; one that is not whole is damage only if the writer cannot have used its place again.
func (p *Pages) stillThere(a logstore.Addr, seq uint64, err error) error {
	if err == nil && p.store.EnteredAt(a) <= seq {
		return nil
	}
	if err == nil || (errors.Is(err, logstore.ErrCorrupt) && p.store.CheckpointedSince(p.follow.groupOf(seq))) {
		return fmt.Errorf("%w: %s: the writer has used page %d again", logstore.ErrTooOld, p.store.Path(), a)
	}
	return err
}

// Raw returns the bytes of an extent for a reader.
func (s *Snapshot) Raw(x logstore.Extent) ([]byte, error) {
	b, err := s.pages.store.Raw(x)
	if err != nil && s.pages.follow != nil {
		err = s.pages.stillThere(x.Addr, s.seq, err)
	}
	return b, err
}

// leftName returns the page of a name whose entry is a tombstone for this reader: in the writer nobody comes by it any more.
func (p *Pages) leftName(id logstore.PageID, seq uint64) (btree.Node, error) {
	if p.follow == nil || !logstore.IsAddr(id) {
		return btree.Node{}, p.unknown(id)
	}
	image, err := p.image(id, seq)
	if err != nil {
		return btree.Node{}, err
	}
	return btree.View(image), nil
}

// GroupAt returns the newest group that a snapshot of pages that this process does not write includes.
func (p *Pages) GroupAt(seq uint64) uint64 {
	if p.follow == nil {
		return p.store.LastGroup()
	}
	return p.follow.groupOf(seq)
}

func (f *following) groupOf(seq uint64) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	i, _ := slices.BinarySearchFunc(f.groups, seq+1, func(g groupAt, seq uint64) int {
		if g.seq < seq {
			return -1
		}
		return 1
	})
	return f.groups[max(0, i-1)].group
}

// Followed notes that the batch begun last includes all groups read so far, and forgets what only Seqs below the horizon need.
func (p *Pages) Followed(horizon uint64) {
	f := p.follow
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for n+1 < len(f.groups) && f.groups[n+1].seq <= horizon {
		n++
	}
	f.groups = append(slices.Delete(f.groups, 0, n), groupAt{p.seq, p.store.LastGroup()})
}

// Follow takes in the next group, at the Seq of the batch begun last. rebased: there is a new base, and all behind RedoStart is to be
// applied again. After an error the pages are of no use any more but to readers of earlier Seqs.
func (p *Pages) Follow(g *logstore.ScannedGroup) (rebased bool, err error) {
	switch g.Kind {
	case logstore.RecordGroup, logstore.PageGroup:
		if err := p.recoverBirths(g); err != nil {
			return false, err
		}
		if g.Kind == logstore.RecordGroup {
			return false, nil
		}
		p.rewind()
		if err := p.followPages(g.Pages); err != nil {
			return false, err
		}
		p.rebase(g.No, g.No, int64(g.Count))
		return true, nil
	case logstore.FlushGroup:
		stream, err := p.flushStream(g)
		if err != nil {
			return false, err
		}
		if stream == nil {
			p.follow.parts[g.Count] = append(p.follow.parts[g.Count], g.Pages...)
			return false, nil
		}
		return p.followFlush(g, stream)
	}
	return false, nil
}

// BaseRecords returns the number of records as of the base.
func (p *Pages) BaseRecords() int64 { return p.baseRecords }

// put makes v the newest version of an entry.
func (p *Pages) put(e *entry, v *version) {
	old := e.head.Load()
	v.seq = p.seq
	if old.seq == v.seq { // not published yet
		v.next.Store(old.next.Load())
		e.head.Store(v)
		if old.kind == inMemory {
			old.node.Release(p.memory)
		}
		return
	}
	v.next.Store(old)
	e.head.Store(v)
	p.limbo.supersede(e, old, v.seq)
}

// leave has an entry taken out of the table once nobody reads below the present Seq.
func (p *Pages) leave(e *entry) {
	p.limbo.entries = append(p.limbo.entries, leavingEntry{e, p.seq})
}

// left reports whether an entry that was to leave may leave: it is there, and still means nothing.
func (f *following) left(p *Pages, l leavingEntry) bool {
	if p.table.find(l.entry.id) != l.entry || l.entry.disk != 0 {
		return false
	}
	v := l.entry.head.Load()
	return v.seq <= l.seq && (v.kind == tombstone || v.kind == removed || v.kind == atAddress && v.addr == l.entry.id)
}

// rewind goes back to the installed pages: what redo has made in memory is no longer current.
func (p *Pages) rewind() {
	for _, e := range p.dirty.pages {
		switch at := e.place(); {
		case at == 0: // born here
			p.put(e, &version{kind: removed})
			p.leave(e)
		default:
			p.put(e, &version{kind: atAddress, addr: at})
			if e.disk == 0 {
				p.leave(e)
			}
		}
	}
	p.dirty.clear()
	p.deaths = deaths{}
}

// followPages installs tree pages for readers from the present Seq on.
func (p *Pages) followPages(pages []logstore.ScannedPage) error {
	for _, page := range pages {
		if page.Kind != logstore.KindTree {
			continue
		}
		if page.Name == page.Addr { // built: see Build
			p.store.MarkNode(page.Addr, 0)
			continue
		}
		if logstore.IsAddr(page.Name) && !p.store.InFile(page.Name, 1) {
			return fmt.Errorf("%w: %s: page %d bears the name %d", logstore.ErrCorrupt, p.store.Path(), page.Addr, page.Name)
		}
		v := &version{kind: atAddress, addr: page.Addr}
		e := p.table.find(page.Name)
		switch {
		case e != nil:
			p.put(e, v)
		case logstore.IsAddr(page.Name):
			e = p.enter(page.Name)
			p.put(e, v)
		default:
			e = &entry{id: page.Name}
			v.seq = p.seq
			e.head.Store(v)
			p.attach(e)
		}
		p.install(e, page.Addr, 0)
	}
	return nil
}

// followFlush is recoverFlush with readers about.
func (p *Pages) followFlush(g *logstore.ScannedGroup, stream []byte) (rebased bool, err error) {
	end, err := getFlushEnd(stream, g.No)
	if err != nil {
		return false, fmt.Errorf("%s: %w", p.store.Path(), err)
	}
	parts := append(p.follow.parts[end.first], g.Pages...)
	clear(p.follow.parts) // those of other flushes are void
	if end.base <= p.follow.tableBase {
		return false, nil
	}
	p.rewind()
	if err := p.followPages(parts); err != nil {
		return false, err
	}
	if err := p.recoverRuns(g.No, parts); err != nil {
		return false, err
	}
	for _, r := range end.retired {
		e := p.table.find(r.id)
		if e == nil || e.disk != r.addr {
			return false, p.badFlush(g.No, r.id)
		}
		e.disk = 0
		p.put(e, &version{kind: tombstone})
		p.leave(e)
	}
	for _, id := range end.removed {
		if e := p.table.find(id); e != nil {
			if at := e.place(); at != 0 {
				p.store.KillNode(at, 0)
			}
			e.disk = 0
			p.put(e, &version{kind: removed})
			p.leave(e)
		} else if logstore.IsAddr(id) {
			if !p.store.InFile(id, 1) {
				return false, p.badFlush(g.No, id)
			}
			p.store.KillNode(id, 0)
		}
	}
	if err := p.killListed(g.No, end.dying); err != nil {
		return false, err
	}
	p.rebase(end.base, end.redo, end.records)
	return true, nil
}
