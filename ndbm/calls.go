//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"

	"flashdbm/logstore"
	"flashdbm/mvcc"
)

// A call copies its result into reply, memory of the caller, if the result fits, and returns the length of the
// result in any case. If it does not fit, reply stays unchanged: reply may hold the key, which the caller needs for
// the next try.

func replyWith(reply, found []byte) int {
	if len(found) <= len(reply) {
		copy(reply, found)
	}
	return len(found)
}

// fetch copies the value of key into reply and returns its length; ok is false if there is no record.
func (d *database) fetch(key, reply []byte) (n int, ok bool, err error) {
	if err := d.enter(); err != nil {
		return 0, false, err
	}
	defer d.leave()
	if isLong(key) {
		return d.fetchLong(key, reply)
	}
	if e := d.engine; e != nil {
		return e.LookInto(d.keys.in(key), reply)
	}
	err = d.read(func(e *mvcc.Engine, k keys) (err error) {
		n, ok, err = e.LookInto(k.in(key), reply)
		return err
	})
	return n, ok, err
}

func (d *database) fetchLong(key, reply []byte) (n int, ok bool, err error) {
	stored := storedKey(key)
	var serr error
	err = d.read(func(e *mvcc.Engine, k keys) (err error) {
		ok, err = e.Look(k.in(stored), func(value []byte) {
			var v []byte
			if _, v, serr = splitStored(stored, value); serr == nil {
				n = replyWith(reply, v)
			}
		})
		return err
	})
	if err == nil {
		err = serr
	}
	return n, ok && err == nil, err
}

// after copies the least key greater than key, or the least key of all if first is set, into reply and returns its
// length.
func (d *database) after(key []byte, first bool, reply []byte) (n int, ok bool, err error) {
	if err := d.enter(); err != nil {
		return 0, false, err
	}
	defer d.leave()
	from := storedKey(key)
	var long []byte
	err = d.read(func(e *mvcc.Engine, k keys) (err error) {
		mine := false
		ok, err = e.After(k.in(from), first, func(key []byte) {
			var found []byte
			if found, mine = k.out(key); !mine {
				return
			}
			if n = len(found); n == storedKeyMax {
				long = bytes.Clone(found)
			} else {
				replyWith(reply, found)
			}
		})
		ok = ok && mine
		return err
	})
	if err != nil || !ok || long == nil {
		return n, ok, err
	}
	var whole []byte
	var serr error
	err = d.read(func(e *mvcc.Engine, k keys) (err error) {
		ok, err = e.Look(k.in(long), func(value []byte) { whole, _, serr = splitStored(long, value) })
		return err
	})
	if err == nil {
		err = serr
	}
	if err == nil && !ok { // deleted between the two lookups
		err = errAgain
	}
	return replyWith(reply, whole), ok, err
}

// store writes a record. With insert it does not replace an existing record, and returns false.
func (d *database) store(key, value []byte, insert bool) (stored bool, err error) {
	if uint64(len(value))+uint64(len(key)) > mvcc.MaxValue-longKeyRest {
		return false, errTooLarge
	}
	if d.options.Store.ReadOnly {
		return false, logstore.ErrReadOnly
	}
	if err := d.enter(); err != nil {
		return false, err
	}
	defer d.leave()
	e := d.engine
	if isLong(key) {
		key, value = storedKey(key), storedValue(key, value)
	}
	key = d.keys.in(key)
	if !insert { // reads nothing, so it cannot conflict
		return true, e.WriteOne(key, value, false)
	}
	err = e.Retry(context.Background(), mvcc.TxOptions{}, func(tx *mvcc.Tx) (lost bool, err error) {
		there, err := tx.Has(key)
		if stored = !there; err != nil || there {
			tx.Rollback()
			return false, err
		}
		return commitPut(tx, func() error { return tx.Put(key, value) })
	})
	return stored && err == nil, err
}

// remove deletes a record and reports whether there was one.
func (d *database) remove(key []byte) (found bool, err error) {
	if d.options.Store.ReadOnly {
		return false, logstore.ErrReadOnly
	}
	if err := d.enter(); err != nil {
		return false, err
	}
	defer d.leave()
	e := d.engine
	key = d.keys.in(storedKey(key))
	err = e.Retry(context.Background(), mvcc.TxOptions{}, func(tx *mvcc.Tx) (lost bool, err error) {
		if found, err = tx.Has(key); err != nil || !found {
			tx.Rollback()
			return false, err
		}
		return commitPut(tx, func() error { return tx.Delete(key) })
	})
	return found && err == nil, err
}

// commitPut calls write and commits. lost reports a conflict.
func commitPut(tx *mvcc.Tx, write func() error) (lost bool, err error) {
	if err := write(); err != nil {
		tx.Rollback()
		return false, err
	}
	err = tx.Commit()
	return errors.Is(err, mvcc.ErrConflict), err
}
