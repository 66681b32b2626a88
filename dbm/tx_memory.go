package dbm

import "flashdbm/mvcc"

// Transactions of Update reuse the memory of transactions that have ended, as those of package mvcc do (see
// mvcc/attempt.go). The cost of new memory is not the allocation, but that it is in no processor cache: with a
// newly allocated state of 176 bytes for each transaction, an Update of one record takes a third longer than with
// the 24 bytes of a txHandle.
//
// After the transaction has ended, the user may still hold its Tx, a copy of it, or a value made from it: the Tx
// of a keyspace, a cursor, an iterator, a reader of a value. All of them reach the state only through the link of
// their transaction, which no other transaction ever gets.
//
// Invariants:
//
//  1. A link leads to the state of its own transaction, or, once it is cut, to a state that only says that the
//     transaction has ended.
//  2. Another transaction gets the memory of a state only after the link was cut, and finds it as if new.
//  3. endedTx is never written, since all transactions whose link was cut may share it: see txLink.noteEnded.

// txLink is the way from each Tx of a transaction to its state.
type txLink struct{ *txShared }

// endedTx is the state of transactions whose link was cut, unless they have an error.
var endedTx = txShared{managed: true, done: true}

// txHandle is what belongs to one transaction for ever, because the user may keep it.
type txHandle struct {
	tx   Tx
	link txLink
}

// txMemory is what a transaction of Update leaves to the next one that gets its memory in package mvcc.
type txMemory struct {
	shared txShared
	first  [1]txHandle // a transaction whose memory nobody reuses needs no more
	fresh  []txHandle  // not used yet
}

// freshHandles is how many handles are allocated at once. A Tx that the user keeps holds
// all of them in memory.
const freshHandles = 16

func newTx(db *DB, inner *mvcc.Tx, o TxOptions, managed bool) *Tx {
	both := &struct { // one allocation instead of two
		shared txShared
		handle txHandle
	}{}
	return both.handle.begin(&both.shared, db, inner, o, managed)
}

// updateTx is newTx for a transaction of Update, which ends by cut.
func updateTx(db *DB, inner *mvcc.Tx, o TxOptions) *Tx {
	place := mvcc.CallersMemory(inner)
	if place == nil {
		return newTx(db, inner, o, true)
	}
	m, ok := (*place).(*txMemory)
	if !ok {
		m = &txMemory{}
		m.fresh = m.first[:]
		*place = m
	}
	if len(m.fresh) == 0 {
		m.fresh = make([]txHandle, freshHandles)
	}
	h := &m.fresh[0]
	m.fresh = m.fresh[1:]
	return h.begin(&m.shared, db, inner, o, true)
}

// begin makes h the handle of a transaction with the state s, which must be as if
// new.
func (h *txHandle) begin(s *txShared, db *DB, inner *mvcc.Tx, o TxOptions, managed bool) *Tx {
	s.inner, s.db, s.readOnly, s.managed, s.aging = inner, db, o.ReadOnly, managed, inner.Aging()
	h.link.txShared = s
	h.tx = Tx{txLink: &h.link, space: allKeys}
	tx := &h.tx
	if mvcc.KeyspacesOf(inner) {
		findSpaces(tx)
	}
	findStamp(tx)
	return tx
}

// cut detaches the state of a transaction that has ended from everything that the user may still hold, and leaves
// the state as if new.
func (l *txLink) cut() {
	s := l.txShared
	l.txShared = &endedTx
	if s.err != nil {
		l.txShared = &txShared{managed: true, done: true, err: s.err}
	}
	*s = txShared{room: s.room}
}

// noteEnded sets the error of a transaction that has ended to ErrTxDone, unless it has one: see Tx.Err.
func (l *txLink) noteEnded() {
	if l.err != nil {
		return
	}
	if l.txShared == &endedTx {
		l.txShared = &txShared{managed: true, done: true}
	}
	l.err = ErrTxDone
}
