package override

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// following is the state of pages that are read beside a writer in another process. It continues where recovery
// ended: groups are taken in as they are read, and the caller applies the redo of record groups after the base.
// Redo makes versions in memory, under names that this process chooses. They are dropped when the writer's next
// flush or page group brings the pages of that state; redo after the new base is then applied again. Readers of
// earlier Seqs keep what they see, through the same chains and the same limbo as in the writer.
//
// Differences from the writer:
//   - Names born here have a bit set that no name of the writer has, so the two never meet.
//   - The writer does not wait for readers of this process before it reuses a segment. A name that has left the
//     table stays here as a tombstone for them; if the same number is an address in the tree by then, the
//     tombstone leads there (leftName).
//   - A page that a reader wants may be gone: see stillThere.
type following struct {
	installer
	mu     sync.Mutex // guards groups
	groups []groupAt  // for each Seq the newest group that it includes with all groups before, ascending: see known
}

type groupAt struct{ seq, group uint64 }

// ownNames is set in the names born by a follower. The names of a writer count up from 1 and do not reach it.
const ownNames = 1 << 61

func (p *Pages) startFollowing(in installer) {
	p.follow = &following{installer: in, groups: []groupAt{{0, in.known()}}}
	p.born.Store(ownNames)
}

// stillThere decides what a read by a reader at seq means. If the segment has been reused since, the page is
// not the one that the reader wanted, even if the page is whole: ErrTooOld. A page that is not whole is damage
// only if the writer cannot have reused its place.
func (p *images) stillThere(a logstore.Addr, seq uint64, err error) error {
	if err == nil && p.store.EnteredAt(a) <= seq {
		return nil
	}
	if err == nil || (errors.Is(err, logstore.ErrCorrupt) && p.store.CheckpointedSince(p.follow.groupOf(seq))) {
		return fmt.Errorf("%w: %s: the writer has reused page %d", logstore.ErrTooOld, p.store.Path(), a)
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

// leftName returns the page at the address that is the name of an entry with a tombstone for this reader. In
// the writer no reader reaches such a name.
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

// GroupAt returns the newest group that a snapshot at seq includes, in pages that another process writes.
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

// Followed notes which groups the batch begun last includes, and drops what only Seqs below the
// horizon need.
func (p *Pages) Followed(horizon uint64) {
	f := p.follow
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for n+1 < len(f.groups) && f.groups[n+1].seq <= horizon {
		n++
	}
	f.groups = append(slices.Delete(f.groups, 0, n), groupAt{p.seq, f.known()})
}

// Follow takes in the next group, at the Seq of the batch begun last: see installer.group. After an error the
// pages can only serve readers of earlier Seqs.
func (p *Pages) Follow(g *logstore.ScannedGroup) (rebased bool, err error) { return p.follow.group(g) }

// left reports whether an entry in limbo may be detached: it is still in the table, and its name still means
// nothing in the newest tree.
func (f *following) left(l leavingEntry) bool {
	if f.table.find(l.entry.id) != l.entry || l.entry.disk != 0 {
		return false
	}
	v := l.entry.newest()
	return v.seq <= l.seq && (v.kind == tombstone || v.kind == removed || v.kind == atAddress && v.addr == l.entry.id)
}
