package dbm

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"

	"flashdbm/internal/btree"
	"flashdbm/mvcc"
)

// ErrOrder: the records of a Load with LoadOptions.Sorted do not ascend.
var ErrOrder = btree.ErrOrder

// LoadOptions say what Load may assume about the records, and whether they replace the
// present ones.
type LoadOptions struct {
	// Sorted: the keys ascend strictly, bytewise. Load then writes records in the order in which it gets them.
	// Otherwise Load first sorts them, in the memory allowed for write sets and in the file; of several records
	// with one key, the last one wins.
	Sorted bool

	// Replace: the records replace everything in the keyspace, in the same step; the keyspace of Keyspace.Load need
	// not exist. Other transactions that asked for the keyspace before and want to write to it conflict, as if it
	// had been dropped. A Load of less than a megabyte itself conflicts if any keyspace is created in the meantime.
	Replace bool
}

// Load puts all records in one step. When it returns nil, all of them are in the database and durable, whatever the
// Durability. After an error, a crash or a kill none of them is, and no space is lost.
//
// In an empty database without keyspaces, Load builds the tree from the leaves upwards and writes it once,
// sequentially: several times as fast as Puts. In a database that has records, Load is one transaction of Puts,
// with the costs of a large one.
//
// While an empty database is filled, other commits wait until Load ends; commits of transactions that have read
// anything then fail with ErrConflict. So the iterator records must not write to the database. Readers continue,
// and see nothing of the load before it is complete.
//
// records runs in its own goroutine, which ends before Load returns; a panic in it is passed on to the caller.
// Keys and values may be reused after yield returns. If records cannot continue because of an error, it should
// cancel ctx with the error as the cause and return: then nothing is loaded, and Load returns the cause.
//
// Errors: the cause of ctx, ErrOrder, ErrFull, ErrKeyTooLarge, ErrValueTooLarge, ErrReadOnly, ErrClosed, ErrFailed.
func (db *DB) Load(ctx context.Context, records iter.Seq2[[]byte, []byte], opts LoadOptions) (err error) {
	return loadInto(db, ctx, nil, records, opts)
}

// Load puts all records into the keyspace, all or nothing and durable: see DB.Load. Other commits continue during the
// load, and Load overwrites what they put under its keys, as Puts do. Load fails with ErrConflict only if the keyspace
// is dropped, renamed, or loaded with Replace in the meantime.
//
// If the keyspace is empty, or with LoadOptions.Replace, a load of a megabyte or more builds the tree from the leaves
// upwards, in rows of 16 MiB, or a sixteenth of MemoryLimit if that is less. Other commits wait while a row is written, but
// not while records produces the next one. The last commit gives the keyspace's name to the loaded records: transactions
// that asked for the keyspace before and want to write to it conflict, as if it had been dropped. The records that an
// error, a crash or a kill leaves behind are deleted in the background, like those of a dropped keyspace; Dropping counts
// them. If another transaction puts records into the empty keyspace in the meantime, one transaction puts the loaded
// records there at the end.
//
// Other loads are one transaction of Puts. Records that are not sorted are collected in a transaction that has asked for
// the keyspace; if that takes longer than Options.MaxSnapshotAge, Load returns ErrSnapshotTooOld.
//
// With LoadOptions.Replace the records replace those of the keyspace. To inspect new records before they replace
// the old ones, load them into another keyspace, then call Tx.DropKeyspace and Tx.RenameKeyspace in one
// transaction.
func (k *Keyspace) Load(ctx context.Context, records iter.Seq2[[]byte, []byte], opts LoadOptions) error {
	return loadInto(k.db, ctx, k, records, opts)
}

// loadInto is Load into a keyspace; nil is the default keyspace.
func loadInto(db *DB, ctx context.Context, space *Keyspace, records iter.Seq2[[]byte, []byte], opts LoadOptions) (err error) {
	if db.beside != nil {
		return ErrReadOnly
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer guard(db.engine, &err)
	row := 0
	if space != nil {
		row = db.drops.row
	}
	source := startLoad(ctx, db.engine, records, row)
	defer func() {
		source.stop()
		if source.panicked != nil {
			panic(source.panicked)
		}
	}()
	if opts.Replace && space != nil {
		if err := db.EnableKeyspaces(); err != nil {
			return err
		}
	}
	if opts.Sorted && space == nil {
		empty, err := db.engine.LoadEmpty(ctx, source.next)
		if empty || err != nil {
			return public(err)
		}
	}
	if opts.Sorted && space != nil {
		if done, err := loadRows(ctx, space, source, opts); done || err != nil {
			return public(err)
		}
	}
	return public(loadTx(db, ctx, space, source, opts))
}

// loadTx is Load by a transaction. Either the transaction is committed, or its write set, which is sorted, is the
// source from which the tree of an empty database is built.
func loadTx(db *DB, ctx context.Context, space *Keyspace, source *loadSource, opts LoadOptions) (err error) {
	tx, err := db.engine.Begin(mvcc.TxOptions{})
	if err != nil {
		return err
	}
	in := newTx(db, tx, TxOptions{}, true)
	if in.err != nil {
		tx.Rollback()
		return in.err
	}
	ended := false
	defer func() {
		if !ended {
			tx.Rollback()
		}
	}()
	if in, err = loadTarget(in, space, opts.Replace); err != nil {
		return err
	}
	var last []byte
	size := 0
	for n := int64(0); ; {
		chunk, err := source.next()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		if len(chunk) == 0 {
			break
		}
		for _, r := range chunk {
			if opts.Sorted {
				if n++; n > 1 && string(last) >= string(r.Key) {
					return fmt.Errorf("%w: record %d", ErrOrder, n)
				}
				last = append(last[:0], r.Key...)
			}
			size += len(r.Key) + len(r.Value)
			guardMark(in, r.Key)
			if err := putValue(in, r.Key, r.Value); err != nil {
				return err
			}
		}
	}
	if !opts.Sorted && space == nil && tx.Written() > 0 {
		empty, err := db.engine.LoadEmpty(ctx, sortedSource(tx))
		if empty || err != nil {
			return err
		}
	}
	if !opts.Sorted && space != nil && size >= db.leastRow() {
		if done, err := loadSorted(ctx, space, in, opts); done || err != nil {
			return err
		}
	}
	ended = true
	err = tx.Commit()
	in.committed(err)
	if err != nil {
		return err
	}
	return db.Sync()
}

// loadTarget returns the transaction as one of the keyspace to be loaded (nil: the default one), emptied if replace
// is set.
func loadTarget(tx *Tx, space *Keyspace, replace bool) (*Tx, error) {
	switch {
	case space == nil && replace:
		return tx, tx.DeleteRange(nil, nil)
	case space == nil:
		return tx, nil
	case !replace:
		return tx.Keyspace(space.name)
	}
	if err := tx.DropKeyspace(space.name); err != nil && !errors.Is(err, ErrNoKeyspace) {
		return nil, err
	}
	return tx.CreateKeyspace(space.name)
}

// loadChunk is about how many bytes of records the iterator's goroutine passes to the loader at
// once.
const loadChunk = 256 << 10

// sortedSource returns the writes of a transaction as an mvcc.LoadSource. The records of its snapshot are not part of
// them: the database is empty by now, so other transactions have deleted those records. Once a record was taken from
// the source, the transaction must not be committed.
func sortedSource(tx *mvcc.Tx) mvcc.LoadSource {
	records := make([]mvcc.LoadRecord, 0, 1024)
	var c *mvcc.Cursor
	return func() ([]mvcc.LoadRecord, error) {
		if c == nil {
			tx.OwnOnly()
			c = tx.Cursor()
		}
		records = records[:0]
		for bytes := 0; len(records) < cap(records) && bytes < loadChunk && c.Next(); {
			key := c.Key()
			value, err := c.Value()
			if err != nil {
				return nil, err
			}
			records = append(records, mvcc.LoadRecord{Key: key, Value: value})
			bytes += len(key) + len(value)
		}
		return records, c.Err()
	}
}
