package dbm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"flashdbm/internal/event"
	"flashdbm/internal/keyspace"
	"flashdbm/mvcc"
)

// keyspaces is the part of a DB for its keyspaces.
type keyspaces struct {
	db          *DB
	spacedSince atomic.Uint64 // snapshots from this Seq on have keyspaces; 0 if no such Seq is known; not used beside a writer
	drops       drops
}

// errMark: a file written without keyspaces has a record with the key of the mark.
var errMark = errors.New("flashdbm: a record has the key that marks a database with keyspaces: put it under another key first")

// ready finds out at Open whether the file has keyspaces, and how many dropped keyspaces have records
// left.
func (k *keyspaces) ready() error {
	db := k.db
	if db.beside != nil || !mvcc.Keyspaces(db.engine) {
		return nil
	}
	left := int64(0)
	if err := db.View(func(tx *Tx) error { // newTx finds the mark and notes it
		if !tx.spaced {
			return tx.err
		}
		from := catalogKey(catalogDropped, nil)
		for range tx.whole().Keys(from, PrefixEnd(from)) {
			left++
		}
		return tx.Err()
	}); err != nil {
		return err
	}
	db.drops.left.Store(left)
	return nil
}

// EnableKeyspaces turns the file into one with keyspaces, if it is not one yet. DB.CreateKeyspace calls it; a
// program that creates its first keyspace by Tx.CreateKeyspace must call it first. Programs older than keyspaces
// refuse the file from then on. EnableKeyspaces may be called at any time: other transactions continue, but
// transactions that write keys beginning with the byte FF may get ErrConflict and have to run again.
func (k *keyspaces) EnableKeyspaces() error {
	db := k.db
	if db.beside != nil {
		return ErrReadOnly
	}
	flagged := mvcc.Keyspaces(db.engine)
	there := false
	if err := db.Update(func(tx *Tx) (err error) {
		if there = tx.spaced; there || flagged {
			return nil
		}
		marked, err := tx.Has(spaceMark)
		if err == nil && marked {
			err = errMark
		}
		return err
	}); err != nil || there {
		return err
	}
	if err := db.maintain(mvcc.SetKeyspaces); err != nil {
		return err
	}
	return db.UpdateContext(context.Background(), TxOptions{Serializable: true}, shiftKeys)
}

// shiftKeys rewrites the keys of the tree that begin with FF as those of the default keyspace, and puts the mark,
// unless the mark is there. It has read all these keys, so it conflicts with transactions that wrote one of them
// and committed before it. Transactions that write such a key from an older snapshot and commit after it guard the
// mark, and conflict.
func shiftKeys(tx *Tx) error {
	if tx.spaced {
		return nil
	}
	from := []byte{spaceByte}
	all := tx.whole()
	var first [][]byte // keys whose place other keys will take. They are moved first, keys with more zeros before keys with fewer
	for key := range all.Keys(from, nil) {
		if len(key) > 1 && key[1] == escapeByte {
			first = append(first, bytes.Clone(key))
		}
	}
	if err := tx.Err(); err != nil {
		return err
	}
	zeros := func(key []byte) int { return len(key) - len(bytes.TrimLeft(key[1:], "\x00")) }
	slices.SortFunc(first, func(a, b []byte) int { return zeros(b) - zeros(a) })
	for _, key := range first {
		if err := move(all, defaultSpace.in(nil, key), key); err != nil {
			return err
		}
	}
	for key := range all.Keys(spacesFrom, nil) { // their new keys lie before this range
		if err := move(all, defaultSpace.in(nil, key), key); err != nil {
			return err
		}
	}
	if err := move(all, defaultSpace.in(nil, from), from); err != nil && err != ErrNotFound {
		return err
	}
	if err := tx.Err(); err != nil {
		return err
	}
	return all.Put(spaceMark, spaceForm)
}

// move puts the value of the key from under the key to, and deletes from. ErrNotFound.
func move(tx *Tx, to, from []byte) error {
	r, length, err := tx.ValueReader(from)
	if err != nil {
		return err
	}
	if err := tx.PutReader(to, r, length); err != nil {
		return err
	}
	return tx.Delete(from)
}

// findSpaces finds out whether the file has keyspaces at the transaction's snapshot; the superblock says only that
// it may have. If it has them at one snapshot, it has them at all later ones.
func findSpaces(tx *Tx) {
	since := &tx.db.spacedSince
	at := tx.inner.Snapshot()
	if s := since.Load(); s > 0 && at >= s && tx.db.beside == nil {
		tx.spaced, tx.space = true, &defaultSpace
		return
	}
	form, err := tx.whole().Get(spaceMark)
	tx.answered = false
	s, known := stampOf(form)
	switch {
	case err == ErrNotFound:
	case err == nil && !known:
		tx.err = fmt.Errorf("%w: keyspaces of form %x: use a newer flashdbm", ErrFormat, form)
	case err == nil:
		tx.spaced, tx.space = true, &defaultSpace
		if tx.db.beside != nil {
			tx.stamp = s
			return
		}
		since.CompareAndSwap(0, at)
		tx.db.expiry.marked(s)
	} // any other error is in tx.err
}

// guardMark is called before a transaction writes key. If the file has no keyspaces at the transaction's snapshot
// and the key would be stored differently in a file with keyspaces, the transaction will conflict with a commit of
// the mark.
func guardMark(tx *Tx, key []byte) {
	if keyspace.Shifted(key) && !tx.spaced && !tx.space.all {
		tx.inner.Guard(spaceMark, nil)
	}
}

// postBackground posts an error of background work.
func postBackground(db *DB, what string, err error) {
	db.events.Post(event.Event{Kind: event.Background, What: what, Err: err})
}
