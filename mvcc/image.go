package mvcc

import (
	"context"
	"fmt"
	"io"
	"time"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
	"flashdbm/override"
)

// WriteImage writes a database file with the records that the transaction sees to w, from the first byte to the last:
// see logstore.ImagePlan. It goes through the tree twice, to plan and to write, and once more if there are values too
// large for a run. The plan reads no values. expect, if not nil, is called with the length of the file before
// anything is written.
//
// The transaction is read-only, and the caller ends it. An error of w is returned.
func (tx *Tx) WriteImage(ctx context.Context, w io.Writer, expect func(bytes int64)) (err error) {
	defer tx.e.guard(&err)
	t := imageWalk{ctx: ctx, tx: tx, inline: make([]byte, btree.MaxInline)}
	if err := t.makePlan(); err != nil {
		return err
	}
	t.image = t.plan.Image(restingWriter{&t, w}, override.ImageTableSize)
	if expect != nil {
		expect(t.image.Bytes())
	}
	if t.large > 0 {
		if err := t.writeLarge(); err != nil {
			return err
		}
	}
	if err := t.writeTree(); err != nil {
		return err
	}
	return t.image.Finish(override.ImageTable(t.records, t.root))
}

// imageWalk goes through the records of a transaction.
type imageWalk struct {
	ctx     context.Context
	tx      *Tx
	plan    *logstore.ImagePlan
	image   *logstore.Image
	inline  []byte // stands for a value that is only counted
	large   int    // number of values in extents
	lists   [][]logstore.Extent
	records int64
	root    logstore.Addr

	rested  time.Time // when it rested last
	commits uint64    // commits so far, as of that time
}

// askEvery is how many records a walk visits between two looks whether it should go on.
const askEvery = 256

// each calls f for each record, with the cursor on it.
func (t *imageWalk) each(f func(c *Cursor, key []byte, length int64) error) error {
	c := t.tx.Cursor()
	defer c.Release()
	for n := 0; c.Next(); n++ {
		if n%askEvery == 0 {
			if err := t.ctx.Err(); err != nil {
				return err
			}
			t.rest()
		}
		key := c.Key()
		if err := c.Err(); err != nil {
			return err
		}
		if err := f(c, key, c.tree.found().length()); err != nil {
			return err
		}
	}
	return c.Err()
}

// A walk that keeps a processor busy delays commits if there are few processors. So while there are commits, it rests
// four times as long as it has worked, and works for a short time only: a committer that wakes up after a sync waits
// for it that long. With 500 µs of work and rests twice as long a backup was no faster, because most short stretches
// of work meet no commit; rests nine times as long halve its speed. A commit that is under way may be waiting for this
// very processor, so that none is completed meanwhile: when only completed ones counted, a walk went on for 4 ms while the
// new holder of the token waited behind background work on the other processor.
const (
	restEvery = 150 * time.Microsecond
	restShare = 4
	restMost  = 4 * time.Millisecond
)

// rest lets commits through.
func (t *imageWalk) rest() {
	worked := time.Since(t.rested)
	if worked < restEvery {
		return
	}
	if n := t.tx.e.known.commits.Load(); n != t.commits || t.tx.e.readers.active.Load() > 0 {
		t.commits = n
		time.Sleep(min(restShare*worked, restMost))
	}
	t.rested = time.Now()
}

// restingWriter passes what is written on in small pieces, and lets the walk rest in between: an image comes a segment
// at a time, and copies and a checksum of that take a millisecond.
type restingWriter struct {
	walk *imageWalk
	w    io.Writer
}

const restBytes = 64 << 10

func (r restingWriter) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		m, werr := r.w.Write(b[n:min(n+restBytes, len(b))])
		n, err = n+m, werr
		r.walk.rest()
	}
	return n, err
}

// inRun reports whether a value, after its key if that is long, fits into a run of the image, whose segments are as
// large as the database's.
func (t *imageWalk) inRun(key []byte, length int64) bool {
	return length+int64(btree.RunKeyLen(key)) <= t.tx.e.store.MaxRun()
}

// makePlan goes through the tree to find out what the image takes.
func (t *imageWalk) makePlan() error {
	t.plan = logstore.NewImagePlan(t.tx.e.store.SegmentPages())
	if KeyspacesOf(t.tx) {
		t.plan.Keyspaces()
	}
	b := btree.NewBuilder((*planSink)(t), true)
	err := t.each(func(c *Cursor, key []byte, length int64) error {
		op := btree.Op{Key: key}
		long := int64(btree.RunKeyLen(key))
		switch {
		case length <= btree.MaxInline && btree.FitsInline(len(key), int(length)):
			op.Value = t.inline[:length]
			return b.Add(&op)
		case t.inRun(key, length):
			op.Ref = &btree.Ref{ValueLen: uint64(length), KeyLen: uint32(long), Kind: btree.Run}
			if err := t.plan.Run(long + length); err != nil {
				return err
			}
		default:
			t.large++
			op.Ref = &btree.Ref{ValueLen: uint64(length), KeyLen: uint32(long), Kind: btree.Extents}
			if err := t.plan.Large(long, length); err != nil {
				return err
			}
		}
		return b.Add(&op)
	})
	if err == nil {
		err = b.Finish()
	}
	t.records = b.Records()
	return err
}

// planSink counts the pages of the tree.
type planSink imageWalk

func (t *planSink) Page(bool) (btree.PageID, []byte, error) {
	t.plan.Page()
	return 1, nil, nil
}

// writeLarge writes the values that are stored in extents.
func (t *imageWalk) writeLarge() error {
	return t.each(func(c *Cursor, key []byte, length int64) error {
		if t.inRun(key, length) {
			return nil
		}
		r, n, err := c.ValueReader()
		if err != nil {
			return err
		}
		extents, err := t.image.Large(r, n, int64(btree.RunKeyLen(key)))
		if err != nil {
			return err
		}
		t.lists = append(t.lists, extents)
		return nil
	})
}

// writeTree writes the tree and the runs.
func (t *imageWalk) writeTree() error {
	b := btree.NewBuilder((*imageSink)(t), true)
	err := t.each(func(c *Cursor, key []byte, length int64) error {
		op := btree.Op{Key: key}
		ref := btree.Ref{ValueLen: uint64(length), KeyLen: btree.RunKeyLen(key), Kind: btree.Run}
		long := key[:ref.KeyLen]
		if !t.inRun(key, length) {
			if len(t.lists) == 0 {
				return fmt.Errorf("%w: more large values than before", logstore.ErrImage)
			}
			a, err := t.image.List(long, t.lists[0])
			if err != nil {
				return err
			}
			t.lists = t.lists[1:]
			ref.ID, ref.Kind, op.Ref = a, btree.Extents, &ref
			return b.Add(&op)
		}
		value, err := t.tx.foundValue(c.tree.found()) // not through the cursor, which counts scans of values
		if err != nil {
			return err
		}
		if btree.FitsInline(len(key), len(value)) {
			op.Value = value
			return b.Add(&op)
		}
		if ref.ID, err = t.image.Run(long, value); err != nil {
			return err
		}
		op.Ref = &ref
		return b.Add(&op)
	})
	if err == nil {
		err = b.Finish()
	}
	return err
}

// imageSink writes the pages of the tree.
type imageSink imageWalk

func (t *imageSink) Page(root bool) (btree.PageID, []byte, error) {
	name := btree.PageID(0)
	if root {
		name = override.Root
	}
	a, body, err := t.image.Tree(name)
	if root {
		t.root = a
	}
	return a, body, err
}
