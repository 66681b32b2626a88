package dbm

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"flashdbm/mvcc"
)

// expirer deletes expired records in the background, in the order of their times. Nobody waits for it, and what
// readers see does not depend on it.
//
// After an open it begins with the first commit of the user other than ApplyBackup: a copy to which only increments
// are applied must not change by itself.
type expirer struct {
	next    atomic.Int64 // a lower bound of the times in the index, 0 if the index is empty; commits lower it
	entries atomic.Int64 // most entries of the index that the next transaction handles; 0 means overKeys. Smaller on a full file

	guard   sync.Mutex     // guards under (its stores) and over
	under   atomic.Bool    // deleteInTime is running
	over    bool           // stopExpiring was called: deleteInTime starts no more
	sooner  chan signal    // room for one: next was lowered while deleteInTime waits
	stopped chan signal    // closed by stopExpiring
	done    sync.WaitGroup // waits for deleteInTime

	longest time.Duration // mostExpiryWait; tests set another
}

type signal = struct{}

const (
	expiryPause = time.Second // between two rounds of deletes, unless the first left expired records

	// mostExpiryWait is the longest time between two readings of the clock. A longer one notices
	// later that the clock has been set.
	mostExpiryWait = 10 * time.Second
)

// DeleteExpired deletes all expired records in the caller's goroutine and returns their number: for example before
// Compact. Without it the records are deleted in the background. It returns the error of ctx, or the error that
// stopped it.
func (x *expiry) DeleteExpired(ctx context.Context) (n int64, err error) {
	if x.of.beside != nil {
		return 0, ErrReadOnly
	}
	if err := x.of.opened(); err != nil {
		return 0, err
	}
	for more := true; more; {
		if err := ctx.Err(); err != nil {
			return n, err
		}
		if !x.on.Load() {
			break
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
	overKeys  = 1000    // most entries of the index that one transaction handles
	overBytes = 1 << 20 // most bytes of their keys; a key counts twice: for its record and for its entry
)

// expired is the result of deleteSome.
type expired struct {
	deleted int64 // number of records
	more    bool  // expired records are left
	next    int64 // if more is false: the first time in the index that has not passed; 0 for none
}

// deleteSome deletes the records that expired first, and their entries in the index, in one transaction. On a full file
// the transaction handles fewer entries, as many as there is room for the pages that it changes. It handles at least
// one entry, which needs no more room than any other delete.
func (x *expiry) deleteSome() (some expired, err error) {
	for {
		entries := cmp.Or(x.entries.Load(), overKeys)
		some, err = x.deleteFirst(int(entries))
		switch {
		case err == nil:
			x.entries.Store(min(2*entries, overKeys))
			return some, nil
		case !errors.Is(err, ErrFull) || entries == 1:
			return some, err
		}
		x.entries.Store(max(entries/8, 1))
	}
}

// deleteFirst is deleteSome of up to most entries of the index.
func (x *expiry) deleteFirst(most int) (some expired, err error) {
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
			if entries == most || size >= overBytes {
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

// timeIn returns the expiry time of the record with the given key in the tree; 0 if there is no record, or it does
// not expire.
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

// countOver returns the number of records in the transaction's keyspace that have expired and are still in the
// tree. It reads each of them.
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
		if has == at { // otherwise this is not the record's entry: invariant 2
			n++
		}
	}
	return n, tx.err
}

// stampByIndex finds the stamp of a database whose mark is lost; 0 if the database had none. The stamp is the 8
// bytes before a record's time, in any record whose time equals the one of its entry in the index.
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

// expires notes that a record with the time soonest was committed (0: none), and starts or wakes deleteInTime if
// there may be work.
func (x *expiry) expires(soonest int64) {
	if soonest != 0 || x.next.Load() != 0 && !x.under.Load() {
		startExpiring(x, soonest)
	}
}

func startExpiring(x *expiry, soonest int64) {
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
		default: // a signal is already in the channel
		}
	}
}

// lower sets next to at unless it is set and not above at, and reports whether it did.
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

// stopExpiring makes deleteInTime end, and returns when it has ended.
func (x *expirer) stopExpiring() {
	x.guard.Lock()
	if !x.over {
		x.over = true
		close(x.stopped)
	}
	x.guard.Unlock()
	x.done.Wait()
}

// goesOn reports whether deleteInTime has more to do. If not, it also notes that deleteInTime is no longer running.
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
		x.next.Store(0) // set before the search, so that a commit during the search lowers next again
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

// findStamp sets the stamp and the time at which the transaction began.
func findStamp(tx *Tx) {
	x := &tx.db.expiry
	if tx.db.beside == nil {
		tx.times = tx.spaced && x.on.Load()
		tx.stamp = stamp(x.stamp.Load())
	} // beside a writer findSpaces has set the stamp
	if tx.stamp != 0 && tx.now == 0 {
		tx.now = x.now()
	}
}

// initExpiry must be called before the database is used.
func initExpiry(db *DB) {
	x := &db.expiry
	x.of, x.now, x.longest = db, wallClock, mostExpiryWait
	x.sooner, x.stopped = make(chan signal, 1), make(chan signal)
}

// marked notes that the mark is committed with stamp s.
func (x *expiry) marked(s stamp) {
	if s == 0 {
		return
	}
	x.stamp.Store(uint64(s))
	x.on.Store(true)
	x.next.Store(1) // makes the first commit search the index
}
