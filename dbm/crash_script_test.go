package dbm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"flashdbm/logstore/vfs"
)

// act runs one step of the script.
func (r *runner) act() (err error) {
	if r.err != nil {
		return errEnded
	}
	crashProgress.Add(1)
	for _, a := range actions {
		if r.weighted(a.share) {
			r.trace("%s: %s (state %d, safe %d)", r.name, a.name, r.hist.last(), r.safe)
			if err := a.do(r); err != nil {
				return fmt.Errorf("%s: %w", a.name, err)
			}
			break
		}
	}
	if r.background.active && r.rng.IntN(3) != 0 {
		r.trace("%s: step of housekeeping", r.name)
		if err := r.unlessFull(r.background.advance()); err != nil {
			return fmt.Errorf("housekeeping: %w", err)
		}
	}
	return r.err
}

// weighted returns true for the given share of 1,000 calls.
func (r *runner) weighted(share int) bool { return r.rng.IntN(1000) < share }

type action struct {
	name  string
	share int // of 1,000 calls that those before it have left
	do    func(*runner) error
}

var actions []action

func init() { // assigned here, as its functions call act
	actions = []action{
		{"crash", 12, (*runner).crash},
		{"kill", 12, (*runner).killed},
		{"reopen", 12, (*runner).reopen},
		{"clear", 10, (*runner).clear},
		{"check", 15, (*runner).check},
		{"verify", 10, (*runner).verify},
		{"sync", 60, (*runner).sync},
		{"hold a snapshot", 60, (*runner).hold},
		{"look at a snapshot", 60, (*runner).look},
		{"start housekeeping", 120, (*runner).housekeep},
		{"start checkpoint", 60, (*runner).checkpoint},
		{"roll back", 30, (*runner).rollBack},
		{"batch", 80, (*runner).batch},
		{"commit", 1000, func(r *runner) error { return r.commit(r.load.draw(r.rng, r.mem)) }},
	}
}

// commit runs one transaction. Every fourth one is a Batch. Which ones depends on the state and is not drawn, so
// that the script of a seed stays the same.
func (r *runner) commit(ops []op) error {
	commit := r.commitBatch(ops)
	if r.hist.last()%4 != 0 {
		tx, err := r.prepare(ops)
		if err != nil {
			return r.unlessFull(err)
		}
		commit = tx.Commit
	}
	return r.commitOps(ops, commit)
}

// commitOps calls the function that commits the operations.
func (r *runner) commitOps(ops []op, commit func() error) error {
	r.hist.commit(effect(ops))
	few := len(ops) <= 2 && !slices.ContainsFunc(ops, func(o op) bool { return o.value != nil || !r.fitsTiny(o.key) })
	if err := commit(); err != nil {
		if few && errors.Is(err, ErrFull) && r.load.maxFile > 0 && r.fault == nil && len(r.snaps) == 0 {
			return fmt.Errorf("a delete found no room: %v", err)
		}
		if err = r.unlessFull(err); err == nil {
			r.hist.rewind(r.acked)
		}
		return err
	}
	if few && r.load.maxFile > 0 {
		r.deletes++
	}
	r.returned()
	return nil
}

// fitsTiny reports whether a delete of the key is certain to find room. A file of the least size that users can set
// is large enough for every key: see TestFullOfLongKeys. A file of 48 pages is too small for a key of 12 KiB, which
// takes 14 pages to delete.
func (r *runner) fitsTiny(key []byte) bool {
	return r.load.maxFile >= MinMaxFileSize || int64(len(key)) <= r.load.maxFile/24
}

// unlessFull passes errors on, except those that say that the file must not grow any more. The engine continues
// after these.
func (r *runner) unlessFull(err error) error {
	if (r.opts.Store.MaxFileSize > 0 || r.tight || r.fault != nil) && errors.Is(err, ErrFull) && r.db.engine.Failed() == nil {
		r.full++
		r.timesFull++
		return nil
	}
	return err
}

func (r *runner) prepare(ops []op) (*Tx, error) {
	tx, err := r.db.Begin(TxOptions{})
	if err != nil {
		return nil, err
	}
	for _, o := range ops {
		if o.value == nil {
			err = tx.Delete(o.key)
		} else {
			err = tx.Put(o.key, o.value)
		}
		if err != nil {
			tx.Rollback()
			return nil, err
		}
	}
	return tx, nil
}

// commitBatch returns a function that commits the operations as a batch.
func (r *runner) commitBatch(ops []op) func() error {
	return func() error {
		b := r.db.Batch()
		for _, o := range ops {
			var err error
			if o.value == nil {
				err = b.Delete(o.key)
			} else {
				err = b.Put(o.key, o.value)
			}
			if err != nil {
				return err
			}
		}
		return b.Commit()
	}
}

// returned records that all commits so far have been acknowledged.
func (r *runner) returned() { r.returnedUpTo(r.hist.last()) }

func (r *runner) returnedUpTo(state int) {
	r.acked = state
	switch Durability(r.opts.Durability) {
	case Durable:
		r.safe, r.alive = r.acked, r.acked
	case WriteThrough:
		r.alive = r.acked
	}
}

// clear deletes an interval of the keys, or all of them. Every other time, which is not drawn either, it deletes a
// range.
func (r *runner) clear() error {
	n := r.load.keys
	if r.rng.IntN(2) == 0 {
		n = 1 + r.rng.IntN(n)
	}
	ops := r.load.drawClearing(r.rng, n)
	if r.hist.last()%2 == 1 {
		return r.commit(ops)
	}
	from, to, ops := r.load.between(ops[0].key, ops[n-1].key)
	tx, err := r.db.Begin(TxOptions{})
	if err != nil {
		return r.unlessFull(err)
	}
	behind := r.hist.last()%8 == 0 && len(ops) > 0
	put := func(i int) {
		if err == nil && behind {
			ops = append(ops, op{ops[i].key, fmt.Appendf(nil, "put into a range, %d", r.hist.last())})
			err = tx.Put(ops[i].key, ops[len(ops)-1].value)
		}
	}
	if behind { // goes with the range
		err = tx.Put(ops[0].key, []byte("put before"))
	}
	if err == nil {
		err = tx.DeleteRange(from, to)
	}
	put(0)
	put(len(ops) / 2)
	if err != nil {
		tx.Rollback()
		return r.unlessFull(err)
	}
	if r.opts.CutFrom > 0 && len(ops) >= 100 {
		r.cuts++
	}
	return r.commitOps(ops, tx.Commit)
}

// batch runs several transactions that the engine finds in its commit list together. If one of them has to wait for
// background work, the batch consists of those that are there by then.
func (r *runner) batch() error {
	var txs []*Tx
	var all [][]op
	for range 2 + r.rng.IntN(4) {
		ops := r.load.draw(r.rng, r.mem)
		tx, err := r.prepare(ops)
		if err != nil {
			rollBackAll(txs)
			return r.unlessFull(err)
		}
		txs, all = append(txs, tx), append(all, ops)
	}
	held := r.holdToken()
	defer held.release()
	var ends []<-chan error
	for i, tx := range txs {
		r.hist.commit(effect(all[i]))
		end := make(chan error, 1)
		go func() { end <- tx.Commit() }()
		if err, early := held.awaitPushed(end); !early {
			ends = append(ends, end)
		} else if err == nil {
			r.returnedUpTo(r.hist.last())
		} else if r.unlessFull(err) != nil { // it may have been written all the same
			held.release()
			rollBackAll(txs[i+1:])
			return errors.Join(err, r.await(ends))
		} else {
			r.hist.rewind(r.hist.last() - 1)
		}
	}
	held.release()
	err := r.await(ends)
	if err == nil {
		r.returned()
	}
	return err
}

func rollBackAll(txs []*Tx) {
	for _, tx := range txs {
		tx.Rollback()
	}
}

func (r *runner) await(ends []<-chan error) (err error) {
	for _, end := range ends {
		err = errors.Join(err, <-end)
	}
	return err
}

// heldToken makes pushed commits wait, until one of them needs background work.
type heldToken struct {
	r      *runner
	let    func() // nil once released
	pushed int
}

func (r *runner) holdToken() *heldToken {
	r.background.waited.Store(false)
	return &heldToken{r: r, let: r.db.engine.HoldToken()}
}

func (h *heldToken) release() {
	if h.let != nil {
		h.let()
		h.let = nil
	}
}

// awaitPushed waits until the next commit is in the list, or has ended early with the error that is received from
// end. After the token is released, it waits for the end of each commit.
//
// The wait between two checks doubles. The commit may be in the middle of its own image, while others wait for seconds
// of the test's clock. Checking every microsecond of them would take longer than crashHang.
func (h *heldToken) awaitPushed(end <-chan error) (err error, early bool) {
	for wait := time.Microsecond; h.let != nil; wait *= 2 {
		if h.r.db.engine.Pushed() > h.pushed {
			h.pushed++
			return nil, false
		}
		select {
		case err := <-end:
			return err, true
		default:
		}
		if h.r.background.waited.Load() {
			h.release()
			break
		}
		time.Sleep(wait) // returns once all other goroutines wait
	}
	return <-end, true
}

func (r *runner) rollBack() error {
	tx, err := r.prepare(r.load.draw(r.rng, r.mem))
	if err != nil {
		return r.unlessFull(err)
	}
	return tx.Rollback()
}

func (r *runner) sync() error {
	err := r.db.Sync()
	if err == nil {
		r.safe, r.alive = r.acked, r.acked
	}
	return err
}

// housekeep begins regular maintenance, and from time to time a compaction.
func (r *runner) housekeep() error {
	if r.background.active {
		return nil
	}
	if r.kept++; r.kept%5 == 4 {
		r.background.start(func() error { return r.db.Compact(context.Background(), nil) }, func() { r.compacted++ })
	} else {
		r.background.start(r.db.engine.Housekeep, nil)
	}
	return nil
}

func (r *runner) checkpoint() error {
	if !r.background.active {
		now := r.acked
		r.background.start(r.db.engine.Checkpoint, func() {
			r.safe, r.alive = max(r.safe, now), max(r.alive, now)
			r.held += min(1, len(r.snaps))
		})
	}
	return nil
}

// hold begins a View transaction that stays open.
func (r *runner) hold() error {
	if len(r.snaps) >= cmp.Or(r.load.holds, 3) {
		return nil
	}
	begin := func() (*Tx, error) { return r.db.Begin(TxOptions{ReadOnly: true}) }
	if len(r.snaps)%2 == 1 {
		begin = r.beginAtSnapshot
	}
	tx, err := begin()
	if err != nil {
		return err
	}
	r.snaps = append(r.snaps, heldSnapshot{tx: tx, state: r.acked, want: r.hist.states[r.acked]})
	return nil
}

// beginAtSnapshot begins a transaction at a snapshot that others have read before and that is then closed.
func (r *runner) beginAtSnapshot() (*Tx, error) {
	s, err := r.db.Snapshot()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	first, err := s.Begin()
	if err != nil {
		return nil, err
	}
	defer first.Rollback()
	return s.Begin()
}

// look reads a held snapshot completely and usually ends it.
func (r *runner) look() error {
	if len(r.snaps) == 0 {
		return nil
	}
	i := r.rng.IntN(len(r.snaps))
	s := r.snaps[i]
	f, err := scanTx(s.tx, nil)
	old := errors.Is(err, ErrSnapshotTooOld) || r.db.engine.Failed() != nil && r.mayBeLost(err)
	if err != nil && !old {
		return err
	}
	if !old && f != s.want {
		found := map[string][]byte{}
		scanTx(s.tx, found)
		return fmt.Errorf("a snapshot of state %d: %s", s.state, r.hist.explain(found, f, s.state, s.state))
	}
	if stay := 2 + r.load.holds; old || r.rng.IntN(stay) < 1 {
		s.tx.Rollback()
		r.snaps = append(r.snaps[:i], r.snaps[i+1:]...)
	}
	return nil
}

// verify compares the newest state with the model.
func (r *runner) verify() error {
	state, err := r.identify(r.db, r.acked)
	if err == nil && state != r.hist.find(r.hist.states[r.acked], r.acked, r.hist.last()) {
		err = fmt.Errorf("state %d where %d belongs", state, r.acked)
	}
	if err != nil {
		return err
	}
	return r.check()
}

func (r *runner) check() error {
	if err := r.unlessFull(r.background.finish()); err != nil {
		return err
	}
	return r.db.Check(context.Background())
}

// reopen closes the database cleanly.
func (r *runner) reopen() error {
	if err := r.unlessFull(r.background.finish()); err != nil {
		return err
	}
	r.finish()
	now := r.acked
	r.opened = false
	if err := r.db.Close(); err == nil {
		r.safe, r.alive = now, now
	} else if err := r.unlessFull(err); err != nil {
		return err
	}
	return r.open()
}

// crash simulates a power failure and continues with what is left.
func (r *runner) crash() error {
	policies := vfs.Policies()
	return r.replace(r.mem.Crash(policies[r.rng.IntN(len(policies))], r.rng.Uint64()), r.safe)
}

// killed ends the process and continues with what the system has.
func (r *runner) killed() error { return r.replace(r.mem.Clone(), r.alive) }

func (r *runner) replace(image *vfs.Mem, least int) error {
	r.abandon()
	r.mem.Release()
	r.mem, r.alive = image, least
	r.hook()
	return r.open()
}
