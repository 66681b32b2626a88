package mvcc

import (
	"cmp"
	"errors"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
	"flashdbm/override"
)

// Background work makes versions of the tree with the same records: it folds nodes, makes pages dirty so that the
// next flush moves them, and fills leaves up. All of that goes through edit, a few pages at a time under the token.

// A reservation finds room for extra pages in addition to those reserved.
type reservation func(extra int64) error

func (p *pressure) reserveMore(extra int64) error { return p.store.Reserve(extra, false) }

const (
	foldsAtOnce  = 8   // inner nodes folded under one token,
	foldsInBulk  = 128 // and while commits are large
	foldPages    = 3   // most pages that folding one node adds to the next flush: its own, and its share of the names folded away
	cleanAtOnce  = 32  // pages made dirty under one token
	refillLeaves = 64  // leaves looked at under one token, to be filled up
)

// edit makes a version of the tree with the same records, for which the next flush has up to extra more pages to
// write. ErrFull if reserve finds no room for them. These pages do not count for how fast the tree grows. The caller
// has the token, and no merge is under way.
func (p *pressure) edit(extra int64, reserve reservation, change func(*override.Batch) error) error {
	if err := p.Failed(); err != nil {
		return err
	}
	if err := reserve(extra); err != nil {
		return err
	}
	if err := p.editFor(change); err != nil {
		return p.store.Fail(err)
	}
	p.room.rebalance(extra)
	return nil
}

// editFor is edit without a reservation.
func (p *pressure) editFor(change func(*override.Batch) error) error {
	before := p.pages.Obliged()
	defer func() { p.growth.own += p.pages.Obliged() - before }()
	if err := change(p.pages.Begin(p.marks.applied.Load() + 1)); err != nil {
		return err
	}
	p.tree.publishEdit()
	return nil
}

// applying returns an edit that applies ops.
func applying(ops []btree.Op) func(*override.Batch) error {
	return func(b *override.Batch) error {
		_, err := btree.Apply(b, override.Root, ops)
		return err
	}
}

// folding changes the names that an inner node has for its children.
type folding func(b *override.Batch, parent logstore.PageID) (int, error)

// foldSome folds some inner nodes. ErrFull if there is no room for them in the next flush. The caller has the token,
// and no merge is under way.
func (fl *flusher) foldSome(parents []logstore.PageID, do folding, reserve reservation) error {
	err := fl.pressure.edit(int64(len(parents))*foldPages, reserve, func(b *override.Batch) error {
		for _, id := range parents {
			if _, err := do(b, id); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		fl.tree.reclaim() // a fold that renames children has copied them
	}
	return err
}

// touching makes a live page dirty, and reports whether it was clean.
type touching func(*override.Batch, logstore.PageID) (bool, error)

// touchAll makes live pages dirty as long as there is room for them in the next flush. A damaged page stays where it
// is. The caller holds checkpoints.mu and not the token.
func (fl *flusher) touchAll(live []logstore.PageID, touch touching, reserve reservation) (room bool, err error) {
	for len(live) > 0 {
		n := min(len(live), cleanAtOnce, fl.stepPages())
		err := fl.tree.withTree(func() error { return fl.touchSome(live[:n], touch, reserve) })
		if err != nil {
			if logstore.IsFull(err) {
				err = nil
			}
			return false, err
		}
		live = live[n:]
		fl.checkpoints.pace()
	}
	return true, nil
}

// touchSome is touchAll for a few pages. ErrFull if there is no room. The caller has the token, and no merge is under
// way.
func (fl *flusher) touchSome(live []logstore.PageID, touch touching, reserve reservation) error {
	return fl.pressure.edit(withMargin(int64(len(live)))+2, reserve, func(b *override.Batch) error {
		for _, a := range live {
			moved, err := touch(b, a)
			if err != nil && !errors.Is(err, logstore.ErrCorrupt) {
				return err
			}
			if moved {
				fl.moved.Add(1)
			}
		}
		return nil
	})
}

// refilling fills leaves up: btree.Repack or btree.Spread.
type refilling func(e btree.Editor, root btree.PageID, from []byte, most int) (btree.Repacked, error)

// refillSome fills some leaves up, from the one with the given key on. ErrFull if there is no room for them in the
// next flush.
func (fl *flusher) refillSome(key []byte, refill refilling) (r btree.Repacked, err error) {
	return fl.refillWith(key, refillLeaves, refill, func(extra int64) error { return fl.store.ReserveFor(logstore.ForDeletes, extra, 0) })
}

// refillWith is refillSome for at most the given number of leaves. A leaf that cannot be read is an error of this
// call and does not poison the store: commits that do not need it go on.
func (fl *flusher) refillWith(key []byte, most int, refill refilling, reserve reservation) (r btree.Repacked, err error) {
	most = min(most, refillLeaves, 4*fl.stepPages())
	var unread error
	err = fl.tree.withMerged(func() error {
		return fl.pressure.edit(withMargin(int64(most))+4, reserve, func(b *override.Batch) (err error) {
			if r, err = refill(b, override.Root, key, most); err != nil && !r.Begun {
				unread, err = err, nil
			}
			return err
		})
	})
	return r, cmp.Or(err, unread)
}
