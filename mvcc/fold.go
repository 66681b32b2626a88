package mvcc

import (
	"flashdbm/logstore"
	"flashdbm/override"
)

// foldAgain reports whether another fold and the flush of what it changes are worth it.
func (fl *flusher) foldAgain() (again bool, err error) {
	err = fl.tree.withTree(func() error {
		names := fl.pages.TableEntries()
		again = names >= foldAgainEntries && int64(fl.pages.DirtyPages()) <= names/foldAgainShare
		return nil
	})
	return again, err
}

// fold rewrites inner nodes that lead to children through the table, as many as there is room for. No commit has
// reserved room for that, and without folds the checkpoint that may make room needs no more than is reserved.
func (fl *flusher) fold() error {
	return fl.foldWith(func(extra int64) error { return fl.store.Reserve(extra, false) })
}

// foldWith is fold with another reservation.
func (fl *flusher) foldWith(reserve func(extra int64) error) (err error) {
	defer fl.protect(&err)
	plan, err := fl.readers.planFolds(func(s *override.Snapshot) ([]logstore.PageID, error) { return s.FoldPlan(1) })
	if err != nil {
		return fl.store.Fail(err)
	}
	return fl.eachParent(plan, (*override.Batch).Fold, reserve)
}

// eachParent applies do to the given inner nodes, as far as reserve finds room. Among the batches of a bulk load,
// whose commits wait longer anyway, it does more nodes under one token.
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

// shortenTable folds all parents of a full file if the translation table has an entry for more than a longTable-th of
// the live pages. Each checkpoint writes the whole table, and the pages that puts must leave free grow with the
// square root of that. Leaves made by a load in key order are all found through the table. The caller holds
// checkpoints.mu.
func (fl *flusher) shortenTable(reserve reservation) error {
	if fl.pages.TableEntries()*longTable <= fl.store.SpaceStats().LiveBytes/logstore.PageSize {
		return nil
	}
	return fl.foldWith(reserve)
}

// drain folds, in the given way, the parents of pages whose names keep segments without live pages from reuse, as
// many as there is room for. It reports whether it has folded any. Each turn of cleanForRoom writes two checkpoints,
// and a turn that reports progress is followed by another; a false report would lead to turns until there is no room
// for the checkpoints that the next delete needs.
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

// unpin folds the parents of pages whose names keep segments without live pages from reuse. Parents with families are
// folded too if that makes the next flush write little for what it frees; otherwise they wait for their parts. While
// records are put in random order nearly all parents have families: in a file of 300 MB, loaded with little memory, 50
// of them kept 60 MiB from reuse, and rounds that make room gained nothing.
func (fl *flusher) unpin() (err error) {
	defer fl.protect(&err)
	plan, err := fl.drainPlan()
	if err != nil {
		return err
	}
	fold := (*override.Batch).FoldClean
	if err := fl.tree.withTree(func() error {
		if fl.pages.FamilyPages(plan)*unpinGain <= fl.store.Account().Named {
			fold = func(b *override.Batch, parent logstore.PageID) (int, error) {
				return b.FoldFamily(parent, fl.store.Pinned)
			}
		}
		return fl.Failed()
	}); err != nil {
		return err
	}
	return fl.eachParent(plan, fold, fl.pressure.reserveMore)
}

// unpinGain: families are written if what the names keep is at least 4 times as much.
const unpinGain = 4

// drainPlan lists the parents of pages whose names keep segments without live pages from reuse.
func (fl *flusher) drainPlan() ([]logstore.PageID, error) {
	plan, err := fl.readers.planFolds(func(s *override.Snapshot) ([]logstore.PageID, error) { return s.DrainPlan(fl.store.Pinned) })
	if err != nil {
		return nil, fl.store.Fail(err)
	}
	return plan, nil
}
