package salvage

import (
	"context"

	"flashdbm/internal/btree"
	"flashdbm/internal/pagefile"
	"flashdbm/logstore"
	"flashdbm/override"
)

// A Reading gives access to the sound pages of a file, without need of a superblock: for programs that display the
// content of a file. One goroutine at a time may use it.
type Reading struct{ s *salvager }

// Read reads all pages of a file.
func Read(ctx context.Context, f *pagefile.File) (*Reading, error) {
	s := newSalvager(f, Options{})
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	return &Reading{s}, nil
}

// Checkpoint returns the translation table and the space map of the newest complete checkpoint, and the number of
// its last group; 0 if there is none.
func (r *Reading) Checkpoint() (last uint64, table override.Table, space []logstore.MapEntry) {
	if c := r.s.checkpoint; c != nil {
		return c.last, c.table, c.live
	}
	return 0, table, nil
}

// A Group is the sound pages of a group of the log.
type Group struct {
	No    uint64
	Kind  logstore.GroupKind
	Pages []logstore.Addr // addresses of the pages with a mux area
	Whole bool            // no page is missing
}

// Groups calls fn for each group from the given one on that has a sound page, in order.
func (r *Reading) Groups(from uint64, fn func(g Group) error) error {
	return r.s.groups(max(from, 1)-1, func(g group) error {
		x := Group{No: g.no, Kind: g.kind, Whole: g.whole}
		for i := range g.pages {
			x.Pages = append(x.Pages, g.pages[i].addr)
		}
		return fn(x)
	})
}

// Node reads the page with a name into p. asOf is a lower bound for the group whose state the page
// has.
func (r *Reading) Node(name logstore.PageID, p []byte) (a logstore.Addr, asOf uint64, n btree.Node, err error) {
	at, n, err := r.s.node(name, p)
	return at.addr, at.asOf, n, err
}

// RunKey returns the whole key of a record with a long key.
func (r *Reading) RunKey(ref btree.Ref) ([]byte, error) {
	x, err := r.s.run(ref.ID)
	if err == nil && uint64(ref.KeyLen) > uint64(len(x.payload)) {
		err = r.s.f.Error(ref.ID, "the run does not hold the key of its record")
	}
	if err != nil {
		return nil, err
	}
	return x.payload[:ref.KeyLen], nil
}

// Redo returns the newest redo record of a key after the redo start.
func (r *Reading) Redo(key []byte) (group uint64, deleted bool, page logstore.Addr, ok bool) {
	f := r.s.factOf(key)
	if f == nil || f.leaf != 0 {
		return 0, false, 0, false
	}
	return f.asOf, f.deleted, f.pages[0], true
}

// Separator returns the lower bound of child i of an inner node. If it was cut, that is the first key below the
// child, if this can be read.
func (r *Reading) Separator(n btree.Node, i int) []byte { return r.s.separator(n, i) }
