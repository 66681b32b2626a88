package mvcc

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// A commit that nobody waits for is admitted, resolved and pushed to the commit list by its caller, who gets ErrConflict and ErrFull from
// that; then the caller goes on. Where commits are synced, one of two goroutines settles it, which lead when no other committer does, one while the
// other syncs; else the caller settles it as any commit, which takes no device. A third goroutine calls back once the commit is durable.
//
// Invariants:
//
//  1. Once it is pushed, its caller touches neither the transaction nor its node where another goroutine settles it.
//  2. All such commits have one channel for the token: a goroutine takes it whichever of them is the newest. Nobody else listens there, and
//     there is one token, so there is room for one signal in it.
//  3. Commits are queued for their calls by who settles them, with the token or before the next group is, and oldest first: the calls are in
//     the order of commits. A commit that needs more than memory is queued once it has ended.
//  4. Who calls back syncs first if the commit is not durable yet: one sync for all that was settled before it, see gather.
//  5. A commit that another goroutine settles counts as active until its call has returned, and so does its caller until it has looked for the token.
//     One that its caller settles counts as active as long as that takes, as any commit, and among the calls from before its caller ceases to be
//     active until its call has returned: else each would be taken for one that commits beside the next one, which had to be told to it, and could not
//     use its memory again. Close waits for all of them. The calls of a failed engine get its error.
const (
	asyncBacklog = 1 << 14 // commits whose calls have not returned, at most

	commitTime = 2 * time.Microsecond // that a small Buffered commit takes its caller, about
)

// ErrBacklog: see CommitAsync.
var ErrBacklog = errors.New("flashdbm: too many commits are under way")

// asyncCommit is a commit that is to be called back for.
type asyncCommit struct {
	done func(error)
	tx   *Tx    // to be ended; nil where its caller settles and ends it
	seq  uint64 // of its batch
	err  error
}

// async are the commits that nobody waits for.
type async struct {
	committer *committer
	start     sync.Once
	room      chan struct{} // a token for each commit under way
	token     chan signal
	queued    chan struct{} // something is in the queue; room for one
	quit      chan struct{}
	running   sync.WaitGroup
	used      *sync.Pool // of *Tx

	mu    sync.Mutex
	queue []*asyncCommit // settled

	// Of the goroutine that calls back.
	back   int           // commits that were settled and not called back for when the last sync ended
	synced time.Duration // what that took
}

func (a *async) init(c *committer) {
	a.committer = c
	a.room = make(chan struct{}, asyncBacklog)
	a.token, a.queued = make(chan signal, 1), make(chan struct{}, 1)
	a.quit = make(chan struct{})
}

// stop ends the goroutines. Nobody uses the engine any more.
func (a *async) stop() {
	a.start.Do(func() {}) // none begins
	close(a.quit)
	a.running.Wait()
	select {
	case <-a.token: // from a caller whose commit another committer had settled
		a.committer.lead(nil)
	default:
	}
}

// enter takes a place among the commits under way. ErrBacklog if there is none and it is not to be waited for.
func (a *async) enter(ctx context.Context, wait bool) error {
	a.start.Do(func() {
		a.running.Go(a.lead)
		a.running.Go(a.lead) // while the other one syncs
		a.running.Go(a.call)
	})
	select {
	case a.room <- struct{}{}:
		return nil
	default:
	}
	if !wait {
		return ErrBacklog
	}
	var done <-chan struct{}
	if ctx != nil {
		done = ctx.Done()
	}
	select {
	case a.room <- struct{}{}:
		return nil
	case <-done:
		return ctx.Err()
	}
}

// give takes back the place, and the being active, of a commit that is not going to be called back for.
func (a *async) give() {
	<-a.room
	a.committer.readers.active.Add(-1)
}

// lead settles commits when no committer that waits does.
func (a *async) lead() {
	for {
		select {
		case <-a.token:
			a.committer.lead(nil)
		case <-a.quit:
			return
		}
	}
}

// settleReturned settles the commits that have returned before they were settled, which only those do that nobody waits for. With the token
// in hand the caller finds each of them either settled, as the holder before settles what it drains, or in the commit list.
func (c *committer) settleReturned() {
	if len(c.async.room) == 0 {
		return
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	c.token.take()
	defer c.token.pass(true)
	c.settleAll(c.resolver.list.Drain(c.batch.nodes[:0]), nil)
}

// report gives commits what has become of them, and queues those for their calls that nobody waits for.
func (a *async) report(nodes []*commitNode, err error) {
	for _, n := range nodes {
		tx := n.Value.tx
		tx.err = err
		if call := tx.async; call != nil {
			call.seq, call.err = n.Value.seq.Load(), err
			if call.tx != nil { // else its caller waits
				n.Value.tx = nil // the newest node stays in the list
			}
			a.add(call)
		}
	}
}

// add queues a commit that is settled, or a transaction that wrote nothing.
func (a *async) add(c *asyncCommit) {
	if c.tx == nil {
		a.committer.readers.calls.Add(1)
	}
	a.mu.Lock()
	a.queue = append(a.queue, c)
	a.mu.Unlock()
	select {
	case a.queued <- struct{}{}:
	default:
	}
}

// call calls back.
func (a *async) call() {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	for {
		select {
		case <-a.queued:
		case <-a.quit:
			return
		}
		queue := a.more(nil)
		if len(queue) > 0 && a.lacks(queue[len(queue)-1]) {
			queue = a.gather(queue)
			begun := time.Now()
			_ = a.committer.log.syncSettled() // finish has the error
			a.synced, a.back = time.Since(begun), len(queue)+a.waiting()
		}
		for _, c := range queue {
			a.finish(c)
		}
	}
}

// gather waits a little before a sync, and returns what is queued by then. Who puts as many commits under way as he is called back for does so
// while the calls go on, behind them. Without the wait the first of these would have a sync for themselves, and the others, which come during that, the
// next one: two groups that take turns. With 50 Buffered commits under way a sync covered half of them.
//
// It ends when as many wait as did when the last sync ended, when nobody has come for returnPatience, or when it has taken as long as a sync.
// Where those who are about to come would take longer than a sync, they do better during the next one: with 5,000 under way that is a third more a second.
func (a *async) gather(queue []*asyncCommit) []*asyncCommit {
	begun := time.Now()
	came, last := len(queue)+a.waiting(), begun
	if time.Duration(a.back-came)*commitTime > a.synced {
		return queue
	}
	for came < a.back {
		runtime.Gosched()
		now, n := time.Now(), len(queue)+a.waiting()
		if n > came {
			came, last = n, now
		}
		if now.Sub(last) >= returnPatience || now.Sub(begun) >= a.synced {
			break
		}
	}
	return a.more(queue)
}

// more appends what is queued.
func (a *async) more(queue []*asyncCommit) []*asyncCommit {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(queue) == 0 {
		queue, a.queue = a.queue, nil
		return queue
	}
	queue, a.queue = append(queue, a.queue...), nil
	return queue
}

// waiting returns how many commits are queued.
func (a *async) waiting() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.queue)
}

// lacks reports whether a commit waits for a sync.
func (a *async) lacks(c *asyncCommit) bool {
	return c.err == nil && a.committer.marks.durable.Load() < c.seq
}

func (a *async) finish(c *asyncCommit) {
	if c.tx == nil {
		defer a.committer.readers.calls.Add(-1)
	} else {
		defer a.committer.readers.active.Add(-1)
	}
	if a.lacks(c) {
		c.err = a.committer.log.syncSettled()
	}
	if c.tx != nil {
		a.end(c.tx)
	}
	<-a.room // first: the call may begin another commit
	c.done(c.err)
}

// end ends a transaction that was settled by another goroutine.
func (a *async) end(tx *Tx) {
	if !tx.single {
		tx.end()
		return
	}
	if tx.err == nil { // else it is not used again, nor is its set
		tx.async = nil
		tx.leaveTo(a.used)
	}
}

// CommitAsync is Commit, but returns once the commit cannot be lost to another any more, and calls done once it is as durable as it gets, with nil,
// or has failed. After an error the transaction has ended, nothing was applied, and done is not called. If too many commits are under way
// it waits, or returns ErrBacklog and leaves the transaction open.
func (tx *Tx) CommitAsync(wait bool, done func(error)) error {
	e := tx.e
	if err := e.committer.async.enter(tx.ctx, wait); err == ErrBacklog {
		return err
	} else if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	e.readers.active.Add(1)
	c, queued := &asyncCommit{done: done, tx: tx}, false
	defer func() { // also after a panic
		if !queued && !(c.tx == nil && tx.async == c && tx.pushed != nil) {
			e.committer.async.give()
		} else if c.tx == nil {
			e.readers.active.Add(-1)
		}
	}()
	err := e.committer.async.commit(tx, c)
	queued = err == nil
	return err
}

// commit is CommitAsync once there is a place for c.
func (a *async) commit(tx *Tx, c *asyncCommit) error {
	by := a.committer
	if lost, err := tx.endLease(); lost {
		return err
	}
	if tx.Written() == 0 { // serialized at its snapshot; what it saw has to be durable
		c.seq = tx.Snapshot()
		if tx.readOnly || by.opts.Durability != Durable {
			c.seq = 0
		}
		a.add(c)
		return nil
	}
	held, err := by.prepare(tx)
	if err != nil {
		tx.end()
		return err
	}
	if by.opts.Durability == Durable && !tx.heavy() {
		if err := a.push(tx, c, held); err != nil {
			tx.end()
			return err
		}
		return nil
	}
	c.tx = nil
	heavy := tx.heavy()
	if !heavy {
		tx.async = c
	}
	err = by.commitAdmitted(tx, held)
	pushed, seq := tx.pushed != nil, uint64(0)
	if pushed {
		seq = tx.pushed.Value.seq.Load()
	}
	tx.end()
	switch {
	case !pushed:
		return err
	case heavy:
		c.seq, c.err = seq, err
		a.add(c)
	}
	return nil
}

// push is commitAdmitted for a commit that another goroutine settles. After an error nothing was pushed, and nothing is held.
func (a *async) push(tx *Tx, c *asyncCommit, held int64) error {
	by := a.committer
	n, err := by.toList(tx, held)
	if err != nil {
		return err
	}
	by.readers.active.Add(1) // the call may come before this returns
	defer by.readers.active.Add(-1)
	tx.async, tx.pushed, tx.kept.wake = c, n, a.token
	if err := by.resolver.resolve(tx, n); err != nil {
		tx.async, tx.pushed = nil, nil
		by.store.Release(held)
		return err
	}
	if by.token.tryFor(n) {
		a.token <- lead
	}
	return nil
}

// WriteOneAsync is WriteOne as CommitAsync is Commit.
func (e *Engine) WriteOneAsync(key, value []byte, remove, wait bool, done func(error)) error {
	if e.opts.Store.ReadOnly {
		return logstore.ErrReadOnly
	}
	if !btree.FitsInline(len(key), len(value)) {
		return e.writeLong(key, value, remove, func(tx *Tx) error { return tx.CommitAsync(wait, done) })
	}
	if err := e.committer.async.enter(nil, wait); err != nil {
		return err
	}
	e.readers.active.Add(1) // before the look at closed: see Close
	durable := e.opts.Durability == Durable
	var tx *Tx
	queued := false
	defer func() { // also after a panic, as where the caller's key or value cannot be read
		if !queued && (durable || tx == nil || tx.pushed == nil) {
			e.committer.async.give()
		} else if !durable {
			e.readers.active.Add(-1)
		}
	}()
	if e.readers.closed.Load() {
		return ErrClosed
	}
	if err := e.Failed(); err != nil {
		return err
	}
	used := e.committer.used
	if durable {
		used = e.committer.async.used // whose channel is that of all
	}
	tx = usedTx(e, used)
	tx.single = true
	tx.writeSingle(key, value, remove)
	held, err := e.admission.admit(tx)
	if err != nil { // it is not used again, nor is its set
		return err
	}
	if durable {
		err := e.committer.async.push(tx, &asyncCommit{done: done, tx: tx}, held)
		queued = err == nil
		return err
	}
	tx.async = &asyncCommit{done: done}
	switch err := e.committer.commitAdmitted(tx, held); {
	case tx.pushed == nil:
		return err
	case err == nil:
		queued = true
		tx.async = nil
		tx.leaveTo(used)
	}
	return nil
}
