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

// ErrOrder says that records came to Load with LoadOptions.Sorted that do not ascend.
var ErrOrder = btree.ErrOrder

// LoadOptions say what Load may take for granted.
type LoadOptions struct {
	// Sorted: the keys of the records ascend, bytewise, each once. They are then written as they come; else they are sorted first, in the
	// memory that write sets may take and in the file, and of several records of one key the last one counts.
	Sorted bool

	// Replace: the records take the place of all that the keyspace has, in the same step; of Keyspace.Load it need not be there. Who has asked for a
	// keyspace before that, to write to it, has lost, as where it was dropped.
	Replace bool
}

// Load puts all records, in one step: either all of them are in the database when it returns, and durable in every mode, or after an error,
// a crash or a kill none of them, and no space is lost.
//
// An empty database without keyspaces gets its tree from the leaves upwards, written once, from its beginning to its end: several times as fast as Puts. In
// one that has records, Load is one transaction of Puts, with all that is said of large ones.
//
// While an empty database is filled, other commits wait until Load ends; those of transactions that have read anything then lose with
// ErrConflict. Readers go on, and see nothing of it before it is whole. So records must not write to the database. It is run by a goroutine
// of its own, which stops before Load returns; a panic in it is passed on. Keys and values may be used again after each step. Where records
// cannot go on for an error, it cancels ctx, with the error as the cause, and ends: then nothing is loaded, and Load returns the cause.
//
// Errors: the cause of ctx, ErrOrder, ErrFull, ErrKeyTooLarge, ErrValueTooLarge, ErrReadOnly, ErrClosed, ErrFailed.
func (db *DB) Load(ctx context.Context, records iter.Seq2[[]byte, []byte], opts LoadOptions) (err error) {
	return loadInto(db, ctx, nil, records, opts)
}

// Load puts all records into the keyspace, all or nothing, in one transaction of Puts: see DB.Load. Other commits go on meanwhile; one that puts or
// deletes one of the keys, or drops the keyspace, has Load fail with ErrConflict. So may one of other keys: written keys are known by hashes, some of
// which are those of other keys, and of many records one or another is likely to be. A keyspace that nobody else writes, of a database that nobody
// else writes meanwhile, has no such conflicts.
//
// LoadOptions.Replace has them take the place of what the keyspace has. Where what is new is to be looked at before, load another keyspace, and have it
// take the place of the first by Tx.DropKeyspace and Tx.RenameKeyspace in one transaction.
func (k *Keyspace) Load(ctx context.Context, records iter.Seq2[[]byte, []byte], opts LoadOptions) error {
	return loadInto(k.db, ctx, k, records, opts)
}

// loadInto is Load into a keyspace; nil is the default one.
func loadInto(db *DB, ctx context.Context, space *Keyspace, records iter.Seq2[[]byte, []byte], opts LoadOptions) (err error) {
	if db.beside != nil {
		return ErrReadOnly
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	source := startLoad(ctx, records)
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
	return public(loadTx(db, ctx, space, source, opts))
}

// loadTx is Load by a transaction: one that is committed, or one whose write set, which is sorted, is what an empty database is built of.
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
			guardMark(in, r.Key)
			if err := putValue(in, r.Key, r.Value); err != nil {
				return err
			}
		}
	}
	if !opts.Sorted && space == nil && tx.Written() > 0 {
		c := tx.Cursor()
		defer c.Release()
		empty, err := db.engine.LoadEmpty(ctx, sortedSource(c))
		if empty || err != nil {
			return err
		}
	}
	ended = true
	err = tx.Commit()
	in.committed(err)
	return err
}

// loadTarget returns the transaction as one of the keyspace that is loaded, nil for the default one, emptied if that is asked for.
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

// loadChunk is how many bytes of records are handed over at once, about.
const loadChunk = 256 << 10

// sortedSource returns the records of a cursor.
func sortedSource(c *mvcc.Cursor) mvcc.LoadSource {
	records := make([]mvcc.LoadRecord, 0, 1024)
	return func() ([]mvcc.LoadRecord, error) {
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

// loadSource runs an iterator in a goroutine of its own, which copies the records.
type loadSource struct {
	ctx      context.Context
	full     chan *loadedChunk // closed at the end
	empty    chan *loadedChunk
	quit     chan struct{} // closed by stop
	now      *loadedChunk  // handed out last
	err      error         // of a record; written before full is closed, like the others
	panicked any
	whole    bool // the iterator came to its end
}

// loadedChunk has records one behind the other.
type loadedChunk struct {
	bytes   []byte
	lengths []loadLengths
	records []mvcc.LoadRecord
}

type loadLengths struct{ key, value int }

var (
	errLoadEnded  = errors.New("flashdbm: the records of Load ended by runtime.Goexit")
	errLoadPanics = errors.New("flashdbm: the records of Load panicked")
)

const loadChunks = 4 // under way

func startLoad(ctx context.Context, records iter.Seq2[[]byte, []byte]) *loadSource {
	s := &loadSource{ctx: ctx, full: make(chan *loadedChunk, loadChunks), empty: make(chan *loadedChunk, loadChunks), quit: make(chan struct{})}
	for range loadChunks {
		s.empty <- &loadedChunk{}
	}
	go s.run(records)
	return s
}

func (s *loadSource) run(records iter.Seq2[[]byte, []byte]) {
	defer close(s.full)
	defer func() {
		if !s.whole && s.err == nil {
			if s.panicked = recover(); s.panicked == nil {
				s.err = errLoadEnded
			} else {
				s.err = errLoadPanics
			}
		}
	}()
	c := s.take()
	for key, value := range records {
		if c == nil {
			break
		}
		if s.err = checkSizes(key, value); s.err != nil {
			break
		}
		c.bytes = append(append(c.bytes, key...), value...)
		c.lengths = append(c.lengths, loadLengths{len(key), len(value)})
		if len(c.bytes) >= loadChunk {
			if !s.give(c) {
				break
			}
			c = s.take()
		}
	}
	if s.err == nil && c != nil && len(c.lengths) > 0 {
		s.give(c)
	}
	s.whole = true
}

// take returns a chunk to be filled, nil if nobody wants it any more.
func (s *loadSource) take() *loadedChunk {
	select {
	case c := <-s.empty:
		c.bytes, c.lengths, c.records = c.bytes[:0], c.lengths[:0], c.records[:0]
		return c
	case <-s.quit:
		return nil
	}
}

func (s *loadSource) give(c *loadedChunk) bool {
	at := 0
	for _, n := range c.lengths {
		c.records = append(c.records, mvcc.LoadRecord{Key: c.bytes[at : at+n.key : at+n.key], Value: c.bytes[at+n.key : at+n.key+n.value : at+n.key+n.value]})
		at += n.key + n.value
	}
	select {
	case s.full <- c:
		return true
	case <-s.quit:
		return false
	}
}

// next is an mvcc.LoadSource.
func (s *loadSource) next() ([]mvcc.LoadRecord, error) {
	if s.now != nil {
		s.empty <- s.now
		s.now = nil
	}
	select {
	case c, ok := <-s.full:
		if !ok {
			return nil, s.err
		}
		s.now = c
		return c.records, nil
	case <-s.ctx.Done(): // others wait for Load, perhaps longer than for the records
		return nil, context.Cause(s.ctx)
	}
}

// stop returns once the iterator has ended.
func (s *loadSource) stop() {
	close(s.quit)
	for range s.full {
	}
}
