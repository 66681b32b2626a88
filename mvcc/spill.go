package mvcc

import (
	"math"

	"flashdbm/internal/writeset"
	"flashdbm/logstore"
)

// spillShare: write sets may take a quarter of MemoryLimit.
const spillShare = 4

// spillBytes is the memory budget of all write sets together.
func (o *Options) spillBytes() int64 {
	if n := o.Shares.WriteSets; n > 0 {
		return n
	}
	return o.MemoryLimit / spillShare
}

// grown spills a write set that has grown if the budget requires it.
func (tx *Tx) grown() error {
	if !tx.e.tree.sets.budget.Charge(tx.set) || tx.stays() {
		return nil
	}
	if err := tx.toFile(); err != nil {
		return err
	}
	defer tx.e.readers.unpinned.leave()
	return tx.spill(false)
}

// stays reports whether a write set that should be spilled is better kept in memory: deletes on a full file. In
// segments they could take more room than there is, and they are what frees room. Together such sets may take as much
// again as the budget, and each may take a little in any case.
func (tx *Tx) stays() bool {
	used := tx.set.Used()
	if !tx.deletesOnly() || used >= writeset.LeastSpilled && tx.e.tree.sets.budget.Overdrawn() {
		return false
	}
	if used < tx.stayed+tx.stayed/8 {
		return true
	}
	tx.stayed = 0
	pages := tx.set.SpillPages(tx.e.store)
	err := tx.e.store.ReserveFor(logstore.ForDeletes, pages, tx.e.admission.estimate(tx))
	if err == nil {
		tx.e.store.Release(pages)
	}
	if !logstore.IsFull(err) {
		return false
	}
	tx.stayed = used // trying again after each write would cost more than everything else
	return true
}

// spill moves what the write set has in memory to a new layer. On a full file it asks background work for room. After
// an error the transaction cannot commit. The commit itself writes the last layer, which is not merged with others. A
// transaction of deletes takes segments under the claim of deletes.
func (tx *Tx) spill(last bool) error {
	if tx.spillErr == nil && tx.set.Len() > 0 {
		err := tx.spillOnce(last, tx.claim())
		if logstore.IsFull(err) {
			err = tx.e.admission.spillFull(tx, last)
		}
		tx.spillErr = err
	}
	return tx.spillErr
}

// spillFull is spill on a full file. An attempt that fails half way leaves lost runs behind, which occupy segments;
// so no attempt is made before there is room for the whole layer.
func (a *admission) spillFull(tx *Tx, last bool) (err error) {
	need := tx.set.SpillPages(a.store)
	// Unless last, the function still runs, and this transaction may be among the readers that would be asked to end.
	w := roomWanted{pages: math.MaxInt32}
	if last {
		w.deletes, w.pages = tx.deletesOnly(), need
	}
	w.reserve = func(more int64) error {
		if err := tx.cancelled(); err != nil {
			return err
		}
		if err := a.store.ReserveFor(tx.claim(), need, more); err != nil {
			return err
		}
		a.store.Release(need)
		return tx.spillOnce(last, tx.claim())
	}
	if last {
		a.unpin(tx)
		defer func() {
			if perr := a.pin(tx); err == nil {
				err = perr
			}
		}()
	}
	err = a.makeRoom(w)
	if tx.deletesOnly() && logstore.IsFull(err) {
		err = tx.spillOnce(last, logstore.ForWant)
	}
	return err
}

func (tx *Tx) spillOnce(last bool, c logstore.Claim) error {
	e := tx.e
	large, err := e.tree.sets.budget.Spill(tx.set, e.store, c, tx.large)
	if err != nil {
		return err
	}
	tx.large = large
	if last {
		return nil
	}
	return e.tree.sets.budget.Tidy(tx.set, tx.lent)
}
