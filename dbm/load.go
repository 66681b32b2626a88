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

// LoadOptions say what Load may assume about the records, and whether they replace others.
type LoadOptions struct {
	// Sorted: the keys ascend strictly, bytewise. Records are then written as they come. Otherwise they are sorted
	// first, in the memory allowed for write sets and in the file, and of several records with one key the last one
	// counts.
	Sorted bool

	// Replace: the records replace everything in the keyspace, in the same step; the keyspace of Keyspace.Load need
	// not exist. Other transactions that asked for the keyspace before and want to write to it conflict, as if it
	// had been dropped. Load itself conflicts if any keyspace is created meanwhile.
	Replace bool
}

// Load puts all records in one step. When it returns nil, all of them are in the database and durable, whatever the
// Durability. After an error, a crash or a kill none of them is, and no space is lost.
//
// In an empty database without keyspaces, Load builds the tree from the leaves upwards and writes it once,
// sequentially: several times as fast as Puts. In a database that has records, Load is one transaction of Puts,
// with the costs of a large one.
//
// While an empty database is filled, other commits wait until Load ends, and those of transactions that have read
// anything then fail with ErrConflict. So records must not write to the database. Readers go on, and see nothing of
// the load before it is complete.
//
// records runs in a goroutine of its own, which stops before Load returns; a panic in it is passed on. Keys and
// values may be reused after yield returns. If records cannot go on because of an error, it should cancel ctx with
// the error as the cause and return: then nothing is loaded, and Load returns the cause.
//
// Errors: the cause of ctx, ErrOrder, ErrFull, ErrKeyTooLarge, ErrValueTooLarge, ErrReadOnly, ErrClosed, ErrFailed.
func (db *DB) Load(ctx context.Context, records iter.Seq2[[]byte, []byte], opts LoadOptions) (err error) {
	return loadInto(db, ctx, nil, records, opts)
}

// Load puts all records into the keyspace, all or nothing, in one transaction of Puts: see DB.Load. Other commits
// go on meanwhile, and Load overwrites what they put under its keys, as Puts do. It fails with ErrConflict only if
// the keyspace is dropped, renamed, or loaded with Replace meanwhile.
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

// loadChunk is about how many bytes of records are passed from one goroutine to the other at once.
const loadChunk = 256 << 10

// sortedSource returns the records of a cursor as an mvcc.LoadSource.
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

// loadSource runs an iterator in a goroutine of its own, which copies the records into chunks. next returns the
// chunks to the loader.
type loadSource struct {
	ctx      context.Context
	full     chan *loadedChunk // closed by the goroutine when it ends
	empty    chan *loadedChunk
	quit     chan struct{} // closed by stop
	now      *loadedChunk  // the chunk that next returned last, reused by its next call
	err      error         // why the iterator ended early; like the fields below, written before full is closed and read after
	panicked any
	whole    bool // the iterator has returned
}

// loadedChunk is a list of records whose keys and values lie in bytes, one behind the other.
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

const loadChunks = 4 // chunks in all: being filled, waiting in full, or with the loader

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

// take returns a chunk to be filled, or nil after stop.
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

// next is the mvcc.LoadSource. A chunk is valid until the next call.
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
	case <-s.ctx.Done(): // other commits wait for Load, perhaps longer than the iterator takes to notice ctx
		return nil, context.Cause(s.ctx)
	}
}

// stop makes the goroutine end, and returns when it has ended.
func (s *loadSource) stop() {
	close(s.quit)
	for range s.full {
	}
}
