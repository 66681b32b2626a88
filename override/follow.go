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
	installer
	mu     sync.Mutex // guards groups
	groups []groupAt  // newest group that each Seq includes, ascending
}

type groupAt struct{ seq, group uint64 }

// ownNames is set in the names born by a follower. Writers count from 1.
const ownNames = 1 << 61

func (p *Pages) startFollowing(in installer) {
	p.follow = &following{installer: in, groups: []groupAt{{0, p.store.LastGroup()}}}
	p.born.Store(ownNames)
}

// stillThere is asked about each page that a reader at seq has tried to read. The page of a segment's later life is not the one it
// wanted, even if it is whole; one that is not whole is damage only if the writer cannot have used its place again.
func (p *images) stillThere(a logstore.Addr, seq uint64, err error) error {
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
func (p *images) leftName(id logstore.PageID, seq uint64) (btree.Node, error) {
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
func (p *images) GroupAt(seq uint64) uint64 {
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

// Follow takes in the next group, at the Seq of the batch begun last: see installer. After an error the pages are of no use any more but to
// readers of earlier Seqs.
func (p *Pages) Follow(g *logstore.ScannedGroup) (rebased bool, err error) { return p.follow.group(g) }

// left reports whether an entry that was to leave may leave: it is there, and still means nothing.
func (f *following) left(l leavingEntry) bool {
	if f.table.find(l.entry.id) != l.entry || l.entry.disk != 0 {
		return false
	}
	v := l.entry.head.Load()
	return v.seq <= l.seq && (v.kind == tombstone || v.kind == removed || v.kind == atAddress && v.addr == l.entry.id)
}
