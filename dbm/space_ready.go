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

// keyspaces is what a database has for its keyspaces.
type keyspaces struct {
	db          *DB
	spacedSince atomic.Uint64 // a Seq from which on snapshots have keyspaces, 0 if none is known; not used beside a writer
	drops       drops
}

// errMark is of a file, written by programs that know no keyspaces, with a record that has the key of the mark.
var errMark = errors.New("flashdbm: a record has the key by which a database with keyspaces is known: put it under another key first")

// ready looks whether a file that is opened has keyspaces, and has the work go on that was left of dropped ones.
func (k *keyspaces) ready() error {
	db := k.db
	if db.beside != nil || !mvcc.Keyspaces(db.engine) {
		return nil
	}
	left := int64(0)
	if err := db.View(func(tx *Tx) error { // which finds the mark, and notes that
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

// EnableKeyspaces makes the file one with keyspaces, if it is not yet. DB.CreateKeyspace does so by itself; it is for who makes the first one by
// Tx.CreateKeyspace. Programs of before there were keyspaces refuse the file from then on. It may be called at any time: other transactions go on,
// but those that write keys which begin with the byte FF may have to run again.
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

// shiftKeys makes the keys of the tree those of keyspaces, with the mark, if they are not yet. Who writes a key that begins with FF from a snapshot of
// before loses to it, by the mark, which all of these guard; it has read all of them, so it loses to those that have come before it.
func shiftKeys(tx *Tx) error {
	if tx.spaced {
		return nil
	}
	from := []byte{spaceByte}
	all := tx.whole()
	var first [][]byte // what another key becomes has to go first: those with more zeros before those with fewer
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
	for key := range all.Keys(spacesFrom, nil) { // which lie behind what they become
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

// move puts the value of a key under another one. ErrNotFound.
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

// findSpaces finds out whether the file has keyspaces at the transaction's snapshot: its superblock says that it may. It has them at all snapshots
// behind one at which it has.
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
	} // else tx.err has it
}

// guardMark has a transaction that is about to write a key, of a file that has no keyspaces at its snapshot, lose if it gets some before it
// commits and the key is one that is another then.
func guardMark(tx *Tx, key []byte) {
	if keyspace.Shifted(key) && !tx.spaced && !tx.space.all {
		tx.inner.Guard(spaceMark)
	}
}

// postBackground tells of an error of work in the background.
func postBackground(db *DB, what string, err error) {
	db.events.Post(event.Event{Kind: event.Background, What: what, Err: err})
}
