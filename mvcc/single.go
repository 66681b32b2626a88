package mvcc

import (
	"sync"

	"flashdbm/internal/btree"
	"flashdbm/internal/writeset"
	"flashdbm/logstore"
)

// kept is what a transaction has for its commit, and one whose memory is used again leaves to the next, beside its place in the registry.
type kept struct {
	wake  chan signal   // room for one; nobody is woken twice
	set   *writeset.Set // empty; nil for none
	nodes []commitNode  // never pushed
}

const (
	keptSets  = 16       // for the next leaders
	keptNodes = 16       // allocated at once, unless the record is large: one of them keeps all in memory, with sets that are not used again
	keptBytes = 16 << 10 // of a set
)

// node returns a node for the commit list, which each commit needs its own of.
func (tx *Tx) node() *commitNode {
	if !tx.again || tx.set.Bytes() > keptBytes {
		return new(commitNode)
	}
	if len(tx.kept.nodes) == 0 {
		tx.kept.nodes = make([]commitNode, keptNodes)
	}
	n := &tx.kept.nodes[0]
	tx.kept.nodes = tx.kept.nodes[1:]
	return n
}

// WriteOne puts or removes one record in a transaction of its own. It reads nothing, so it cannot lose to another, and needs no snapshot:
// it is not in the registry. Nothing is allocated but what the commit list keeps: the transaction is used again and again.
func (e *Engine) WriteOne(key, value []byte, remove bool) (err error) {
	if !btree.FitsInline(len(key), len(value)) {
		return e.writeLong(key, value, remove, (*Tx).Commit)
	}
	if e.opts.Store.ReadOnly {
		return logstore.ErrReadOnly
	}
	e.readers.active.Add(1) // first: see Close
	defer e.readers.active.Add(-1)
	if e.readers.closed.Load() {
		return ErrClosed
	}
	if err := e.Failed(); err != nil {
		return err
	}
	tx := usedTx(e, e.committer.used)
	tx.single = true
	tx.writeSingle(key, value, remove)
	held, err := e.admission.admit(tx)
	if err == nil {
		err = e.committer.commitAdmitted(tx, held)
	}
	if err != nil { // it is not used again, nor is its set
		return err
	}
	tx.leaveTo(e.committer.used)
	return nil
}

// leaveTo leaves the memory of a transaction of one write, which is settled, to another one.
func (tx *Tx) leaveTo(used *sync.Pool) {
	tx.set, tx.pushed, tx.puts, tx.single = nil, nil, 0, false
	used.Put(tx)
}

// writeSingle is the only write of a transaction of WriteOne.
func (tx *Tx) writeSingle(key, value []byte, remove bool) {
	w := tx.writes()
	if remove {
		w.Delete(key)
	} else {
		w.Put(key, value)
		tx.puts = 1
	}
}

// writeLong is WriteOne for a record that its leaf has no room for. commit ends the transaction, unless it returns ErrBacklog.
func (e *Engine) writeLong(key, value []byte, remove bool, commit func(*Tx) error) error {
	tx, err := e.begin(TxOptions{}) // a call holds its snapshot to its end
	if err != nil {
		return err
	}
	open := true
	defer func() {
		if open { // the caller's key or value cannot be read, which panics; or there is no place among the commits under way
			tx.Rollback()
		}
	}()
	if remove {
		err = tx.Delete(key)
	} else {
		err = tx.Put(key, value)
	}
	if err != nil {
		return err
	}
	open = false
	err = commit(tx)
	open = err == ErrBacklog
	return err
}
