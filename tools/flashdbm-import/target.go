package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"flashdbm/dbm"
	"flashdbm/logstore/vfs"
)

// A commit is made whenever there are this many records or bytes: its cost does not show then, and what it needs is little.
const (
	batchRecords = 1000
	batchBytes   = 4 << 20
)

// target is the database that an import fills. It has another name until it is whole.
type target struct {
	ctx     context.Context
	path    string // where it will be
	working string // where it is meanwhile
	db      *dbm.DB
	tx      *dbm.Tx
	pending int64 // records in tx
	bytes   int64 // of these
	result  result
	timed   bool // records may expire
}

// result is what was imported.
type result struct {
	Records, Bytes int64
}

// errDoubled is of a key that is there already.
var errDoubled = errors.New("two records get the same key")

// importInto calls fill with a new database, and gives that its name if there was no error. Else nothing is left.
func importInto(ctx context.Context, path string, fill func(t *target) error) (err error) {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s exists: give the name of a database that does not, or move it away", path)
	}
	t := &target{ctx: ctx, path: path, working: path + ".importing"}
	if _, err := os.Lstat(t.working); err == nil {
		return fmt.Errorf("%s exists: another import is running, or one was killed; remove it then", t.working)
	}
	if t.db, err = dbm.Open(t.working, &dbm.Options{Durability: dbm.Buffered, Events: func(dbm.Event) {}}); err != nil {
		return err
	}
	defer func() {
		if t.db != nil {
			if t.tx != nil {
				t.tx.Rollback()
			}
			t.db.Close()
			os.Remove(t.working) // else it is the rest of a failure that is reported
		}
	}()
	if err := fill(t); err != nil {
		return err
	}
	if err := t.commit(); err != nil {
		return err
	}
	if err := t.db.Close(); err != nil { // which syncs
		return err
	}
	if err := os.Link(t.working, path); err != nil { // unlike Rename it never replaces a file that has come meanwhile
		if err := os.Rename(t.working, path); err != nil {
			return err
		}
	} else if err := os.Remove(t.working); err != nil {
		return err
	}
	t.db = nil
	if err := vfs.OS().SyncDir(path); err != nil {
		return err
	}
	fmt.Printf("%s: %d records, %d bytes of keys and values\n", path, t.result.Records, t.result.Bytes)
	return nil
}

// add stores a record. The slices may change after it. errDoubled: the key was stored before.
func (t *target) add(key, value []byte) error { return t.addUntil(key, value, time.Time{}) }

// addUntil is add of a record that expires at a time, or does not if that is zero. One whose time is over is left out.
func (t *target) addUntil(key, value []byte, until time.Time) error {
	if err := t.ctx.Err(); err != nil {
		return errors.New("interrupted")
	}
	ttl := time.Until(until)
	if !until.IsZero() {
		if ttl <= 0 {
			return nil
		}
		if !t.timed { // which only transactions know that begin after it
			if err := errors.Join(t.commit(), t.db.EnableExpiry()); err != nil {
				return err
			}
			t.timed = true
		}
	}
	if t.tx == nil {
		var err error
		if t.tx, err = t.db.Begin(dbm.TxOptions{}); err != nil {
			return err
		}
	}
	err := t.tx.Insert(key, value)
	if err == nil && !until.IsZero() {
		err = t.tx.PutTTL(key, value, ttl)
	}
	switch {
	case errors.Is(err, dbm.ErrExists):
		return fmt.Errorf("%w: %q", errDoubled, key)
	case errors.Is(err, dbm.ErrKeyTooLarge):
		return fmt.Errorf("%w: it has %d bytes and begins with %.40q", err, len(key), key)
	case err != nil:
		return err
	}
	t.pending++
	t.bytes += int64(len(key) + len(value))
	if t.pending >= batchRecords || t.bytes >= batchBytes {
		return t.commit()
	}
	return nil
}

func (t *target) commit() error {
	if t.tx == nil {
		return nil
	}
	tx := t.tx
	t.tx = nil
	if err := tx.Commit(); err != nil {
		return err
	}
	t.result.Records += t.pending
	t.result.Bytes += t.bytes
	t.pending, t.bytes = 0, 0
	return nil
}

// note says what of the source has no place in the database.
func note(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "flashdbm-import: note: "+format+"\n", args...)
}

// recovered is deferred: it turns a panic, and a fault in a file that the source's library has mapped, into an error.
func recovered(source string, err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("%s: the library that reads it panicked, so the file is probably damaged: %v", source, r)
	}
}

// faultsPanic makes faults in mapped files panics of this goroutine; the function that it returns takes that back.
func faultsPanic() func() {
	before := debug.SetPanicOnFault(true)
	return func() { debug.SetPanicOnFault(before) }
}
