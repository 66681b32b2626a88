package mvcc

import (
	"context"
	"errors"
	"slices"
	"time"

	"flashdbm/internal/btree"
	"flashdbm/internal/commit"
	"flashdbm/internal/lease"
	"flashdbm/internal/writeset"
	"flashdbm/lockfree"
	"flashdbm/logstore"
)

// TxOptions say what kind of transaction Begin starts.
type TxOptions struct {
	ReadOnly     bool // reads at the durable watermark (a View); cannot write
	Serializable bool // its commit also fails if anything that it has read has changed since the snapshot
	CheckWrites  bool // its commit fails if a key that it writes was written since the snapshot, even if it has read nothing
}

// Tx is a transaction: a snapshot, and an ordered write set which the transaction's own reads see first. One
// goroutine uses it at a time. Slices that reads return stay valid and unchanged until the transaction ends.
type Tx struct {
	pinned
	set   *writeset.Set
	reads *readSet // serializable only; nil else
	claims
	readAny bool // it has read a key, or CheckWrites was set: its writes are checked for conflicts
	gate    *commit.Closed
	ctx     context.Context // ends waits until the commit is resolved; nil for none
	stayed  int64           // bytes of the set when it last stayed in memory because there was no room to spill it
	puts    int             // number of puts so far; without any, the commit may use the pages that are held back for deletes
	large   []*logstore.Private
	// lent: readers of large values that have not reached the end, by the value's first page: those pages stay until
	// the transaction ends
	lent     map[logstore.Addr]int
	spillErr error       // of spilling the write set
	pushed   *commitNode // the node in the commit list that has the set; nil before the push
	held     int64       // pages reserved for the commit
	err      error       // of the commit; set before its committer is woken
	async    asyncCommit // of CommitAsync and WriteOneAsync
	single   bool        // of WriteOne and WriteOneAsync
	again    bool        // its memory is reused after its end: see attempt.go
	kept     kept
	ended    bool // by Commit or Rollback: slices that it has returned are not valid any more
}

// pinned is a snapshot, what keeps it alive, and the way its records are read.
type pinned struct {
	e        *Engine
	slot     lockfree.Slot
	shared   *sharedSlot // the slot, if siblings may share it; nil else
	snap     snapshot
	readOnly bool
	lends    bool                // a cursor or a reader of a value refers to the transaction
	lease    *lease.Lease        // of a transaction whose age is bounded or whose beginning is traced; nil else
	renew    func() (*Tx, error) // see RenewBy
}

// Begin starts a transaction, which must be ended by Commit or Rollback. Errors: ErrClosed; for an update also
// ErrReadOnly, and ErrFailed if the store has failed.
func (e *Engine) Begin(o TxOptions) (*Tx, error) {
	tx, err := e.begin(o)
	if err == nil && (e.opts.Leases.MaxAge > 0 || e.opts.Leases.Trace) {
		place := lease.Place(tx.slot)
		if o.ReadOnly {
			tx.shared = newSharedSlot(tx.slot)
			place = tx.shared
		}
		tx.lease = e.readers.leases.Add(place, time.Now(), e.opts.Leases.Trace)
	}
	return tx, err
}

// begin is Begin without a lease: the transaction keeps its snapshot until it ends.
func (e *Engine) begin(o TxOptions) (*Tx, error) {
	tx := &Tx{pinned: pinned{e: e, readOnly: o.ReadOnly}, readAny: o.CheckWrites}
	at := &e.marks.applied
	if o.ReadOnly {
		at = e.marks.viewAt
	} else if e.opts.Store.ReadOnly {
		return nil, logstore.ErrReadOnly
	} else if err := e.Failed(); err != nil { // an update could see what is applied and will never be durable
		return nil, err
	}
	if err := e.readers.look(&tx.pinned, at); err != nil {
		return nil, err
	}
	tx.slot.Stamp(time.Now().UnixNano())
	if o.Serializable && !o.ReadOnly {
		tx.reads = &readSet{}
	}
	return tx, nil
}

// Snapshot returns the Seq that the transaction reads at.
func (tx *pinned) Snapshot() uint64 { return tx.snap.at }

// Expired returns ErrSnapshotTooOld once the engine has asked the transaction to end.
func (tx *pinned) Expired() error {
	if tx.slot.Expired() {
		return ErrSnapshotTooOld
	}
	return nil
}

// Get returns the value of key as a slice of the page that holds it, valid until the transaction ends. ok is false if
// there is no such record. It takes no lock, and allocates only for a value that is larger than a run.
func (tx *Tx) Get(key []byte) (value []byte, ok bool, err error) {
	if tx.set != nil {
		if en, ok, err := tx.set.Find(key); ok || err != nil {
			tx.readAny = true
			if err != nil {
				return nil, false, err
			}
			return tx.entryValue(en)
		}
	}
	f, ok, err := tx.lookup(key)
	if !ok || err != nil {
		return nil, false, err
	}
	tx.snap.touch(&f)
	value, err = tx.foundValue(f)
	return value, err == nil, err
}

// Has reports whether key has a value.
func (tx *Tx) Has(key []byte) (bool, error) {
	if tx.set != nil {
		if en, ok, err := tx.set.Find(key); ok || err != nil {
			tx.readAny = true
			return err == nil && !en.Deleted, err
		}
	}
	_, ok, err := tx.lookup(key)
	return ok, err
}

func (tx *Tx) lookup(key []byte) (f found, ok bool, err error) {
	tx.readAny = true
	if tx.reads != nil {
		tx.reads.addKey(key)
	}
	if tx.cuts.has(key) {
		return found{}, false, nil
	}
	if tx.slot.Expired() {
		return found{}, false, ErrSnapshotTooOld
	}
	return tx.snap.find(key)
}

// Put sets the value of key. It copies both.
func (tx *Tx) Put(key, value []byte) error {
	w := tx.writes()
	tx.puts++
	if int64(len(value)+int(btree.RunKeyLen(key))) > tx.e.store.MaxRun() {
		return tx.putLarge(key, value)
	}
	w.Put(key, value)
	return tx.changed()
}

// changed is called after each write of the transaction. If the write has replaced a large value of this transaction,
// that value's segments are free at once, unless a reader of it is not at its end.
func (tx *Tx) changed() error {
	if old := tx.set.Dropped(); old != nil {
		start := old.Extents[0].Addr
		if i := slices.IndexFunc(tx.large, func(p *logstore.Private) bool { return p.Start() == start }); i >= 0 && tx.lent[start] == 0 {
			tx.large[i].Discard()
			tx.large = slices.Delete(tx.large, i, i+1)
		}
	}
	if tx.e.tree.sets.budget.Covers(tx.set) {
		return nil
	}
	return tx.grown()
}

// Delete removes key, whether or not it exists.
func (tx *Tx) Delete(key []byte) error {
	tx.writes().Delete(key)
	return tx.changed()
}

func (tx *Tx) writes() *writeset.Set {
	if tx.set == nil {
		if tx.set, tx.kept.set = tx.kept.set, nil; tx.set == nil {
			tx.set = tx.e.tree.sets.take()
		}
	}
	return tx.set
}

// Len returns the number of records that the transaction sees.
func (tx *Tx) Len() (int64, error) {
	tx.readAny = true
	if tx.reads != nil {
		tx.reads.counted = true
	}
	n, err := tx.snap.len()
	if err != nil || tx.Written() == 0 {
		return n, err
	}
	gone, err := lenCut(tx)
	if err != nil {
		return 0, err
	}
	n -= gone
	err = tx.set.Each(func(key []byte, deleted bool) error {
		_, there, err := tx.snap.find(key)
		there = there && !tx.cuts.has(key)
		switch {
		case err != nil:
		case there && deleted:
			n--
		case !there && !deleted:
			n++
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// Written returns how many keys the transaction writes; if it writes many, possibly more than that. A cut range
// counts as one key.
func (tx *Tx) Written() int {
	if tx.set == nil {
		return 0
	}
	n := tx.set.Len() + len(tx.cuts)
	if s := tx.set.Spilled(); s != nil {
		n += int(s.Keys())
	}
	return n
}

// blind reports whether the transaction cannot conflict, because it has read nothing.
func (tx *Tx) blind() bool { return !checked(tx) && !guarded(tx) }

// checked reports whether the keys that the transaction writes are checked for conflicts.
func checked(tx *Tx) bool { return tx.readAny || tx.reads != nil }

func (tx *Tx) deletesOnly() bool { return tx.puts == 0 }

// claim is the kind of room that the commit may reserve.
func (tx *Tx) claim() logstore.Claim {
	if tx.deletesOnly() {
		return logstore.ForDeletes
	}
	return logstore.ForWrites
}

// dependsOn reports whether tx loses to c, a commit between its snapshot and its own commit: c has written what tx
// has read, guards, writes or clears.
func (r *resolver) dependsOn(tx *Tx, c *pushedCommit) bool {
	if c.set == everything || guarded(tx) && tx.guards.Intersects(c.set) {
		return true
	}
	return checked(tx) && (tx.set.Intersects(c.set) || (tx.reads != nil && (tx.reads.overlaps(c.set) || tx.reads.cutBy(c.cuts()))) || crossesClearing(tx, c))
}

// Commit commits the transaction and ends it. ErrConflict: it has lost to another transaction, and nothing was
// applied. In Durable mode Commit returns, with or without an error, only when everything that its snapshot showed is
// durable.
func (tx *Tx) Commit() (err error) {
	if lost, err := tx.endLease(); lost {
		return err
	}
	defer tx.end()
	if tx.Written() > 0 {
		err = tx.e.committer.commit(tx)
	} // a transaction that wrote nothing is serialized at its snapshot, where everything it has read was true
	if tx.e.opts.Durability != Durable {
		return err
	}
	return tx.awaitSnapshotDurable(err)
}

// Rollback ends the transaction; nothing of it is applied.
func (tx *Tx) Rollback() error {
	if lost, err := tx.endLease(); lost {
		if errors.Is(err, ErrSnapshotTooOld) || errors.Is(err, ErrClosed) {
			err = nil
		}
		return err
	}
	defer tx.end()
	return tx.awaitSnapshotDurable(nil)
}

// awaitSnapshotDurable waits in Durable mode until everything that an update saw is durable. err takes precedence
// over its own error.
func (tx *pinned) awaitSnapshotDurable(err error) error {
	e := tx.e
	if tx.readOnly || e.opts.Durability != Durable || e.marks.durable.Load() >= tx.Snapshot() {
		return err
	}
	if derr := e.log.awaitDurable(tx.Snapshot()); err == nil {
		err = derr
	}
	return err
}

// end releases what the transaction holds.
func (tx *Tx) end() {
	tx.ended = true
	tx.forget()
	tx.leaveSlot()
}

// forget gives up the write set and, unless it was pushed, the large values and layers.
func (tx *Tx) forget() {
	if tx.pushed == nil {
		for _, p := range tx.large {
			p.Discard()
		}
		if tx.set != nil {
			if s := tx.set.Spilled(); s != nil {
				s.Discard()
			}
			tx.e.tree.sets.give(tx.set)
		}
	}
	tx.set, tx.large, tx.lent = nil, nil, nil
}

func (k *kept) wakeChan() {
	if k.wake == nil {
		k.wake = make(chan signal, 1)
	}
}
