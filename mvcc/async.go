package mvcc

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// Asynchronous commits (CommitAsync, WriteOneAsync): the caller admits, resolves and pushes the commit, gets
// ErrConflict or ErrFull from these steps, and continues. In Durable mode one of two goroutines leads if no other
// committer does: one leads while the other syncs. In other modes the caller completes the commit as it would any
// other, because that takes no device. A third one, the callback goroutine, calls done when the commit is durable.
//
// Invariants:
//
//  1. If another goroutine completes the commit, its caller touches neither the transaction nor its node after the push,
//     except that it reads the node's number, which does not change. That is so in Durable mode unless the commit is
//     heavy.
//  2. All asynchronous commits share one channel for the token, so that one of the two goroutines takes it for any
//     commit that is the newest. No other goroutine receives from the channel. There is one token, so the channel
//     needs room for only one signal.
//  3. The goroutine that completes a batch queues its commits for their callbacks, oldest first, with the token held or
//     before the next group is queued. So callbacks come in the order of commits. A heavy commit is queued when it has
//     ended.
//  4. The callback goroutine syncs first if a commit is not durable yet: one sync for everything that was completed
//     before it (see awaitMore).
//  5. A commit that another goroutine completes counts in readers.active until its callback has returned, and its caller
//     until it has looked for the token. A commit that its caller completes counts as active during that only. If it
//     counted as active for longer, it would look like a commit concurrent with the next one: its keys would have to be
//     entered for conflicts, and the next one could not reuse its memory. Each commit has a place in readers.places from
//     before it is active until its callback is called, and readers.calls counts as long as callbacks are called. Close
//     waits for all of these counts.
//  6. After a failure callbacks get the engine's error.
const (
	asyncBacklog = 1 << 14 // most asynchronous commits under way: their callbacks have not been called

	commitTime = 2 * time.Microsecond // approximate time that a small Buffered commit takes its caller
)

// ErrBacklog: see CommitAsync.
var ErrBacklog = errors.New("flashdbm: too many commits are under way")

// asyncCommit is a commit with a callback.
type asyncCommit struct {
	done func(error)
	tx   *Tx    // to be ended after the commit; nil if its caller completes and ends it
	seq  uint64 // Seq of its batch
	err  error
}

// async has the asynchronous commits.
type async struct {
	committer *committer
	start     sync.Once
	token     chan signal
	queued    chan struct{} // tells that the queue is not empty; room for one
	quit      chan struct{}
	running   sync.WaitGroup
	used      *sync.Pool // of *Tx

	mu      sync.Mutex
	queue   []asyncCommit // completed commits whose callbacks are due
	spare   []asyncCommit // empty: memory for the next queue
	waiting atomic.Int64  // their number, for awaitMore, which would slow commits down if it took mu again and again

	// Of the callback goroutine alone.
	back    int           // commits that were completed and not called back when the last sync ended
	synced  time.Duration // duration of the last sync
	durable uint64        // the watermark as it last looked; beside the watermark committers write with each commit
}

func (a *async) init(c *committer) {
	a.committer = c
	a.token, a.queued = make(chan signal, 1), make(chan struct{}, 1)
	a.quit = make(chan struct{})
}

// stop ends the goroutines. Nobody uses the engine any more.
func (a *async) stop() {
	a.start.Do(func() {}) // no goroutine is started any more
	close(a.quit)
	a.running.Wait()
	select {
	case <-a.token: // from a caller whose commit another committer has completed
		a.committer.lead(nil)
	default:
	}
}

// enter takes a place among the commits under way. If there is none it waits, or returns ErrBacklog if wait is false.
func (a *async) enter(ctx context.Context, wait bool) error {
	a.start.Do(func() {
		a.running.Go(a.lead)
		a.running.Go(a.lead) // leads while the other one syncs
		a.running.Go(a.call)
	})
	switch {
	case a.committer.readers.places.enter():
		return nil
	case !wait:
		return ErrBacklog
	}
	return a.committer.readers.places.await(ctx)
}

// give undoes enter, and the count in active, of a commit that will not be called back.
func (a *async) give() {
	a.committer.readers.places.leave()
	a.committer.readers.active.Add(-1)
}

// lead leads when no other committer does.
func (a *async) lead() {
	debug.SetPanicOnFault(true)
	for {
		select {
		case <-a.token:
			a.committer.lead(nil)
		case <-a.quit:
			return
		}
	}
}

// commitReturned completes the commits that have returned before they were completed; these are asynchronous ones.
// With the token in hand it finds each of them either completed, because the holder before has completed what it
// drained, or in the commit list.
func (c *committer) commitReturned() {
	if !c.readers.places.any() {
		return
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	c.token.take()
	defer c.token.pass(true)
	c.commitNodes(c.resolver.list.Drain(c.batch.nodes[:0]), nil)
}

// report gives commits their outcome, and queues asynchronous ones for their callbacks.
func (a *async) report(nodes []*commitNode, err error) {
	for _, n := range nodes {
		tx := n.Value.tx
		tx.err = err
		if call := tx.async; call.done != nil {
			call.seq, call.err = n.Value.seq.Load(), err
			if call.tx != nil { // else its caller waits
				n.Value.tx = nil // the newest node stays in the list
			}
			a.add(call)
		}
	}
}

// add queues a completed commit, or a transaction that wrote nothing.
func (a *async) add(c asyncCommit) {
	a.mu.Lock()
	a.queue = append(a.queue, c)
	a.waiting.Store(int64(len(a.queue)))
	a.mu.Unlock()
	select {
	case a.queued <- struct{}{}:
	default:
	}
}

// call is the callback goroutine.
func (a *async) call() {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	for {
		select {
		case <-a.queued:
		case <-a.quit:
			return
		}
		queue := a.more(nil)
		if len(queue) > 0 && a.lacks(&queue[len(queue)-1]) {
			queue = a.awaitMore(queue)
			begun := time.Now()
			_ = a.committer.log.syncAwaited() // finish reports the error
			a.synced, a.back = time.Since(begun), len(queue)+int(a.waiting.Load())
		}
		a.finishAll(queue)
	}
}

// awaitMore waits a little before a sync, and returns what is queued by then. A user who commits again from each
// callback does so while the callbacks go on. Without the wait, the first of those commits would have a sync to
// themselves and the others, which come during that sync, the next one: two groups that take turns. With 50 Buffered
// commits under way a sync covered half of them.
//
// The wait ends when as many are queued as were when the last sync ended, when no commit has come for a quarter of a
// sync (at least returnPatience), or when it has taken as long as a sync. With returnPatience alone, each time that the
// goroutine which commits was held up for that long, the others waited for two syncs: p99 was 0.90 ms instead of 0.66.
// If the expected commits would take longer than a sync, there is no wait: they are better made during the sync. With
// 5,000 under way that gives a third more per second.
func (a *async) awaitMore(queue []asyncCommit) []asyncCommit {
	begun, patience := time.Now(), max(returnPatience, a.synced/4)
	came, last := len(queue)+int(a.waiting.Load()), begun
	if time.Duration(a.back-came)*commitTime > a.synced {
		return queue
	}
	for came < a.back {
		runtime.Gosched()
		now, n := time.Now(), len(queue)+int(a.waiting.Load())
		if n > came {
			came, last = n, now
		}
		if now.Sub(last) >= patience || now.Sub(begun) >= a.synced {
			break
		}
	}
	return a.more(queue)
}

// more takes what is queued, and appends it to queue if that is not nil.
func (a *async) more(queue []asyncCommit) []asyncCommit {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiting.Store(0)
	if queue == nil {
		queue, a.queue, a.spare = a.queue, a.spare, nil
		return queue
	}
	queue = append(queue, a.queue...)
	clear(a.queue) // later commits may be fewer: the rest would stay in memory, with the write sets of transactions
	a.queue = a.queue[:0]
	return queue
}

// lacks reports whether a commit waits for a sync.
func (a *async) lacks(c *asyncCommit) bool {
	if c.err != nil || c.seq <= a.durable {
		return false
	}
	a.durable = a.committer.marks.durable.Load()
	return c.seq > a.durable
}

// finishAll calls back, and leaves the memory of the queue to a later one.
func (a *async) finishAll(queue []asyncCommit) {
	a.committer.readers.calls.Add(1)
	defer a.committer.readers.calls.Add(-1)
	for i := range queue {
		a.finish(&queue[i])
	}
	clear(queue)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.spare = queue[:0]
}

func (a *async) finish(c *asyncCommit) {
	if c.tx != nil {
		defer a.committer.readers.active.Add(-1)
	}
	if a.lacks(c) {
		c.err = a.committer.log.syncAwaited()
	}
	if c.tx != nil {
		a.end(c.tx)
	}
	a.committer.readers.places.leave() // before done, which may begin another commit
	if c.err != nil && a.committer.opts.CallbackError != nil {
		c.err = a.committer.opts.CallbackError(c.err)
	}
	c.done(c.err)
}

// end ends a transaction that another goroutine has completed.
func (a *async) end(tx *Tx) {
	if !tx.single {
		tx.end()
		return
	}
	if tx.err == nil { // after an error neither it nor its set is reused
		tx.async.done = nil
		tx.leaveTo(a.used)
	}
}

// CommitAsync is Commit, but returns as soon as the commit cannot lose to another one any more. It calls done when
// the commit is as durable as the engine's Durability promises, with nil, or when it has failed, with the error. If
// CommitAsync returns an error, the transaction has ended, nothing was applied, and done is not called. If too many
// commits are under way it waits, or, if wait is false, returns ErrBacklog and leaves the transaction open. Callbacks
// come from one goroutine, in the order of commits.
func (tx *Tx) CommitAsync(wait bool, done func(error)) error {
	e := tx.e
	if err := e.committer.async.enter(tx.ctx, wait); err == ErrBacklog {
		return err
	} else if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	e.readers.active.Add(1)
	c, queued := asyncCommit{done: done, tx: tx}, false
	defer func() { // also after a panic
		if !queued && !(c.tx == nil && tx.async.done != nil && tx.pushed != nil) {
			e.committer.async.give()
		} else if c.tx == nil {
			e.readers.active.Add(-1)
		}
	}()
	err := e.committer.async.commit(tx, &c)
	queued = err == nil
	return err
}

// commit is CommitAsync after enter.
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
		a.add(*c)
		return nil
	}
	held, err := by.prepare(tx)
	if err != nil {
		tx.end()
		return err
	}
	if by.opts.Durability == Durable && !tx.heavy() {
		if err := a.push(tx, *c, held); err != nil {
			tx.end()
			return err
		}
		return nil
	}
	c.tx = nil
	heavy := tx.heavy()
	if !heavy {
		tx.async = *c
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
		a.add(*c)
	}
	return nil
}

// push is commitAdmitted for a commit that another goroutine completes. After an error nothing was pushed, and the
// held pages are released.
func (a *async) push(tx *Tx, c asyncCommit, held int64) error {
	by := a.committer
	n, err := by.toList(tx, held)
	if err != nil {
		return err
	}
	by.readers.active.Add(1) // the callback may come before this returns
	defer by.readers.active.Add(-1)
	tx.async, tx.pushed, tx.kept.wake = c, n, a.token
	if err := by.resolver.resolve(tx, n); err != nil {
		tx.async.done, tx.pushed = nil, nil
		by.store.Release(held)
		return err
	}
	if by.token.tryFor(n) {
		a.token <- lead
	}
	return nil
}

// WriteOneAsync is to WriteOne what CommitAsync is to Commit.
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
	e.readers.active.Add(1) // before reading closed: see Close
	durable := e.opts.Durability == Durable
	var tx *Tx
	queued := false
	defer func() { // also after a panic, such as when the caller's key or value cannot be read
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
		used = e.committer.async.used // its transactions share the channel for the token
	}
	tx = usedTx(e, used)
	tx.single = true
	tx.writeSingle(key, value, remove)
	held, err := e.admission.admit(tx)
	if err != nil { // neither it nor its set is reused
		return err
	}
	if durable {
		err := e.committer.async.push(tx, asyncCommit{done: done, tx: tx}, held)
		queued = err == nil
		return err
	}
	tx.async = asyncCommit{done: done}
	switch err := e.committer.commitAdmitted(tx, held); {
	case tx.pushed == nil:
		return err
	case err == nil:
		queued = true
		tx.async.done = nil
		tx.leaveTo(used)
	}
	return nil
}
