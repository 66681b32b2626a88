package mvcc

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"flashdbm/internal/btree"
	"flashdbm/internal/commit"
	"flashdbm/internal/writeset"
	"flashdbm/lockfree"
	"flashdbm/logstore"
)

// A pushedCommit is a resolved transaction in the commit list. Its set does not change any more. Any resolver whose
// snapshot is below the commit's Seq may read the set, so its memory is reused only if there is no such resolver: see
// sets.retire. A commit of one record allocates nothing else: what only its committer and the token holder need is in
// the Tx, which the committer reuses once the commit is completed.
type pushedCommit struct {
	set    *writeset.Set
	ranges *clearedRanges // of DeleteRange; nil for none, which keeps the node of other commits small
	seq    atomic.Uint64  // Seq of its batch; 0 until it is drained. Set before applied moves
	tx     *Tx            // for the committer and the token holder; nil once the commit is completed
}

// clearedRanges are the ranges that a transaction clears by DeleteRange. They do not change.
type clearedRanges struct {
	all  []*keyRange
	cuts cuts // those of all that are cut: the write set has no deletes for them
}

func (c *pushedCommit) cleared() []*keyRange {
	if c.ranges == nil {
		return nil
	}
	return c.ranges.all
}

func (c *pushedCommit) cuts() cuts {
	if c.ranges == nil {
		return nil
	}
	return c.ranges.cuts
}

type signal uint8

const (
	completed signal = iota // the commit is done, or has failed
	lead                    // the token is yours
)

// committer has the commit list and does the work of the leader. A field without a comment belongs to the holder of
// the token.
type committer struct {
	treeParts
	maintenance *maintenance
	admission   *admission

	resolver resolver
	gate     commit.Gate
	async    async
	changed  changedKeys
	batch    commitBatch // the batch at hand
	left     bool        // the last batch has left commits for the next one: see fill
	leaving  int         // commits in the last group, whose committers are about to commit again
	used     *sync.Pool  // of *Tx: see attempt.go
	groups   *sync.Pool  // of *besideGroup
}

// resolver keeps the resolved commits in their order, and finds for a transaction the commit that it loses to.
type resolver struct {
	*file
	marks   *watermarks
	readers *readers

	list    lockfree.List[pushedCommit]
	writes  commit.LastWrites // see told.go
	cleared recentlyCleared
}

// commitBatch is reusable memory for one batch.
type commitBatch struct {
	at      batch
	nodes   []*commitNode
	beside  bool // its group is synced after the token has been passed on
	entries []writeset.Entry
	ops     []btree.Op
	opBytes int             // bytes of keys and values in ops
	listed  []logstore.Addr // first pages of the large values whose extents the batch lists
}

// commit commits a transaction. It returns when the commit is as durable as the engine's Durability promises, or has
// failed.
func (c *committer) commit(tx *Tx) error {
	held, err := c.prepare(tx)
	if err != nil {
		return err
	}
	c.readers.active.Add(1)
	defer c.readers.active.Add(-1)
	return c.commitAdmitted(tx, held)
}

// prepare does what a commit needs before it is resolved, and reserves the pages that it may take: held.
func (c *committer) prepare(tx *Tx) (held int64, err error) {
	if err := c.Failed(); err != nil {
		return 0, err
	}
	if tx.spillErr != nil {
		return 0, tx.spillErr
	}
	if tx.set.Spilled() != nil {
		if err := tx.spill(true); err != nil {
			return 0, err
		}
	}
	if len(tx.large) > 0 { // before the group that lists their extents is written: recovery does not read the extents
		if err := c.store.SyncPrivate(); err != nil {
			return 0, err
		}
	}
	return c.admission.admit(tx)
}

// toList waits at the gate and returns a node for the commit list. The caller has reserved held pages; after an error
// they are released.
func (c *committer) toList(tx *Tx, held int64) (*commitNode, error) {
	c.gate.Pass(tx.ctx, tx.gate)
	if err := tx.cancelled(); err != nil {
		c.store.Release(held)
		return nil, err
	}
	tx.held = held
	n := tx.node()
	n.Value.set, n.Value.tx = tx.set, tx
	if len(tx.cleared) > 0 || len(tx.cuts) > 0 {
		n.Value.ranges = &clearedRanges{tx.cleared, tx.cuts}
	}
	return n, nil
}

// commitAdmitted is commit after prepare: the transaction has held pages reserved and counts as active.
func (c *committer) commitAdmitted(tx *Tx, held int64) error {
	n, err := c.toList(tx, held)
	if err != nil {
		return err
	}
	if tx.heavy() {
		return c.commitHeavy(tx, n)
	}
	tx.kept.wakeChan()
	if err := c.resolver.resolve(tx, n); err != nil {
		c.store.Release(held)
		return err
	}
	tx.pushed = n
	c.awaitOutcome(n)
	n.Value.tx = nil // the newest node stays in the list, and must not keep tx in memory
	return tx.err
}

// awaitOutcome returns when the pushed commit n is completed, by this goroutine as leader or by another one.
//
// If another leader drains n and releases the token before this goroutine takes it, lead reports that n was not in its
// batch. The signal completed is then in this committer's channel, or will be when its group has been synced. This
// goroutine must receive it: if it stayed there, the next commit with the same channel would take it for its own and
// return too early, or the token could be handed to a committer that is gone. A signal lead cannot be waiting instead:
// it is only sent to committers that were not drained.
func (c *committer) awaitOutcome(n *commitNode) {
	wake := n.Value.tx.kept.wake
	for leads := c.token.tryFor(n); leads || <-wake == lead; leads = false {
		if c.lead(n) {
			return
		}
	}
}

// resolve pushes n, or returns an error if a commit that the snapshot does not include has written what tx depends
// on: the first committer wins. lockfree.List explains why no conflict is missed.
func (r *resolver) resolve(tx *Tx, n *commitNode) error {
	for spin := 0; ; spin++ {
		head := r.list.Head()
		if r.readers.active.Load() > 1 {
			for hash := range tx.set.Hashes { // prefetch: the leader writes this slot soon
				r.writes.Of(hash).Load()
				break
			}
		}
		if !tx.blind() {
			if why := r.conflict(tx, head); why != nil {
				return r.lost(why)
			}
			if err := r.validate(tx); err != nil {
				return err
			}
		}
		if r.list.Push(n, head) {
			return nil
		}
		if spin > 16 {
			runtime.Gosched()
		}
	}
}

// conflict looks for a commit that tx loses to. It first walks the commit list down to the Seq that tx reads at, or
// down to the Seq that tx is registered at if that is higher: the write sets of older commits may have been reused.
// Then it looks at the table of last writes, which has the keys of all older commits, except those of the batches for
// which only a note was left (Untold). If two keys share a slot of the table, the list of recently written keys tells
// which of them was written. A transaction that has only guards skips the table; validate finds out whether its guards
// still hold.
func (r *resolver) conflict(tx *Tx, head *commitNode) *conflict {
	snapshot := tx.Snapshot()
	looked := max(tx.slot.Seq(), snapshot)
	for n := head; n != nil; n = n.Next() {
		c := &n.Value
		if seq := c.seq.Load(); seq != 0 && seq <= looked {
			break
		}
		if r.dependsOn(tx, c) {
			return &conflict{winner: c}
		}
	}
	if !checked(tx) {
		return nil
	}
	if seq := r.cleared.conflict(tx, snapshot); seq > 0 {
		return &conflict{seq: seq}
	}
	if seq := r.writes.Untold(); seq > snapshot {
		return &conflict{seq: seq}
	}
	var shared []uint64 // hashes of keys whose slots have Seqs above the snapshot
	last := uint64(0)
	for hash := range tx.set.Hashes {
		if seq := r.writes.Of(hash).Load(); seq > snapshot {
			shared, last = append(shared, hash), max(last, seq)
		}
	}
	if shared != nil && r.writes.Wrote(snapshot, shared) {
		return &conflict{seq: last}
	}
	return nil
}

// conflict says why a transaction has lost: to a commit in the list (winner), which may not have a Seq yet, or to one
// found in the table, at seq.
type conflict struct {
	winner *pushedCommit
	seq    uint64
}

// appliedAt reports whether updates that begin at the watermark applied see the winner.
func (c *conflict) appliedAt(applied uint64) bool {
	seq := c.seq
	if c.winner != nil {
		seq = c.winner.seq.Load()
	}
	return seq != 0 && applied >= seq
}

// lost counts a conflict, waits until updates see the winner, and returns ErrConflict. Without the wait the next try
// could lose to the same commit.
func (r *resolver) lost(why *conflict) error {
	r.readers.conflicts.Add(1)
	r.marks.moved.Until(func() bool { return why.appliedAt(r.marks.applied.Load()) || r.Failed() != nil })
	if err := r.Failed(); err != nil {
		return err
	}
	return ErrConflict
}

const (
	sharedTries = 3 // times that a transaction may lose before it asks to be alone
	aloneTries  = 8 // times that it may lose alone before Retry gives up
)

// Retry runs attempt with a new transaction until one does not lose. It always ends: after sharedTries losses other
// transactions wait at the gate, and after aloneTries more it returns ErrConflict. attempt ends its transaction and
// reports whether it lost. If ctx, which may be nil, ends while a commit waits for room, memory or its turn, before it
// is resolved, the commit returns the context's error.
func (e *Engine) Retry(ctx context.Context, o TxOptions, attempt func(*Tx) (lost bool, err error)) error {
	for range sharedTries {
		if lost, err := try(e, ctx, o, nil, attempt); !lost {
			return err
		}
	}
	// The gate stays closed between these tries: the first one may lose to commits that had passed the gate before it
	// was closed.
	own := e.committer.gate.Close(ctx)
	defer e.committer.gate.Reopen(own)
	for range aloneTries {
		if lost, err := try(e, ctx, o, own, attempt); !lost {
			return err
		}
	}
	return fmt.Errorf("%w (lost %d times)", ErrConflict, sharedTries+aloneTries)
}

// try runs attempt once. own is not nil if the caller has closed the gate.
func try(e *Engine, ctx context.Context, o TxOptions, own *commit.Closed, attempt func(*Tx) (lost bool, err error)) (lost bool, err error) {
	tx, err := beginAttempt(e, o)
	if err != nil {
		return false, err
	}
	tx.gate, tx.ctx = own, ctx
	lost, err = attempt(tx)
	tx.endAttempt()
	return lost, err
}

// cancelled returns the error of the transaction's context if the context has ended.
func (tx *Tx) cancelled() error {
	if tx.ctx == nil {
		return nil
	}
	return tx.ctx.Err()
}

// ended returns a channel that is closed when ctx ends; nil for no context.
func ended(ctx context.Context) <-chan struct{} {
	if ctx == nil {
		return nil
	}
	return ctx.Done()
}
