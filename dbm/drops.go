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
// a transaction that had asked for the keyspace before the drop conflicts with the drop.
//
// After an open, the work begins with the first commit of the user other than ApplyBackup: a copy to which only
// increments are applied must not change by itself.
type drops struct {
	left  atomic.Int64 // dropped keyspaces that may have records left
	piece int64        // most records deleted by one transaction; 0 means dropRecords, tests set other values
	row   int          // bytes of records in a row of a load: see rowOf

	mu    sync.Mutex            // guards the following
	under bool                  // dropAll is running
	asked bool                  // goOnDropping was called since dropAll last looked for work
	over  bool                  // stop was called: dropAll starts no more
	loads map[*spaceLoad]string // prefixes of keyspaces that are being loaded: see spaceLoad
	done  sync.WaitGroup        // waits for dropAll
}

// spare protects the records under the prefix of a load: the catalog lists the prefix as dropped, but its records are
// not deleted until spare is called again for the load, with another prefix or with nil for none. Two loads may spare
// the same prefix while both try to take the same keyspace number; one of them will lose.
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

// dropRecords is the most records of a keyspace that one background transaction deletes. Other commits wait while these
// records are cut out of the tree: about 9 ms, at 35 ns a record. A smaller number makes the waits shorter, but a flush
// follows each cut, and all flushes together then write more.
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
	for { // drops.left is no condition to end at: other goroutines may see and carry out a drop before it is counted
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
// failure, or if it found nothing, dropAll continues only if goOnDropping was called in the meantime, for a drop that
// dropAll did not see.
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

// One transaction deletes several keyspaces if they are small: 5,000 of ten records took 1.8 to 2.2 s with a commit and
// a sync for each, and take 0.14 to 0.27.
const (
	dropSpaces = 16   // most keyspaces; each clears a range, and recentlyCleared of package mvcc remembers 64 of them
	dropKeys   = 4096 // most keys that it deletes one by one in all keyspaces but the first
)

// dropSome deletes records of the first dropped keyspaces in the catalog, and removes the catalog's entry for a keyspace
// with the last of them. more is false if the catalog lists none. On a full file there may be room for one keyspace
// only.
func (k *keyspaces) dropSome() (more bool, err error) {
	for most := dropSpaces; ; most = 1 {
		gone := 0
		err = k.db.Update(func(tx *Tx) (err error) {
			tx.quiet = true
			more, gone, err = k.dropParts(tx, most)
			return err
		})
		switch {
		case errors.Is(err, ErrFull) && most > 1:
			continue
		case err != nil:
			return false, err
		}
		k.drops.left.Add(int64(-gone))
		return more, nil
	}
}

// dropParts is dropSome in a transaction, of up to most keyspaces. gone of them have no records left, and were removed
// from the list.
func (k *keyspaces) dropParts(tx *Tx, most int) (more bool, gone int, err error) {
	for records := cmp.Or(int64(k.drops.piece), dropRecords); gone < most && records > 0; records = int64(dropKeys - tx.inner.Written()) {
		some, all, err := k.dropPart(tx, records)
		more = more || some
		if all {
			gone++
		}
		if err != nil || !all {
			return more, gone, err
		}
	}
	return more, gone, nil
}

// dropPart deletes up to about the given number of records of the first dropped keyspace. gone says that it has none
// left and was removed from the list.
func (k *keyspaces) dropPart(tx *Tx, records int64) (more, gone bool, err error) {
	if !tx.spaced { // a file without keyspaces has no catalog
		return false, false, nil
	}
	entry, prefix, err := k.firstDropped(tx)
	if entry == nil || err != nil {
		return false, false, err
	}
	// If a load has ended since the snapshot, the prefix that the snapshot lists as dropped is that of a
	// keyspace now: the read of the entry makes this transaction conflict.
	if _, err := tx.look(entry); err != nil {
		return false, false, err
	}
	left, err := tx.as(spaceOf(prefix)).deletePart(nil, nil, records)
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
