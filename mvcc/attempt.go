package mvcc

import (
	"sync"

	"flashdbm/lockfree"
)

// Transactions of Retry, and those of WriteOne, reuse the memory of transactions that have ended: the place in the
// registry, the channel that wakes the committer, and a write set. Allocating any one of these takes as long as the
// commit of one record.
//
// Invariant: when the next attempt gets a transaction, nobody else refers to its memory. So it is reused only if
//
//   - the attempt has ended it, as every attempt does;
//   - it has lent no cursor and no reader of a value, which refer to it (lends);
//   - it is not in the commit list: it was never pushed, or its commit is completed without an error. Then its
//     committer has been woken, and nobody has another signal for its channel.
//
// The caller of Retry may have kept the pointer, and must not use it after the attempt has returned. Package dbm's
// own transaction knows that it has ended: see dbm/tx_memory.go.

// beginAttempt is Begin for a transaction of Retry. The transaction is not stamped with the time, which would take
// longer than everything else: see readers.oldest.
func beginAttempt(e *Engine, o TxOptions) (*Tx, error) {
	if o.ReadOnly || o.Serializable || e.opts.Store.ReadOnly || e.opts.Leases.MaxAge > 0 || e.opts.Leases.Trace {
		return e.Begin(o)
	}
	if err := e.Failed(); err != nil {
		return nil, err
	}
	tx := usedTx(e, e.committer.used)
	if err := e.readers.look(&tx.pinned, &e.marks.applied); err != nil {
		return nil, err
	}
	tx.readAny = o.CheckWrites
	return tx, nil
}

// usedTx returns a transaction that is in no registry; it has the memory of one that has ended, if there is one.
func usedTx(e *Engine, used *sync.Pool) *Tx {
	if tx, ok := used.Get().(*Tx); ok {
		return tx
	}
	return &Tx{pinned: pinned{e: e}, again: true}
}

// CallersMemory returns the place for what the caller of Retry leaves to the next transaction that gets the memory of
// tx; nil if none does. The place belongs to the caller from the beginning of an attempt to its end.
func CallersMemory(tx *Tx) *any {
	if !tx.again {
		return nil
	}
	return &tx.kept.callers
}

// endAttempt leaves the memory of a transaction of Retry to the next one, if the invariant above allows it.
func (tx *Tx) endAttempt() {
	if !tx.again || !tx.ended || tx.lends || tx.async.done != nil || tx.pushed != nil && tx.err != nil {
		return
	}
	if simple(tx) {
		tx.snap.view, tx.ctx, tx.gate, tx.pushed = nil, nil, nil, nil
		tx.readAny, tx.puts, tx.stayed, tx.held, tx.ended = false, 0, 0, 0, false
	} else {
		slot, kept := tx.slot, tx.kept
		*tx = Tx{pinned: pinned{e: tx.e, slot: slot}, kept: kept, again: true}
	}
	tx.e.committer.used.Put(tx)
}

// simple reports whether a transaction that has ended differs from a new one only in the fields that endAttempt sets
// back one by one, and in those of the snapshot that beginAttempt sets. To clear all of it takes longer.
func simple(tx *Tx) bool {
	return tx.set == nil && tx.reads == nil && tx.guards == nil && tx.cleared == nil && tx.cuts == nil && tx.cutTurns == 0 && tx.lent == nil && tx.large == nil &&
		tx.spillErr == nil && tx.err == nil && tx.shared == nil && tx.lease == nil && tx.renew == nil
}

// oldest returns the reader with the oldest snapshot. Transactions of Retry do not say when they began: their age
// counts from when oldest first sees them.
func (r *readers) oldest(nanos int64) (lockfree.Holder, bool) {
	r.registry.StampOthers(nanos)
	return r.registry.Oldest()
}
