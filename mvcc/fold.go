package mvcc

import (
	"flashdbm/logstore"
	"flashdbm/override"
)

// foldAgain reports whether another fold and the flush of what it changes are worth their while.
func (fl *flusher) foldAgain() (again bool, err error) {
	err = fl.tree.withTree(func() error {
		names := fl.pages.TableEntries()
		again = names >= foldAgainEntries && int64(fl.pages.DirtyPages()) <= names/foldAgainShare
		return nil
	})
	return again, err
}

// fold rewrites inner nodes that lead to children through the table, as many as there is room for: no commit has reserved any for them,
// and without them the checkpoint that may make room needs no more than is reserved.
func (fl *flusher) fold() error {
	return fl.foldWith(func(extra int64) error { return fl.store.Reserve(extra, false) })
}

// foldWith is fold with another idea of what room there is.
func (fl *flusher) foldWith(reserve func(extra int64) error) (err error) {
	defer fl.protect(&err)
	plan, err := fl.readers.planFolds(func(s *override.Snapshot) ([]logstore.PageID, error) { return s.FoldPlan(1) })
	if err != nil {
		return fl.store.Fail(err)
	}
	return fl.eachParent(plan, (*override.Batch).Fold, reserve)
}

// eachParent folds the given inner nodes, or does what else is to be done to them, as far as reserve finds room: behind the batches of a bulk
// load, for which commits wait longer anyway, more of them in one turn with the token.
func (fl *flusher) eachParent(plan []logstore.PageID, do folding, reserve reservation) error {
	for most := foldsInBulk; len(plan) > 0; {
		n := 0
		err := fl.tree.withTree(func() error {
			if n = min(len(plan), most); fl.log.recent.ops < deferOps {
				n = min(n, foldsAtOnce)
			}
			return fl.foldSome(plan[:n], do, reserve)
		})
		if logstore.IsFull(err) && n > 1 {
			most = n / 2
			continue
		}
		if logstore.IsFull(err) {
			return nil
		}
		if err != nil {
			return fl.store.Fail(err)
		}
		plan = plan[n:]
		fl.step(StepBetween)
	}
	return nil
}

// shortenTable folds all parents of a full file whose translation table has an entry for more than a longTable-th of the pages that live. Each
// checkpoint writes the whole table, and the pages that puts have to leave free grow with the root of that. Leaves that a load in key order
// has made are all found through the table. The caller holds checkpoints.mu.
func (fl *flusher) shortenTable(reserve reservation) error {
	if fl.pages.TableEntries()*longTable <= fl.store.SpaceStats().LiveBytes/logstore.PageSize {
		return nil
	}
	return fl.foldWith(reserve)
}

// drain folds, in the given way, the parents of pages whose names keep segments from reuse in which nothing lives, as many as there is room for, and reports
// whether it has folded any: each turn of gather writes two checkpoints, and one that gains nothing and says that it did is followed by
// another, until there is no room for the checkpoints that the next delete needs.
func (fl *flusher) drain(fold folding, reserve func(extra int64) error) (any bool, err error) {
	defer fl.protect(&err)
	plan, err := fl.drainPlan()
	if err != nil {
		return false, err
	}
	folded := 0
	err = fl.eachParent(plan, func(b *override.Batch, parent logstore.PageID) (int, error) {
		n, err := fold(b, parent)
		folded += n
		return n, err
	}, reserve)
	return folded > 0, err
}

// drainPlan lists the parents of pages whose names keep segments from reuse in which nothing lives.
func (fl *flusher) drainPlan() ([]logstore.PageID, error) {
	plan, err := fl.readers.planFolds(func(s *override.Snapshot) ([]logstore.PageID, error) { return s.DrainPlan(fl.store.Pinned) })
	if err != nil {
		return nil, fl.store.Fail(err)
	}
	return plan, nil
}
