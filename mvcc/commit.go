package mvcc

import (
	"fmt"
	"runtime"
	"sync/atomic"

	"flashdbm/logstore"
)

// A commit is a resolved transaction in the commit list. Its set no longer changes; it may be read by any resolver whose snapshot is
// below its Seq, so its memory is used again only once the horizon has reached that.
type commit struct {
	set   *WriteSet
	seq   atomic.Uint64 // of its batch; 0 until drained. Set before applied moves
	wake  chan signal   // room for one; nobody is woken twice
	err   error         // set before the wake
	held  int64         // pages reserved
	large []*logstore.Private
}

type signal uint8

const (
	settled signal = iota // the commit is done, or failed
	lead                  // the baton is yours
)

// spins is how often a leader lets others run before it drains the list: 1.7 times the throughput at 16 and 64 goroutines.
const spins = 2

// commit settles a transaction's write set. It returns once the commit is as durable as the engine promises.
func (tx *Tx) commit() error {
	e := tx.e
	if err := e.Failed(); err != nil {
		return err
	}
	if len(tx.large) > 0 { // before the group that lists their extents is written: recovery does not read them
		if err := e.store.SyncPrivate(); err != nil {
			return err
		}
	}
	held, err := e.admit(tx)
	if err != nil {
		return err
	}
	e.active.Add(1)
	defer e.active.Add(-1)
	e.gate.pass(tx.gate)
	n := &commitNode{}
	c := &n.Value
	c.set, c.held, c.large, c.wake = tx.set, held, tx.large, tx.wakeChan()
	if err := e.resolve(tx, n); err != nil {
		e.store.Release(held)
		return err
	}
	tx.pushed = true
	if e.baton.held.CompareAndSwap(false, true) {
		e.lead(n)
	} else if <-c.wake == lead {
		e.lead(n)
	}
	return c.err
}

// resolve pushes n, unless a transaction ordered before it and after its snapshot wrote what it depends on: first committer wins. See
// lockfree.List for why no conflict is missed.
func (e *Engine) resolve(tx *Tx, n *commitNode) error {
	for spin := 0; ; spin++ {
		head := e.list.Head()
		if !tx.blind() {
			if winner := tx.conflict(head); winner != nil {
				return e.lost(winner)
			}
			if err := tx.validate(); err != nil {
				return err
			}
		}
		if e.list.Push(n, head) {
			return nil
		}
		if spin > 16 {
			runtime.Gosched()
		}
	}
}

// conflict walks the commits newer than the snapshot, then the table of last writes.
func (tx *Tx) conflict(head *commitNode) *conflict {
	snapshot := tx.slot.Seq()
	for n := head; n != nil; n = n.Next() {
		c := &n.Value
		if seq := c.seq.Load(); seq != 0 && seq <= snapshot {
			break
		}
		if tx.dependsOn(c.set) {
			return &conflict{c}
		}
	}
	for hash := range tx.set.Hashes {
		if tx.e.last[hash%lastSlots].Load() > snapshot {
			return &conflict{}
		}
	}
	return nil
}

// conflict is why a transaction lost: to a commit not yet applied, or to one in the table.
type conflict struct{ winner *commit }

// lost counts a conflict and waits until the winner can be seen, so that the next try does not lose to it again.
func (e *Engine) lost(c *conflict) error {
	e.conflicts.Add(1)
	if w := c.winner; w != nil {
		e.moved.until(func() bool {
			seq := w.seq.Load()
			return (seq != 0 && e.applied.Load() >= seq) || e.Failed() != nil
		})
	}
	return ErrConflict
}

// admit waits for memory and reserves the pages that a commit may take, so that nothing after Resolve fails for lack of room.
func (e *Engine) admit(tx *Tx) (int64, error) {
	if e.memory.Load() > e.opts.MemoryLimit {
		if err := e.keeper.relieve(e); err != nil {
			return 0, err
		}
	}
	need := e.estimate(tx)
	emergency := tx.deletesOnly()
	err := e.store.Reserve(need, emergency)
	if logstore.IsFull(err) {
		if merr := e.keeper.makeRoom(e); merr != nil && !logstore.IsFull(merr) {
			return 0, merr
		}
		err = e.store.Reserve(need, emergency)
	}
	return need, err
}

// estimate returns an upper bound of the pages that a commit takes: its redo, its runs with what their placing may waste, and the
// leaves that the next flush will write for it with an eighth for inner nodes.
func (e *Engine) estimate(tx *Tx) int64 {
	redo := redoPages(tx.set.RedoBytes() + int64(tx.set.Len())*maxRedoRecord)
	leaves := e.store.SpaceStats().LiveBytes/logstore.PageSize + tx.set.RedoBytes()/1800
	pages := min(int64(tx.set.Len()), leaves) + redo/2
	return redo + tx.runPages + pages + pages/8 + 4
}

const (
	sharedTries = 3 // lost before a transaction asks to be alone
	aloneTries  = 8 // lost alone before Update gives up
)

// Retry runs attempt with new transactions until one does not lose, and always ends: after a few losses others wait at the gate.
// attempt ends its transaction and reports whether it lost to another.
func (e *Engine) Retry(o TxOptions, attempt func(*Tx) (lost bool, err error)) error {
	try := func(own *closedGate) (bool, error) {
		tx, err := e.Begin(o)
		if err != nil {
			return false, err
		}
		tx.gate = own
		return attempt(tx)
	}
	for range sharedTries {
		if lost, err := try(nil); !lost {
			return err
		}
	}
	tryAlone := func() (bool, error) {
		own := e.gate.close()
		defer e.gate.reopen(own)
		return try(own)
	}
	for range aloneTries {
		if lost, err := tryAlone(); !lost {
			return err
		}
	}
	return fmt.Errorf("%w (lost %d times)", ErrConflict, sharedTries+aloneTries)
}
