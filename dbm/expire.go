package dbm

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"flashdbm/mvcc"
)

// expirer deletes records whose time is over, in the background, in the order of their times. Nobody waits for it, and no reader depends on it.
//
// Behind an open it begins with the first commit of the user's, other than ApplyBackup: a copy that only increments are applied to has to stay as it is.
type expirer struct {
	next atomic.Int64 // a time not after the first one in the index, 0 if there is none: what is committed lowers it

	guard   sync.Mutex  // of the rest
	under   atomic.Bool // a goroutine is at it; stored under guard
	over    bool        // none begins any more
	sooner  chan signal
	stopped chan signal
	done    sync.WaitGroup

	longest time.Duration // mostExpiryWait; the tests change it
}

type signal = struct{}

const (
	expiryPause = time.Second // between two commits that delete what is over, unless there is more than one deletes

	// mostExpiryWait is how long the clock is not looked at for at most: it may have been set.
	mostExpiryWait = 10 * time.Second
)

// DeleteExpired deletes all records whose time is over, and returns how many they were, for who does not leave it to the background: before Compact, for example.
func (x *expiry) DeleteExpired(ctx context.Context) (n int64, err error) {
	if x.of.beside != nil {
		return 0, ErrReadOnly
	}
	for more := x.on.Load(); more; {
		if err := ctx.Err(); err != nil {
			return n, err
		}
		some, err := x.deleteSome()
		n += some.deleted
		if err != nil {
			return n, err
		}
		more = some.more
	}
	return n, nil
}

const (
	overKeys  = 1000 // of records whose time is over, that a transaction deletes at most; the next line has their keys' bytes
	overBytes = 1 << 20
)

// expired is what deleteSome has come to.
type expired struct {
	deleted int64 // records
	more    bool  // there are others whose time is over
	next    int64 // else the first time that is not; 0 for none
}

// deleteSome deletes records whose time is over, the first ones, and their entries in the index.
func (x *expiry) deleteSome() (some expired, err error) {
	err = x.of.Update(func(tx *Tx) error {
		tx.quiet = true
		some = expired{}
		all := tx.whole()
		from := catalogKey(catalogTimes, nil)
		c := all.Cursor()
		entries, size := 0, 0
		for ok := c.Seek(from); ok && bytes.HasPrefix(c.Key(), from); ok = c.Next() {
			at, key, whole := splitTimeKey(c.Key())
			if !whole {
				return tx.note(fmt.Errorf("%w: the index of times has %x", ErrCorrupt, c.Key()))
			}
			if at > tx.now {
				some.next = at
				break
			}
			if entries == overKeys || size >= overBytes {
				some.more = true
				break
			}
			entries++
			size += 2 * len(key)
			has, err := timeIn(tx, key)
			if err != nil {
				return err
			}
			if has != 0 && has <= tx.now {
				if err := all.Delete(key); err != nil {
					return err
				}
				some.deleted++
			}
			if err := c.Delete(); err != nil {
				return err
			}
		}
		return c.Err()
	})
	return some, err
}

// timeIn returns the time of the record with a key in the tree, 0 if there is none, or it does not expire.
func timeIn(tx *Tx, key []byte) (at int64, err error) {
	r, length, err := tx.whole().ValueReader(key)
	if err == ErrNotFound {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer r.Close()
	if _, _, at, err = behindHead(tx.stamp, r, length); err != nil {
		return 0, tx.note(err)
	}
	return at, nil
}

// countOver returns how many records the tree has of the transaction's space whose time is over. It reads these.
func countOver(tx *Tx) (n int64, err error) {
	all := tx.whole()
	from := catalogKey(catalogTimes, nil)
	for indexed := range all.Keys(from, timeKey(tx.now+1, nil)) {
		at, key, _ := splitTimeKey(indexed)
		if !tx.space.holds(key) {
			continue
		}
		has, err := timeIn(tx, key)
		if err != nil {
			return 0, err
		}
		if has == at { // else there is another entry for it, or none: see invariant 2
			n++
		}
	}
	return n, tx.err
}

// stampByIndex returns the stamp of a database whose mark is lost, 0 if it had none: it is what stands before the time of a record that the index has with
// this time.
func stampByIndex(tx *Tx) (s stamp, err error) {
	all := tx.whole()
	from := catalogKey(catalogTimes, nil)
	for indexed := range all.Keys(from, PrefixEnd(from)) {
		at, key, whole := splitTimeKey(indexed)
		if !whole {
			continue
		}
		stored, ok, err := mvcc.Beginning(tx.inner, key)
		if err != nil {
			return 0, tx.note(err)
		}
		if ok && len(stored) >= stampedBytes && readTime(stored[stampBytes:]) == at {
			return stamp(binary.BigEndian.Uint64(stored)), nil
		}
	}
	return 0, tx.err
}

// expires notes that a record was committed whose time is soonest, 0 for none, and has the work go on in the background, if there may be any.
func (x *expiry) expires(soonest int64) {
	lowered := soonest != 0 && x.lower(soonest)
	if !lowered && (x.next.Load() == 0 || x.under.Load()) {
		return
	}
	x.guard.Lock()
	defer x.guard.Unlock()
	switch {
	case x.over:
	case !x.under.Load():
		x.under.Store(true)
		x.done.Go(x.deleteInTime)
	case lowered:
		select {
		case x.sooner <- signal{}:
		default: // it is told already
		}
	}
}

// lower has next be not after a time, and reports whether it was.
func (x *expirer) lower(at int64) bool {
	for {
		next := x.next.Load()
		if next != 0 && next <= at {
			return false
		}
		if x.next.CompareAndSwap(next, at) {
			return true
		}
	}
}

// stopExpiring returns once nothing is deleted in the background any more.
func (x *expirer) stopExpiring() {
	x.guard.Lock()
	if !x.over {
		x.over = true
		close(x.stopped)
	}
	x.guard.Unlock()
	x.done.Wait()
}

// goesOn reports whether there is more to come, or else that nobody is at it any more.
func (x *expirer) goesOn(failed bool) bool {
	x.guard.Lock()
	defer x.guard.Unlock()
	x.under.Store(!failed && !x.over && x.next.Load() != 0)
	return x.under.Load()
}

func (x *expiry) deleteInTime() {
	for failed := false; x.goesOn(failed); {
		if wait := time.Duration(x.next.Load()-x.now()) * time.Millisecond; wait > 0 {
			x.wait(min(wait, x.longest), x.sooner)
			continue
		}
		x.next.Store(0) // before it looks: what is committed meanwhile lowers it again
		some, err := x.deleteSome()
		switch failed = err != nil; {
		case failed || some.more:
			x.lower(1)
		case some.next != 0:
			x.lower(some.next)
		}
		if failed && !errors.Is(err, ErrClosed) {
			postBackground(x.of, "records whose time is over cannot be deleted: the next commit tries again", err)
		}
		if !failed && !some.more {
			x.wait(expiryPause, nil)
		}
	}
}

func (x *expirer) wait(d time.Duration, sooner <-chan signal) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-sooner:
	case <-x.stopped:
	}
}

// findStamp has a transaction know the stamp, and what time it is.
func findStamp(tx *Tx) {
	x := &tx.db.expiry
	if tx.db.beside == nil {
		tx.times = tx.spaced && x.on.Load()
		tx.stamp = stamp(x.stamp.Load())
	} // else findSpaces has found it
	if tx.stamp != 0 && tx.now == 0 {
		tx.now = x.now()
	}
}

// initExpiry is called before the database is used.
func initExpiry(db *DB) {
	x := &db.expiry
	x.of, x.now, x.longest = db, wallClock, mostExpiryWait
	x.sooner, x.stopped = make(chan signal, 1), make(chan signal)
}

// marked says that the mark is committed, and which stamp it has.
func (x *expiry) marked(s stamp) {
	if s == 0 {
		return
	}
	x.stamp.Store(uint64(s))
	x.on.Store(true)
	x.next.Store(1) // the first commit looks
}
