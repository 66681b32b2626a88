package dbm

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"

	"flashdbm/mvcc"
)

// A load into a keyspace of its own writes rows of leaves straight into the log (mvcc.LoadRow), under a number
// that no keyspace has yet. One commit then gives the name to that number, and the keyspace that had the name is
// dropped.
//
//  1. One commit takes a number and lists it in the catalog as the number of a dropped keyspace. So the records that a
//     crash or a kill leaves are deleted like those of a dropped keyspace, even by programs that know nothing of loads.
//  2. The records are written, row by row. Nobody else can read or write them: no name leads to the number. Background
//     work does not delete the records of numbers in drops.loads, which is only in memory.
//  3. One commit takes the number off the list and gives it the name. It conflicts, like a drop, with every commit that
//     changes what the name means; without LoadOptions.Replace it also conflicts with a put into the keyspace, which
//     must still be empty.
//
// Suppose that background work sees the number in the catalog before step 3, and after step 3 no longer finds it
// in drops.loads. Its transaction has then read the entry of the catalog, and conflicts with step 3.
type spaceLoad struct {
	db     *DB
	name   string
	opts   LoadOptions
	much   bool   // load in rows, however few records there are, and even if the keyspace has records by now
	old    []byte // prefix of the empty keyspace that is to be filled; nil with Replace. loadSorted sets it
	form   []byte // value of the mark of keyspaces: says whether values may have stamps
	stamp  stamp  // 0 if none may
	prefix []byte // made from the number that the load has taken
}

// Both constants are bytes of records. Other commits wait while a row is written, so larger rows make them wait longer.
// Smaller rows cost more, because each row has its own sync and flushes the pages that other commits have made dirty. A
// load of less than loadLeast is a transaction, which needs one sync.
const (
	rowBytes  = 16 << 20
	loadLeast = 1 << 20
)

const mostPrefix = 5 // bytes of a keyspace's prefix

var zeroPrefix [mostPrefix]byte

// rowOf returns how many bytes of records make a row, for a MemoryLimit in bytes; 0 stands for the default limit. A
// load has two rows of records in memory.
func rowOf(limit int64) int {
	if limit <= 0 {
		return rowBytes
	}
	return int(min(max(limit/16, loadChunk), rowBytes))
}

// leastRow returns the least number of bytes of records that are loaded in
// rows.
func (k *keyspaces) leastRow() int { return min(loadLeast, k.drops.row) }

var (
	errFilled   = errors.New("flashdbm: records were put into the empty keyspace while it was loaded")
	errLoadLost = errors.New("flashdbm: the keyspace was dropped, renamed or replaced while it was loaded")
)

// loadRows loads records in rows if the keyspace is empty, or with LoadOptions.Replace. If the keyspace has records, or
// if there are few records to load, it does nothing and returns done false.
func loadRows(ctx context.Context, k *Keyspace, source *loadSource, opts LoadOptions) (done bool, err error) {
	return (&spaceLoad{db: k.db, name: k.name, opts: opts}).load(ctx, k, source)
}

func (l *spaceLoad) load(ctx context.Context, k *Keyspace, source *loadSource) (done bool, err error) {
	chunks, whole, err := source.row(k.db.drops.row)
	if err != nil {
		return false, err
	}
	size := 0
	for _, c := range chunks {
		size += len(c.bytes)
	}
	if !l.much && whole && size < k.db.leastRow() {
		source.unread(chunks)
		return false, nil
	}
	if done, err = l.begin(); !done || err != nil {
		source.unread(chunks)
		return done, err
	}
	loaded := false
	defer func() {
		k.db.drops.spare(l, nil)
		if !loaded {
			k.db.drops.left.Add(1)
			k.db.goOnDropping()
		}
	}()
	if err = l.rows(source, chunks, whole); err != nil {
		return true, err
	}
	switch err = k.db.UpdateContext(ctx, TxOptions{}, l.finish); {
	case errors.Is(err, errFilled):
		return true, l.putAll(ctx, k)
	case errors.Is(err, errLoadLost):
		return true, ErrConflict
	case err != nil:
		return true, err
	}
	loaded = true
	return true, k.db.Sync()
}

// loadSorted is loadRows for the records that a transaction has written to a keyspace. If done is true, the
// transaction must not be committed. The records of the transaction's snapshot are not loaded: the keyspace is empty
// or replaced by now.
func loadSorted(ctx context.Context, k *Keyspace, tx *Tx, opts LoadOptions) (done bool, err error) {
	var old []byte
	if !opts.Replace {
		old = tx.space.prefix
		switch empty, err := k.empty(); {
		case errors.Is(err, ErrNoKeyspace): // dropped or renamed: the commit will get a conflict
			return false, nil
		case !empty || err != nil:
			return false, err
		}
	}
	tx.inner.OwnOnly()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	source := startLoad(ctx, k.db.engine, reading(tx, cancel), k.db.drops.row)
	defer source.stop()
	l := &spaceLoad{db: k.db, name: k.name, opts: opts, much: true, old: old} // much: a transaction of Puts has read by now, and could conflict without need
	return l.load(ctx, k, source)
}

// reading yields the records that a transaction sees. An error is passed to cancel.
func reading(tx *Tx, cancel context.CancelCauseFunc) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		for k, v := range tx.All() {
			if !yield(k, v) {
				break
			}
		}
		if err := tx.Err(); err != nil {
			cancel(err)
		}
	}
}

// empty reports whether the keyspace has no records.
func (k *Keyspace) empty() (empty bool, err error) {
	err = k.View(func(tx *Tx) error {
		empty = isEmpty(tx)
		return tx.Err()
	})
	return empty, err
}

func isEmpty(tx *Tx) bool {
	c := tx.whole().Cursor()
	return !c.Seek(tx.space.low) || !tx.space.holds(c.Key())
}

// begin takes a number for the load. done is false if the keyspace is not to be
// loaded in rows.
func (l *spaceLoad) begin() (done bool, err error) {
	err = l.db.Update(func(tx *Tx) (err error) {
		done, err = l.take(tx)
		return err
	})
	if done = done && err == nil; !done {
		l.db.drops.spare(l, nil)
	}
	return done, err
}

// take is begin in a transaction.
func (l *spaceLoad) take(tx *Tx) (done bool, err error) {
	l.db.drops.spare(l, nil)
	if err := tx.hasSpaces(); err != nil {
		return false, err
	}
	old, err := tx.spaceNamed(l.name)
	switch {
	case l.opts.Replace:
		err = tx.mayNameSpace(l.name)
	case err != nil:
	case l.much && !bytes.Equal(old, l.old): // the transaction that collected the records has written to the old keyspace, and would conflict
		err = ErrConflict
	case !l.much && !isEmpty(tx.as(spaceOf(old))):
		return false, tx.Err()
	default:
		l.old = old
	}
	if err != nil {
		return false, err
	}
	if l.form, err = tx.look(spaceMark); err != nil {
		return false, err
	}
	l.form = bytes.Clone(l.form)
	l.stamp = tx.stamp
	if l.prefix, err = tx.nextSpace(); err != nil {
		return false, err
	}
	l.db.drops.spare(l, l.prefix)
	return true, tx.whole().Put(catalogKey(catalogDropped, l.prefix), []byte(l.name))
}

// rows writes all records. chunks are those of the first row.
func (l *spaceLoad) rows(source *loadSource, chunks []*loadedChunk, whole bool) error {
	var last []byte
	for n := int64(0); ; {
		row := make([][]mvcc.LoadRecord, len(chunks))
		for i, c := range chunks {
			c.list(source.gap, l.prefix)
			row[i] = c.records
			for j := range c.records {
				r := &c.records[j]
				if n++; n > 1 && bytes.Compare(last, r.Key) >= 0 {
					return fmt.Errorf("%w: record %d", ErrOrder, n)
				}
				if err := l.stored(r); err != nil {
					return err
				}
				last = r.Key
			}
		}
		if len(row) > 0 {
			if err := mvcc.LoadRow(l.db.engine, row); err != nil {
				return err
			}
			last = bytes.Clone(last)
			source.used(chunks)
		}
		if whole {
			return nil
		}
		var err error
		if chunks, whole, err = source.row(l.db.drops.row); err != nil {
			return err
		}
	}
}

// stored gives a value the form in which it is stored: see putValue.
func (l *spaceLoad) stored(r *mvcc.LoadRecord) error {
	switch {
	case !l.stamp.begins(r.Value):
		return nil
	case len(r.Value) > maxValue-stampedBytes:
		return ErrValueTooLarge
	}
	r.Value = append(l.stamp.head(nil, 0), r.Value...)
	return nil
}

// finish gives the name to what was loaded.
func (l *spaceLoad) finish(tx *Tx) error {
	if form, err := tx.look(spaceMark); err != nil {
		return err
	} else if !bytes.Equal(form, l.form) { // values are stored in another form now
		return errLoadLost
	}
	all, listed := tx.whole(), catalogKey(catalogDropped, l.prefix)
	if _, err := tx.look(listed); err != nil {
		return err
	}
	old, err := tx.spaceNamed(l.name)
	switch {
	case l.opts.Replace && errors.Is(err, ErrNoKeyspace):
	case !l.opts.Replace && (errors.Is(err, ErrNoKeyspace) || err == nil && !bytes.Equal(old, l.old)):
		return errLoadLost
	case err != nil:
		return err
	case !l.opts.Replace:
		in := tx.as(spaceOf(old))
		if !isEmpty(in) {
			return cmp.Or(tx.Err(), errFilled)
		}
		if err := in.DeleteRange(nil, nil); err != nil { // deletes nothing, but conflicts with any put
			return err
		}
		fallthrough
	default:
		if err := tx.DropKeyspace(l.name); err != nil {
			return err
		}
	}
	if err := all.Delete(listed); err != nil {
		return err
	}
	return all.Put(catalogKey(catalogName, []byte(l.name)), l.prefix)
}

// putAll puts the loaded records into a keyspace that is no longer empty, as loadTx would have done.
func (l *spaceLoad) putAll(ctx context.Context, k *Keyspace) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	return l.db.View(func(tx *Tx) error {
		source := startLoad(ctx, l.db.engine, reading(tx.as(spaceOf(l.prefix)), cancel), 0)
		defer source.stop()
		return loadTx(l.db, ctx, k, source, LoadOptions{Sorted: true})
	})
}
