package mvcc

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"flashdbm/internal/btree"
	"flashdbm/lockfree"
	"flashdbm/logstore"
	"flashdbm/override"
)

// DamageScope says which keys a Damage covers.
type DamageScope int

const (
	DamagedKeys   DamageScope = iota // the keys from From on and below To, or to the end if To is empty
	DamagedRecord                    // the record with the key From
	DamagedSpace                     // no key: counts, names, or the map of the space in the file
)

// Damage is one problem that CheckAll has found.
type Damage struct {
	Page     logstore.Addr // index of the page of 4,096 bytes in the file; 0 if it is not known or there is none
	From, To []byte
	Scope    DamageScope
	Err      error
}

// CheckAll reads the whole database and calls report for each damage. First it reads the tree as of a snapshot: every
// page, its name and its place in the order, every value, and the number of records. Then it reads what the log has
// installed: exactly the pages that the installed tree uses, and values written since, must be live in the space map.
// Commits and background work go on meanwhile: the second part is also of one moment, and a snapshot registered at
// that moment keeps its pages. Damage that both parts find is reported once.
//
// The error is that of ctx, or says that the check could not go on.
func (e *Engine) CheckAll(ctx context.Context, report func(Damage)) (err error) {
	defer e.guard(&err)
	c := check{e: e, ctx: ctx, report: report, told: e.store.NewUsedPages()}
	if err := c.tree(); err != nil || e.opts.Store.ReadOnly {
		return err
	}
	return c.installed()
}

// maxProblems is the most problems that Check returns.
const maxProblems = 100

// Check is CheckAll with one error for a result: it joins the first 100 problems and the reason why the check could
// not go on. If there are no problems, that reason is returned as it is.
func (e *Engine) Check(ctx context.Context) error {
	var problems []error
	err := e.CheckAll(ctx, func(d Damage) {
		if len(problems) < maxProblems {
			problems = append(problems, d.Err)
		}
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if len(problems) == 0 {
		return err
	}
	return errors.Join(append(problems, err)...)
}

// check is a CheckAll under way.
type check struct {
	e      *Engine
	ctx    context.Context
	report func(Damage)
	found  int
	told   *logstore.UsedPages // pages that were reported
}

// fault reports damage of the tree. It returns an error if the check cannot go on.
func (c *check) fault(f btree.Fault, place func(btree.PageID) logstore.Addr) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	if errors.Is(f.Err, logstore.ErrTooOld) || !errors.Is(f.Err, logstore.ErrCorrupt) && !errors.Is(f.Err, btree.ErrMalformed) {
		return f.Err
	}
	d := Damage{From: f.Low, To: f.High, Err: f.Err}
	if f.Record {
		d.Scope = DamagedRecord
	}
	var page *logstore.PageError
	if errors.As(f.Err, &page) && c.e.store.InFile(page.Addr, 1) {
		d.Page = page.Addr
	} else {
		d.Page = place(f.Page)
	}
	if !errors.Is(d.Err, logstore.ErrCorrupt) {
		d.Err = fmt.Errorf("%w: %s: %w", logstore.ErrCorrupt, c.e.Path(), d.Err)
	}
	if d.Page != 0 {
		c.told.Add(d.Page, 1)
	}
	c.found++
	c.report(d)
	return nil
}

// readable is a snapshot of the tree in which a page that the device cannot read is an error like others.
type readable struct {
	*override.Snapshot
	e *Engine
}

func (r readable) Node(id btree.PageID) (n btree.Node, err error) {
	defer r.e.guard(&err)
	return r.Snapshot.Node(id)
}

func (r readable) RunKey(ref btree.Ref) (key []byte, err error) {
	defer r.e.guard(&err)
	return r.Snapshot.RunKey(ref)
}

func (r readable) value(used *logstore.UsedPages, c btree.Cell) (err error) {
	defer r.e.guard(&err)
	return r.Snapshot.CheckValue(used, c)
}

// tree checks the newest tree, after everything committed was merged into it.
func (c *check) tree() error {
	if c.e.tree.lags() {
		if err := c.e.tree.mergeAll(); err != nil {
			return err
		}
	}
	var reader pinned
	if err := c.e.readers.look(&reader, c.e.marks.viewAt); err != nil {
		return err
	}
	defer reader.slot.Release()
	snap, records := reader.snap.Snapshot, max(reader.snap.view.Records, 0)
	r := readable{&snap, c.e}
	fault := func(f btree.Fault) error { return c.fault(f, snap.PlaceOf) }
	values, nodes := c.e.store.NewUsedPages(), c.e.store.NewUsedPages() // nodes: by name
	visit := func(id btree.PageID, n btree.Node) error {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		if !nodes.Add(id, 1) {
			return fmt.Errorf("%w: a second reference leads to page %#x", btree.ErrMalformed, id)
		}
		for i := 0; n.IsLeaf() && i < n.Count(); i++ {
			if cell := n.Cell(i); cell.Kind() != btree.Inline {
				if err := r.value(values, cell); err != nil {
					if err = fault(btree.Fault{Page: id, Low: bytes.Clone(cell.Key()), Record: true, Err: err}); err != nil {
						return err
					}
				}
			}
		}
		return nil
	}
	found, err := btree.CheckWhole(r, override.Root, visit, fault)
	if err == nil && c.found == 0 && found != records {
		c.space(fmt.Errorf("%w: %s: %d records counted, %d found", logstore.ErrCorrupt, c.e.Path(), records, found))
	}
	return err
}

// space reports damage that covers no keys.
func (c *check) space(err error) {
	c.found++
	c.report(Damage{Scope: DamagedSpace, Err: err})
}

// installed checks the installed tree and compares it with the space map.
func (c *check) installed() error {
	slot, t, err := c.begin()
	if err != nil {
		return err
	}
	defer slot.Release()
	defer func() {
		c.e.token.take()
		t.End()
		c.e.token.pass(true)
	}()
	problems := t.Check(c.ctx, func(f btree.Fault) error {
		var page *logstore.PageError
		if errors.As(f.Err, &page) && c.told.Has(page.Addr) {
			return c.ctx.Err()
		}
		return c.fault(f, func(btree.PageID) logstore.Addr { return 0 })
	})
	if err := c.ctx.Err(); err != nil {
		return err
	}
	for _, err := range problems {
		if !errors.Is(err, logstore.ErrCorrupt) {
			return err
		}
		c.space(err)
	}
	return nil
}

// begin takes the installed state of this moment and registers a reader that keeps it. It waits for the flush or
// checkpoint under way.
func (c *check) begin() (slot lockfree.Slot, t *override.Installed, err error) {
	e := c.e
	e.checkpoints.mu.Lock()
	defer e.checkpoints.mu.Unlock()
	err = e.tree.withMerged(func() error {
		slot, t = e.readers.registry.Acquire(&e.readers.views), e.pages.BeginCheck()
		if e.Failed() == nil { // from now on places die at the next Seq, not at the reader's
			e.pages.Begin(e.marks.applied.Load() + 1)
			e.tree.publishEdit()
		}
		return nil
	})
	return slot, t, err
}
