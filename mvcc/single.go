package mvcc

import (
	"sync"

	"flashdbm/internal/btree"
	"flashdbm/internal/writeset"
	"flashdbm/logstore"
)

// kept is what a transaction needs for its commit and leaves to the next one if its memory is reused, in addition to
// its place in the registry.
type kept struct {
	wake  chan signal   // room for one: nobody is woken twice
	set   *writeset.Set // empty; nil for none
	nodes []commitNode  // never pushed
	keeps bool          // the set of the present commit is small enough to be kept; set by node

	callers any // see CallersMemory
}

const (
	// keptNodes are allocated at once, unless the set is large: one node in the commit list, or a transaction that has
	// some left, keeps all of them in memory, with those of their sets that are not reused. As many as fill 1,024 bytes
	// of Go's heap: 16 took as much.
	keptNodes     = 18
	keptNodeBytes = 2 << 10  // largest set of such a node
	keptBytes     = 16 << 10 // largest set that is kept
)

// node returns a node for the commit list. Each commit needs a new one.
func (tx *Tx) node() *commitNode {
	if !tx.again {
		return new(commitNode)
	}
	size := tx.set.Bytes()
	if tx.kept.keeps = size <= keptBytes; size > keptNodeBytes {
		return new(commitNode)
	}
	if len(tx.kept.nodes) == 0 {
		tx.kept.nodes = make([]commitNode, keptNodes)
	}
	n := &tx.kept.nodes[0]
	tx.kept.nodes = tx.kept.nodes[1:]
	return n
}

// WriteOne puts or removes one record in a transaction of its own. The transaction reads nothing, so it cannot lose
// to another one, and it needs no snapshot and no place in the registry. Its memory is reused: only what the commit
// list keeps is allocated.
func (e *Engine) WriteOne(key, value []byte, remove bool) (err error) {
	if !btree.FitsInline(len(key), len(value)) {
		return e.writeLong(key, value, remove, (*Tx).Commit)
	}
	if e.opts.Store.ReadOnly {
		return logstore.ErrReadOnly
	}
	e.readers.active.Add(1) // before reading closed: see Close
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
	if err != nil { // neither it nor its set is reused
		return err
	}
	tx.leaveTo(e.committer.used)
	return nil
}

// leaveTo leaves the memory of a completed transaction of WriteOne to another one.
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

// writeLong is WriteOne for a record that does not fit into a leaf. commit ends the transaction, unless it returns
// ErrBacklog.
func (e *Engine) writeLong(key, value []byte, remove bool, commit func(*Tx) error) error {
	tx, err := e.begin(TxOptions{}) // without a lease: this call ends the transaction
	if err != nil {
		return err
	}
	open := true
	defer func() {
		if open { // reading the caller's key or value has panicked, or ErrBacklog
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
