package override

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// Installed is the installed state as of one moment: the tree as recovery would find it without redo, and the
// space map. A check reads it without the token, while flushes install newer states.
//
//   - An installation after that moment first saves the page's previous place in before, if none is saved,
//     under mu. So the place of a page at that moment is the saved one, or its present place if none is saved.
//   - The owner has registered a snapshot before that moment, and a new Seq begins after it. Places die at that
//     Seq or a later one, so none of the state's pages is reused, as for any reader.
type Installed struct {
	p       *Pages
	mu      sync.RWMutex // guards before, and the entries' disk fields against the token holder
	before  map[logstore.PageID]logstore.Addr
	records int64
	births  []birth
	live    *logstore.Live
}

// BeginCheck returns the state as of now. The caller calls End when it is done. No flush is in flight. Token
// held.
func (p *Pages) BeginCheck() *Installed {
	if p.flush != nil {
		panic("override: a check during a flush")
	}
	t := &Installed{p: p, before: map[logstore.PageID]logstore.Addr{}, records: p.baseRecords, births: slices.Clone(p.births), live: p.store.Live()}
	p.checks = append(p.checks, t)
	return t
}

// End ends the check. Token held.
func (t *Installed) End() {
	t.p.checks = slices.DeleteFunc(t.p.checks, func(other *Installed) bool { return other == t })
}

// disk returns the disk field that the entry of a name had at the moment of the state, 0 if the name had no
// entry.
func (t *Installed) disk(id logstore.PageID) logstore.Addr {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if a, ok := t.before[id]; ok {
		return a
	}
	if e := t.p.table.find(id); e != nil {
		return e.disk
	}
	return 0
}

func (t *Installed) addr(id btree.PageID) logstore.Addr {
	if a := t.disk(id); a != 0 {
		return a
	}
	return id
}

// Node returns the installed image of a page.
func (t *Installed) Node(id btree.PageID) (btree.Node, error) {
	a := t.addr(id)
	if !logstore.IsAddr(a) {
		return btree.Node{}, t.p.unknown(id)
	}
	image, err := t.p.store.Page(a)
	if err != nil {
		return btree.Node{}, err
	}
	return btree.View(image), nil
}

// RunKey returns the whole key of a record with a long key.
func (t *Installed) RunKey(ref btree.Ref) ([]byte, error) {
	payload, err := t.p.store.Run(t.addr(ref.ID))
	if err == nil && uint64(ref.KeyLen) > uint64(len(payload)) {
		err = t.p.badRun(ref)
	}
	if err != nil {
		return nil, err
	}
	return payload[:ref.KeyLen], nil
}

// Check verifies that no two references of the tree lead to the same page, that the tree uses every name in the
// table on disk, and that the pages live in the space map are exactly those of the tree and its values, and of
// values born since the base. It calls fault for each damaged page or record of the tree. If fault returns nil,
// Check goes on with what follows the damage. If a part of the tree cannot be read, unused names and pages are not
// reported, because that part may use them. Check neither needs the token nor waits for it.
func (t *Installed) Check(ctx context.Context, fault func(btree.Fault) error) []error {
	used, damaged, err := t.used(ctx, fault)
	if err != nil {
		return []error{err}
	}
	born, err := t.bornPages()
	if err != nil {
		return []error{err}
	}
	problems := t.live.Check(func(a logstore.Addr) (must, may bool) { return used.Has(a), damaged || used.Has(a) || born.Has(a) })
	if damaged {
		return problems
	}
	return append(problems, t.live.CheckLogged(used.Logged, born.Logged)...)
}

// used returns the pages of the tree and its values, as far as they can be read. damaged tells that some could
// not be read.
func (t *Installed) used(ctx context.Context, report func(btree.Fault) error) (used *logstore.UsedPages, damaged bool, err error) {
	p := t.p
	fault := func(f btree.Fault) error {
		damaged = true
		return report(f)
	}
	used = p.store.NewUsedPages()
	named := p.store.NewUsedPages() // places to which the table leads; no two names share one, because each page is used once
	use := func(id btree.PageID, add func(a logstore.Addr) error) error {
		disk := t.disk(id)
		if disk == 0 {
			return add(id)
		}
		err := add(disk)
		if err == nil {
			named.Add(disk, 1)
		}
		return err
	}
	useValue := func(c btree.Cell) error {
		if c.Kind() == btree.Logged {
			return p.store.UseLogged(used, logstore.Place(c.Ref().ID), c.Key(), int(c.Ref().ValueLen))
		}
		return use(c.Ref().ID, func(a logstore.Addr) error { return p.useValue(used, a, c.Ref()) })
	}
	records, err := btree.CheckWhole(t, Root, func(id btree.PageID, n btree.Node) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := use(id, func(a logstore.Addr) error { return p.store.UseOnce(used, a, 1) }); err != nil {
			return err
		}
		for i := 0; n.IsLeaf() && i < n.Count(); i++ {
			c := n.Cell(i)
			if c.Kind() == btree.Inline {
				continue
			}
			if err := useValue(c); err != nil {
				if err = fault(btree.Fault{Page: id, Low: bytes.Clone(c.Key()), Record: true, Err: err}); err != nil {
					return err
				}
			}
		}
		return nil
	}, fault)
	if err == nil && !damaged && records != t.records {
		err = fmt.Errorf("%w: %s: %d records counted in the installed tree, %d found", logstore.ErrCorrupt, p.store.Path(), t.records, records)
	}
	checkName := func(id logstore.PageID, disk logstore.Addr) {
		if err == nil && !damaged && disk != 0 && !named.Has(disk) {
			err = fmt.Errorf("%w: %s: the table leads from %#x to page %d, which has no such name in the installed tree", logstore.ErrCorrupt, p.store.Path(), id, disk)
		}
	}
	p.table.all(func(l *link) { checkName(l.id, t.disk(l.id)) })
	t.mu.RLock()
	defer t.mu.RUnlock()
	for id, disk := range t.before { // names that have left the table since are only here
		checkName(id, disk)
	}
	return used, damaged, err
}

// useValue adds the pages of a value whose run is at a to used, and verifies the run.
func (p *images) useValue(used *logstore.UsedPages, a logstore.Addr, ref btree.Ref) error {
	extents, err := p.store.UseListOnce(used, a)
	if err == nil && (extents != nil) != (ref.Kind == btree.Extents) {
		err = p.badRun(ref)
	}
	if err == nil {
		_, err = p.pagesAt(a, ref)
	}
	return err
}

// PlaceOf returns the address of the page that a name leads to, 0 if the name leads nowhere or to a node in
// memory.
func (s *Snapshot) PlaceOf(id btree.PageID) logstore.Addr {
	a, err := s.pages.addrAt(id, s.seq)
	if err != nil || !s.pages.store.InFile(a, 1) {
		return 0
	}
	return a
}

// CheckValue reads the whole value of c, which is not inline, and adds its pages to used, which has those of
// the values checked before. No two values of the snapshot may share a page.
func (s *Snapshot) CheckValue(used *logstore.UsedPages, c btree.Cell) error {
	ref := c.Ref()
	if ref.Kind == btree.Logged {
		return s.pages.store.UseLogged(used, logstore.Place(ref.ID), c.Key(), int(ref.ValueLen))
	}
	a, err := s.pages.addrAt(ref.ID, s.seq)
	if err != nil {
		return err
	}
	if err := s.pages.store.UseOnce(used, a, 1); err != nil { // before the list is read: if many records lead to one list, it is read once
		return err
	}
	if ref.Kind == btree.Run {
		payload, err := s.Run(ref)
		if rest := logstore.RunPages(int64(ref.KeyLen)+int64(len(payload))) - 1; err == nil && rest > 0 {
			err = s.pages.store.UseOnce(used, a+1, rest)
		}
		return err
	}
	extents, err := s.Extents(ref)
	for _, x := range extents {
		if err := s.pages.store.UseOnce(used, x.Addr, x.Pages()); err != nil {
			return err
		}
		if _, err := s.Raw(x); err != nil {
			return err
		}
	}
	return err
}

// bornPages returns the pages of values that entered the log after the base. They are live even if the tree no
// longer refers to them.
func (t *Installed) bornPages() (*logstore.UsedPages, error) {
	pages := t.p.store.NewUsedPages()
	for _, b := range t.births {
		if b.mask != 0 {
			pages.AddLogged(b.addr, b.mask)
			continue
		}
		if _, err := t.p.store.UseListOnce(pages, b.addr); err != nil {
			return nil, err
		}
	}
	return pages, nil
}
