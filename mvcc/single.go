package mvcc

import "flashdbm/logstore"

// WriteOne puts or removes one record in a transaction of its own. It reads nothing, so it cannot lose to another. Nothing is allocated
// but what the commit list keeps: the transaction is used again and again, with its place in the registry and its channel.
func (e *Engine) WriteOne(key, value []byte, remove bool) (err error) {
	if e.opts.Store.ReadOnly {
		return logstore.ErrReadOnly
	}
	if err := e.Failed(); err != nil {
		return err
	}
	tx, ok := e.singles.Get().(*Tx)
	if !ok {
		tx = &Tx{e: e}
	}
	if tx.slot, err = e.enterNear(tx.slot, &e.applied); err != nil {
		return err
	}
	tx.snap, tx.seen = e.pages.At(tx.slot.Seq()), false
	if err = tx.writeOne(key, value, remove); err == nil {
		err = tx.Commit()
	}
	*tx = Tx{e: e, slot: tx.slot, wake: tx.wake}
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
