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

// drops deletes the records of dropped keyspaces in the background. The catalog lists the keyspaces that have
// records left, so the work goes on after the next open for writing. No transaction writes records there any more:
// one that had asked for the keyspace before the drop conflicts with the drop.
//
// After an open, the work begins with the first commit of the user other than ApplyBackup: a copy to which only
// increments are applied must not change by itself.
type drops struct {
	left  atomic.Int64 // dropped keyspaces that may have records left
	piece int64        // most records deleted by one transaction; 0 means dropRecords, tests set others
	row   int          // bytes of records in a row of a load: see rowOf

	mu    sync.Mutex            // guards the following
	under bool                  // dropAll is running
	asked bool                  // goOnDropping was called since dropAll looked last
	over  bool                  // stop was called: dropAll starts no more
	loads map[*spaceLoad]string // prefixes of keyspaces that are being loaded: see spaceLoad
	done  sync.WaitGroup        // waits for dropAll
}

// spare keeps the records of a load's prefix, which the catalog lists as dropped, until spare is called again for the
// load: with another prefix, or nil for none. Two loads may spare one prefix: that of the number which both try to
// take, until one of them has lost.
func (d *drops) spare(l *spaceLoad, prefix []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.loads == nil {
		d.loads = map[*spaceLoad]string{}
	}
	if d.loads[l] = string(prefix); prefix == nil {
		delete(d.loads, l)
	}
}

func (d *drops) spares(prefix []byte) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, spared := range d.loads {
		if spared == string(prefix) {
			return true
		}
	}
	return false
}

// dropRecords is the most records that one background transaction deletes. Other commits wait while they are cut
// out of the tree: about 9 ms, at 35 ns a record. With fewer records, the flush that follows each cut writes more
// in all.
const dropRecords = 1 << 18

// errDropped: the transaction uses a keyspace that it has dropped itself.
var errDropped = fmt.Errorf("%w: the transaction has dropped it", ErrNoKeyspace)

func isDropped(tx *Tx) bool {
	for _, prefix := range tx.dropped {
		if bytes.Equal(prefix, tx.space.prefix) {
			return true
		}
	}
	return false
}

// committed starts the background work that a successful commit has made: for keyspaces that it dropped, and for
// records that expire.
func (tx *txShared) committed(err error) {
	if err == nil && !tx.readOnly && !tx.quiet {
		if len(tx.dropped) > 0 {
			tx.db.drops.left.Add(int64(len(tx.dropped)))
		}
		tx.db.goOnDropping()
		tx.db.expires(tx.soonest)
	}
}

// Dropping returns the number of dropped keyspaces whose records are still being deleted. Until then LiveBytes of
// Stats includes their space.
func (k *keyspaces) Dropping() int { return int(max(k.drops.left.Load(), 0)) }

// FinishDrops deletes all remaining records of dropped keyspaces in the caller's goroutine, and returns when none
// are left: for example before Compact. It returns the error of ctx, or the error that stopped it; ErrClosed.
func (k *keyspaces) FinishDrops(ctx context.Context) error {
	if k.db.beside != nil {
		return ErrReadOnly
	}
	if err := k.db.opened(); err != nil {
		return err
	}
	for { // drops.left does not tell: a drop is seen, and may be carried out by others, before it is counted
		if err := ctx.Err(); err != nil {
			return err
		}
		if more, err := k.dropSome(); err != nil || !more {
			return err
		}
	}
}

// goOnDropping starts dropAll if there is work and dropAll is not running.
func (k *keyspaces) goOnDropping() {
	if k.drops.left.Load() != 0 {
		startDropping(k)
	}
}

func startDropping(k *keyspaces) {
	d := &k.drops
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = true
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

// goesOn reports whether dropAll has more to do. If not, it also notes that dropAll is no longer running. After a
// failure, or where nothing was found, dropAll goes on only if it was asked to meanwhile: by a drop that it did not see.
func (d *drops) goesOn(failed bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.under = (!failed || d.asked) && !d.over && d.left.Load() > 0
	d.asked = false
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

// dropSome deletes up to dropRecords records of the first dropped keyspace in the catalog, and removes the
// catalog's entry with the last of them. more is false if the catalog lists none.
func (k *keyspaces) dropSome() (more bool, err error) {
	gone := false
	err = k.db.Update(func(tx *Tx) (err error) {
		tx.quiet = true
		more, gone, err = k.dropPart(tx)
		return err
	})
	if err != nil {
		return false, err
	}
	if gone {
		k.drops.left.Add(-1)
	}
	return more, nil
}

// dropPart is dropSome in a transaction. gone says that the keyspace has no records left, and is off the list.
func (k *keyspaces) dropPart(tx *Tx) (more, gone bool, err error) {
	if !tx.spaced { // such a file has no catalog
		return false, false, nil
	}
	entry, prefix, err := k.firstDropped(tx)
	if entry == nil || err != nil {
		return false, false, err
	}
	// A load that has ended since the snapshot has made a keyspace of what the snapshot has for dropped.
	if _, err := tx.look(entry); err != nil {
		return false, false, err
	}
	left, err := tx.as(spaceOf(prefix)).deletePart(nil, nil, cmp.Or(k.drops.piece, dropRecords))
	if err != nil || left {
		return true, false, err
	}
	return true, true, tx.whole().Delete(entry)
}

// firstDropped returns the first entry of the catalog for a dropped keyspace that is not being loaded, and the
// keyspace's prefix; nil if there is none.
func (k *keyspaces) firstDropped(tx *Tx) (entry, prefix []byte, err error) {
	c := tx.whole().Cursor()
	from := catalogKey(catalogDropped, nil)
	for ok := c.Seek(from); ok && bytes.HasPrefix(c.Key(), from); ok = c.Next() {
		entry, prefix = c.Key(), c.Key()[len(from):]
		if !isSpacePrefix(prefix) {
			return nil, nil, tx.note(fmt.Errorf("%w: the catalog has %x for a keyspace that was dropped", ErrCorrupt, prefix))
		}
		if !k.drops.spares(prefix) {
			return bytes.Clone(entry), bytes.Clone(prefix), nil
		}
	}
	return nil, nil, c.Err()
}
