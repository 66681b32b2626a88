package mvcc

import (
	"context"
	"errors"
	"fmt"

	"flashdbm/internal/btree"
	"flashdbm/lockfree"
	"flashdbm/logstore"
	"flashdbm/override"
)

// maxProblems is the most problems that Check reports.
const maxProblems = 100

// Check reads the whole database. First the tree as of a snapshot: every page, its name, its place in the order, and the number of
// records. Then what the log has installed: exactly the pages that the installed tree uses, and values written since, are live in the
// space map. Commits and housekeeping go on meanwhile: the second part is of the state installed at a moment, too, and the snapshot that is
// registered then keeps its pages.
func (e *Engine) Check(ctx context.Context) (err error) {
	defer e.guard(&err)
	var problems []error
	report := func(err error) {
		if err != nil && len(problems) < maxProblems {
			problems = append(problems, err)
		}
	}
	report(e.checkTree(ctx))
	if err := ctx.Err(); err != nil {
		return err
	}
	if !e.opts.Store.ReadOnly {
		report(e.checkInstalled(ctx, report))
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return errors.Join(problems...)
}

// checkInstalled checks the installed tree and compares it with the space map.
func (e *Engine) checkInstalled(ctx context.Context, report func(error)) error {
	slot, t, err := e.beginCheck()
	if err != nil {
		return err
	}
	defer slot.Release()
	defer func() {
		e.takeBaton()
		t.End()
		e.putBaton(true)
	}()
	for _, err := range t.Check(ctx) {
		report(err)
	}
	return nil
}

// beginCheck takes the installed state of now and registers a reader that keeps it. It waits for the flush or checkpoint under way.
func (e *Engine) beginCheck() (slot lockfree.Slot, t *override.Installed, err error) {
	e.keeper.mu.Lock()
	defer e.keeper.mu.Unlock()
	err = e.withBaton(func() error {
		slot, t = e.registry.Acquire(&e.applied), e.pages.BeginCheck()
		if e.Failed() == nil { // places die at the next Seq from now on, not at the reader's
			e.pages.Begin(e.applied.Load() + 1)
			e.publishNoted(e.pages.Seq(), e.records)
		}
		return nil
	})
	return slot, t, err
}

// checkTree checks the tree of a snapshot.
func (e *Engine) checkTree(ctx context.Context) error {
	slot, records, err := e.snapshot(e.view)
	if err != nil {
		return err
	}
	defer slot.Release()
	snap, used := e.pages.At(slot.Seq()), e.store.NewUsedPages()
	values := func(id btree.PageID, n btree.Node) error {
		if err := ctx.Err(); err != nil || !n.IsLeaf() {
			return err
		}
		for i := range n.Count() {
			if c := n.Cell(i); c.Kind() != btree.Inline {
				if err := snap.CheckValue(used, c); err != nil {
					return err
				}
			}
		}
		return nil
	}
	found, err := btree.CheckTree(&snap, override.Root, values)
	if err == nil && found != records {
		err = fmt.Errorf("%w: %s: %d records counted, %d found", logstore.ErrCorrupt, e.Path(), records, found)
	}
	return err
}
