package dbm

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// drops deletes the records of keyspaces that were dropped, in the background. What is to be done is in the catalog, so it goes on behind the next
// open to write. Nobody else writes there: who had asked for the keyspace before it was dropped has lost.
//
// Behind an open it goes on with the first commit of the user's, other than ApplyBackup: a copy that only increments are applied to has to stay as it is.
type drops struct {
	left  atomic.Int64 // keyspaces whose records are being deleted
	piece int64        // records that a transaction deletes at most: dropRecords if 0

	mu    sync.Mutex
	under bool // somebody is at it
	over  bool // nobody begins any more
	done  sync.WaitGroup
}

// dropRecords is how many records a transaction deletes at most. A cut of that many keeps other commits waiting for 9 ms or so, at 35 ns a record; with
// fewer the flushes that follow each cut write more.
const dropRecords = 1 << 18

// errDropped is of a transaction that uses a keyspace that it has dropped.
var errDropped = fmt.Errorf("%w: the transaction has dropped it", ErrNoKeyspace)

func isDropped(tx *Tx) bool {
	for _, prefix := range tx.dropped {
		if bytes.Equal(prefix, tx.space.prefix) {
			return true
		}
	}
	return false
}

// committed has the records deleted of what the transaction has dropped, once that is committed, and of those that expire.
func (tx *txShared) committed(err error) {
	if err == nil && !tx.readOnly && !tx.quiet {
		tx.db.drops.left.Add(int64(len(tx.dropped)))
		tx.db.goOnDropping()
		tx.db.expires(tx.soonest)
	}
}

// Dropping returns how many keyspaces were dropped whose records are being deleted still. Their space is in LiveBytes of Stats until then.
func (k *keyspaces) Dropping() int { return int(k.drops.left.Load()) }

// FinishDrops deletes what is left of the records of keyspaces that were dropped, and returns when there are none, for who does not leave it to the
// background: before Compact for example. The error of ctx, or what kept it from going on.
func (k *keyspaces) FinishDrops(ctx context.Context) error {
	if k.db.beside != nil {
		return ErrReadOnly
	}
	for k.drops.left.Load() > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		if more, err := k.dropSome(); err != nil || !more {
			return err
		}
	}
	return nil
}

// goOnDropping has the work go on in the background, if there is any and nobody is at it.
func (k *keyspaces) goOnDropping() {
	d := &k.drops
	if d.left.Load() == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.under && !d.over {
		d.under = true
		d.done.Go(k.dropAll)
	}
}

func (d *drops) stop() {
	d.mu.Lock()
	d.over = true
	d.mu.Unlock()
	d.done.Wait()
}

// goesOn reports whether there is more to do, or else that nobody is at it any more.
func (d *drops) goesOn(failed bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.under = !failed && !d.over && d.left.Load() > 0
	return d.under
}

func (k *keyspaces) dropAll() {
	for failed := false; k.drops.goesOn(failed); {
		more, err := k.dropSome()
		if failed = err != nil || !more; err != nil && !errors.Is(err, ErrClosed) {
			postBackground(k.db, "the records of a keyspace that was dropped cannot be deleted: the next commit tries again", err)
		}
	}
}

// dropSome deletes some records of the first keyspace that was dropped, and forgets it with the last of them. more is false if there is nothing to do.
func (k *keyspaces) dropSome() (more bool, err error) {
	gone := false
	err = k.db.Update(func(tx *Tx) error {
		tx.quiet = true
		more, gone = false, false
		all := tx.whole()
		c := all.Cursor()
		from := catalogKey(catalogDropped, nil)
		if !c.Seek(from) || !bytes.HasPrefix(c.Key(), from) {
			return c.Err()
		}
		more = true
		entry := c.Key()
		prefix := entry[len(from):]
		if !isSpacePrefix(prefix) {
			return tx.note(fmt.Errorf("%w: the catalog has %x for a keyspace that was dropped", ErrCorrupt, prefix))
		}
		left, err := tx.as(spaceOf(prefix)).deletePart(nil, nil, cmp.Or(k.drops.piece, dropRecords))
		if err != nil {
			return err
		}
		if gone = !left; gone {
			return all.Delete(entry)
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	if gone {
		k.drops.left.Add(-1)
	}
	return more, nil
}
