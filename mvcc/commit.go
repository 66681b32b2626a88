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

// A pushedCommit is a resolved transaction in the commit list. Its set no longer changes; it may be read by any resolver whose snapshot is
// below its Seq, so its memory is used again only once the horizon has reached that. It is all that a commit of one record allocates: what
// only the committer and the token holder need is in the transaction, which its committer uses again once it is settled.
type pushedCommit struct {
	set    *writeset.Set
	ranges *clearedRanges // by DeleteRange; nil for none, which keeps the node of all other commits small
	seq    atomic.Uint64  // of its batch; 0 until drained. Set before applied moves
	tx     *Tx            // for the committer and the token holder, until it is settled; then nil
}

// clearedRanges are what a transaction clears by DeleteRange. They do not change.
type clearedRanges struct {
	all  []*keyRange
	cuts cuts // of these, those that the set does not have
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
	settled signal = iota // the commit is done, or failed
	lead                  // the token is yours
)

// committer has the commit list, and settles what is in it. What has no comment of its own belongs to the token's holder.
type committer struct {
	treeParts
	maintenance *maintenance
	admission   *admission

	resolver resolver
	gate     commit.Gate
	async    async
	batch    commitBatch // at hand
	left     bool        // the last batch has left commits to the next one
	leaving  int         // commits of the last group, who are about to come back
	used     *sync.Pool  // of *Tx: see attempt.go
	groups   *sync.Pool  // of *besideGroup
}

// resolver has the commits that were resolved, in their order, and tells who has lost to one of them.
type resolver struct {
	*file
	marks   *watermarks
	readers *readers

	list    lockfree.List[pushedCommit]
	writes  commit.LastWrites // see told.go
	cleared recentlyCleared
}

// commitBatch has room for what a batch of commits is made of.
type commitBatch struct {
	at      batch
	nodes   []*commitNode
	beside  bool // its group is synced once the token is passed on
	entries []writeset.Entry
	ops     []btree.Op
	opBytes int             // of their keys and values
	listed  []logstore.Addr // where the large values begin whose extents they list
}

// commit settles a transaction's write set. It returns once the commit is as durable as the engine promises.
func (c *committer) commit(tx *Tx) error {
	held, err := c.prepare(tx)
	if err != nil {
		return err
	}
	c.readers.active.Add(1)
	defer c.readers.active.Add(-1)
	return c.commitAdmitted(tx, held)
}

// prepare does what a commit needs before it is resolved, and reserves the pages that it may take.
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
	if len(tx.large) > 0 { // before the group that lists their extents is written: recovery does not read them
		if err := c.store.SyncPrivate(); err != nil {
			return 0, err
		}
	}
	return c.admission.admit(tx)
}

// toList passes the gate, with held pages reserved, and returns a node for the commit list. After an error nothing is reserved.
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

// commitAdmitted is commit once the transaction has room for its pages, and counts as active.
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
	c.settlePushed(n)
	n.Value.tx = nil // the newest node stays in the list
	return tx.err
}

// settlePushed returns once a commit in the list is settled, by this goroutine or by another one that has the token.
//
// Another one may drain it, and lay the token down, before this one takes that. Then its signal is in the channel, or will be once its group is
// synced, and must not stay there: the next commit with the same channel would take it for its own and return before it is settled, and the
// token could be handed to one who is gone. Only committers that were not drained are sent lead, so it is not that.
func (c *committer) settlePushed(n *commitNode) {
	wake := n.Value.tx.kept.wake
	for leads := c.token.tryFor(n); leads || <-wake == lead; leads = false {
		if c.lead(n) {
			return
		}
	}
}

// resolve pushes n, unless a transaction ordered before it and after its snapshot wrote what it depends on: first committer wins. See
// lockfree.List for why no conflict is missed.
func (r *resolver) resolve(tx *Tx, n *commitNode) error {
	for spin := 0; ; spin++ {
		head := r.list.Head()
		if r.readers.active.Load() > 1 {
			for hash := range tx.set.Hashes { // the slot is wanted soon: one that is in no cache is on its way
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

// conflict walks the commits newer than what the transaction reads, and than the Seq that it is registered at, if that is higher: the sets of
// older ones may be in use again. Then it looks into the table of last writes, which has all those but the untold, unless the transaction has
// no more than guards: what has become of those, validate finds out.
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
	for hash := range tx.set.Hashes {
		if seq := r.writes.Of(hash).Load(); seq > snapshot {
			return &conflict{seq: seq}
		}
	}
	return nil
}

// conflict is why a transaction lost: to a commit in the list, which may not have a Seq yet, or to one in the table, at seq.
type conflict struct {
	winner *pushedCommit
	seq    uint64
}

// applied reports whether new updates see the winner.
func (c *conflict) appliedAt(applied uint64) bool {
	seq := c.seq
	if c.winner != nil {
		seq = c.winner.seq.Load()
	}
	return seq != 0 && applied >= seq
}

// lost counts a conflict and waits until the winner can be seen, so that the next try does not lose to it again.
func (r *resolver) lost(why *conflict) error {
	r.readers.conflicts.Add(1)
	r.marks.moved.Until(func() bool { return why.appliedAt(r.marks.applied.Load()) || r.Failed() != nil })
	if err := r.Failed(); err != nil {
		return err
	}
	return ErrConflict
}

const (
	sharedTries = 3 // lost before a transaction asks to be alone
	aloneTries  = 8 // lost alone before Update gives up
)

// Retry runs attempt with new transactions until one does not lose, and always ends: after a few losses others wait at the gate.
// attempt ends its transaction and reports whether it lost to another. While a commit waits to be resolved, for room, memory or its turn,
// the end of the context makes it return that error.
func (e *Engine) Retry(ctx context.Context, o TxOptions, attempt func(*Tx) (lost bool, err error)) error {
	try := func(own *commit.Closed) (bool, error) {
		tx, err := beginAttempt(e, o)
		if err != nil {
			return false, err
		}
		tx.gate, tx.ctx = own, ctx
		lost, err := attempt(tx)
		tx.endAttempt()
		return lost, err
	}
	for range sharedTries {
		if lost, err := try(nil); !lost {
			return err
		}
	}
	// The gate stays closed between these tries: the first one may lose to commits that had passed it before.
	own := e.committer.gate.Close(ctx)
	defer e.committer.gate.Reopen(own)
	for range aloneTries {
		if lost, err := try(own); !lost {
			return err
		}
	}
	return fmt.Errorf("%w (lost %d times)", ErrConflict, sharedTries+aloneTries)
}

// cancelled returns the error of the transaction's context if that has ended.
func (tx *Tx) cancelled() error {
	if tx.ctx == nil {
		return nil
	}
	return tx.ctx.Err()
}

// ended is closed when the context of a transaction ends; nil without one.
func ended(ctx context.Context) <-chan struct{} {
	if ctx == nil {
		return nil
	}
	return ctx.Done()
}
