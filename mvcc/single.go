package mvcc

import "flashdbm/logstore"

// kept is what a transaction has for its commit, and one of WriteOne leaves to the next that uses its memory, beside its place in the
// registry.
type kept struct {
	wake  chan signal  // room for one; nobody is woken twice
	set   *WriteSet    // empty; nil for none
	nodes []commitNode // never pushed
}

const (
	keptSets  = 16       // for the next leaders
	keptNodes = 16       // allocated at once, unless the record is large: one of them keeps all in memory, with sets that are not used again
	keptBytes = 16 << 10 // of a set
)

// node returns a node for the commit list, which each commit needs its own of.
func (tx *Tx) node() *commitNode {
	if !tx.single || tx.set.Bytes() > keptBytes {
		return new(commitNode)
	}
	if len(tx.kept.nodes) == 0 {
		tx.kept.nodes = make([]commitNode, keptNodes)
	}
	n := &tx.kept.nodes[0]
	tx.kept.nodes = tx.kept.nodes[1:]
	return n
}

// WriteOne puts or removes one record in a transaction of its own. It reads nothing, so it cannot lose to another. Nothing is allocated
// but what the commit list keeps: the transaction is used again and again.
func (e *Engine) WriteOne(key, value []byte, remove bool) (err error) {
	if e.opts.Store.ReadOnly {
		return logstore.ErrReadOnly
	}
	if err := e.Failed(); err != nil {
		return err
	}
	tx, ok := e.singles.Get().(*Tx)
	if !ok {
		tx = &Tx{e: e, single: true}
	}
	if tx.slot, err = e.enterNear(tx.slot, &e.applied); err != nil {
		return err
	}
	tx.snap, tx.seen = e.pages.At(tx.slot.Seq()), false
	if err = tx.writeOne(key, value, remove); err == nil {
		err = tx.Commit()
	}
	*tx = Tx{e: e, slot: tx.slot, single: true, kept: tx.kept}
	e.singles.Put(tx)
	return err
}

// writeOne writes the record, or ends the transaction: also if the caller's key or value cannot be read, which panics.
func (tx *Tx) writeOne(key, value []byte, remove bool) (err error) {
	written := false
	defer func() {
		if !written {
			if rerr := tx.Rollback(); rerr != nil {
				err = rerr
			}
		}
	}()
	if remove {
		err = tx.Delete(key)
	} else {
		err = tx.Put(key, value)
	}
	written = err == nil
	return err
}
