package mvcc

import (
	"sync"

	"flashdbm/lockfree"
)

// The transactions of Retry have the memory of those that have ended, as those of WriteOne have: their place in the registry, the channel that
// wakes them, and a write set. Begun anew, each of these takes as long as the commit of one record.
//
// Invariant: nobody but the attempt that has got the transaction refers to its memory when the next one gets it. So it is used again only if
//
//   - the attempt has ended it, as every attempt does;
//   - it has lent nobody a cursor or a reader of a value, which lead to it (lends);
//   - it is in the commit list no more: it never was, or its commit is settled, without an error. Its committer has been woken then, and
//     nobody has another signal for its channel.
//
// Who has called Retry may have kept the pointer, and must not use it once the attempt has returned: package dbm's own transaction, which is made
// anew each time, knows that it has ended.

// beginAttempt is Begin of a transaction of Retry. It is not stamped with the time, which would take longer than all the rest: see readers.oldest.
func beginAttempt(e *Engine, o TxOptions) (*Tx, error) {
	if o.ReadOnly || o.Serializable || e.opts.Store.ReadOnly || e.opts.Leases.MaxAge > 0 || e.opts.Leases.Trace {
		return e.Begin(o)
	}
	if err := e.Failed(); err != nil {
		return nil, err
	}
	tx := usedTx(e, e.committer.used)
	slot, snap, err := e.readers.look(tx.slot, &e.marks.applied)
	if err != nil {
		return nil, err
	}
	tx.slot, tx.snap, tx.readAny = slot, snap, o.CheckWrites
	return tx, nil
}

// usedTx returns a transaction that is in no registry, with the memory of one that has ended, if there is one.
func usedTx(e *Engine, used *sync.Pool) *Tx {
	if tx, ok := used.Get().(*Tx); ok {
		return tx
	}
	return &Tx{pinned: pinned{e: e}, again: true}
}

// endAttempt leaves the memory of a transaction of Retry to the next one, if it may.
func (tx *Tx) endAttempt() {
	if !tx.again || !tx.ended || tx.lends || tx.async != nil || tx.pushed != nil && tx.err != nil {
		return
	}
	e, slot, kept := tx.e, tx.slot, tx.kept
	*tx = Tx{pinned: pinned{e: e, slot: slot}, kept: kept, again: true}
	e.committer.used.Put(tx)
}

// oldest returns the reader with the oldest snapshot. Transactions of Retry do not say when they began: their age counts from when they are first
// seen here.
func (r *readers) oldest(nanos int64) (lockfree.Holder, bool) {
	r.registry.StampOthers(nanos)
	return r.registry.Oldest()
}
