package dbm

import (
	"bytes"
	"errors"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"flashdbm/internal/beside"
	"flashdbm/internal/event"
	"flashdbm/internal/keyspace"
	"flashdbm/internal/opener"
	"flashdbm/logstore/vfs"
	"flashdbm/mvcc"
)

// DB is an open database. Any number of goroutines may use it at once.
type DB struct {
	engine *mvcc.Engine     // nil if beside is set
	beside *beside.Follower // set if the database was opened with Options.Beside, otherwise nil
	events *event.Hub       // nil in tests that open a database below Open
	closed atomic.Bool      // Close was called
	keyspaces
	expiry
}

// Open opens the database file at path; nil options are the defaults. A missing file is created, a file of length
// zero is an empty database, and a symlink to an existing file is followed. If the directory of a new file cannot
// be synced, as on some network file systems, the file is created all the same, and Events gets an event: until
// the system has written the directory, a power cut may lose the file's name, and with it all commits. Errors:
// ErrLocked, ErrCorrupt, ErrFormat, ErrFull, fs.ErrNotExist for a read-only open, and errors of the system.
func Open(path string, opts *Options) (*DB, error) { return open(vfs.OS(), path, opts) }

// OpenMemory opens an empty database that no other process sees and that vanishes with Close, or with the process:
// for tests and caches. It behaves like a database in a file, with the same options; MaxFileSize bounds its size.
// ReadOnly and Beside are refused, since a new database has nothing to read. On Linux it is kept in memory, or in
// swap, and nowhere else, so Durable commits promise nothing there; on other systems it is a temporary file without
// a name.
func OpenMemory(opts *Options) (*DB, error) {
	if opts != nil && (opts.ReadOnly || opts.Beside) {
		return nil, errors.New("flashdbm: OpenMemory with Options.ReadOnly or Beside: there is nothing to read in a new database")
	}
	return open(vfs.Unnamed(), "memory", opts)
}

func init() {
	opener.On = func(fs vfs.FS, path string, opts any) (any, error) { return open(fs, path, opts.(*Options)) }
}

func open(fs vfs.FS, path string, opts *Options) (*DB, error) {
	if err := opts.check(); err != nil {
		return nil, err
	}
	begin, o := time.Now(), opts.engine()
	o.Events = eventsOf(path, opts)
	openAs := openEngine
	if opts != nil && opts.Beside {
		openAs = openBeside
	}
	db, err := openAs(fs, path, o)
	if err != nil {
		if errors.Is(err, ErrCorrupt) {
			o.Events.Post(event.Event{Kind: event.Corruption, Err: err})
		}
		return nil, err
	}
	if err := db.keyspaces.ready(); err != nil {
		return nil, errors.Join(err, db.close())
	}
	o.Events.Post(event.Event{Kind: event.Open, Took: time.Since(begin)})
	return db, nil
}

func openEngine(fs vfs.FS, path string, opts mvcc.Options) (*DB, error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	engine, err := mvcc.Open(fs, path, opts)
	if err != nil {
		return nil, public(err)
	}
	db := &DB{engine: engine, events: opts.Events}
	db.keyspaces.db = db
	db.drops.row = rowOf(opts.MemoryLimit)
	initExpiry(db)
	return db, nil
}

// Close refuses new transactions, waits for open ones, checkpoints and closes the file. A second call does nothing
// and returns nil, even while the first one still waits. Close waits for ever if a transaction from Begin is in use
// and is never ended, or if Close is called in the function of View or Update. It waits at most one second until
// Options.Events has taken the events that are left.
func (db *DB) Close() error {
	if !db.closed.CompareAndSwap(false, true) {
		return nil
	}
	err := db.close()
	db.events.Post(event.Event{Kind: event.Close, Err: err})
	db.events.Wait(closePatience)
	return err
}

func (db *DB) close() error {
	if db.beside != nil {
		return public(db.beside.Close())
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	db.drops.stop()
	db.stopExpiring()
	return public(db.engine.Close())
}

// Path returns the path that was passed to Open.
func (db *DB) Path() string {
	if db.beside != nil {
		return db.beside.Path()
	}
	return db.engine.Path()
}

// guard is deferred by functions that may read the mapping. A memory fault there, because somebody truncated the
// file, becomes an error, and the handle fails: further writes would go to a file that has lost something.
func guard(e *mvcc.Engine, err *error) {
	if r := recover(); r != nil {
		*err = failed(e, r)
	}
}

// failed is what guard makes of a recovered panic: the error of a memory fault, else the panic again.
func failed(e *mvcc.Engine, r any) error {
	fault, ok := e.AsFault(r)
	if !ok {
		panic(r)
	}
	return e.Fail(fault)
}

// Get returns a copy of the value of key, or ErrNotFound. The copy is its only allocation.
func (db *DB) Get(key []byte) (value []byte, err error) {
	if err := checkSizes(key, nil); err != nil {
		return nil, err
	}
	if keyspace.Shifted(key) {
		err = db.View(func(tx *Tx) error {
			v, err := tx.Get(key)
			value = bytes.Clone(v)
			return err
		})
		return value, err
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer guard(db.engine, &err)
	var ok bool
	if db.beside != nil {
		value, ok, err = getBeside(db, key)
	} else if value, ok, err = db.engine.GetCopy(key); ok {
		value, ok = db.expiry.shown(value)
	}
	switch {
	case err != nil:
		return nil, db.public(err)
	case !ok:
		return nil, ErrNotFound
	}
	return value, nil
}

// Prefetch makes the system read the pages that Get will need for the keys, as far as they are not in the system's
// cache, in parallel. It returns when the leaves of the tree have been read and the reads of the values have begun.
// Prefetch pays for several keys of a file that is larger than memory, because calls of Get read one page after the
// other. It has no effect on the results of other calls.
func (db *DB) Prefetch(keys [][]byte) (err error) {
	if db.beside != nil { // a reader beside a writer copies pages into its own memory
		return nil
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer guard(db.engine, &err)
	stored := keys
	for i, key := range keys {
		if keyspace.Shifted(key) {
			if &stored[0] == &keys[0] {
				stored = slices.Clone(keys)
			}
			stored[i] = keyspace.In(nil, key)
		}
	}
	return db.public(mvcc.Prefetch(db.engine, stored))
}

// Has reports whether key has a value.
func (db *DB) Has(key []byte) (ok bool, err error) {
	if err := checkSizes(key, nil); err != nil {
		return false, err
	}
	if keyspace.Shifted(key) || db.expiry.stamp.Load() != 0 {
		err = db.View(func(tx *Tx) error {
			ok, err = tx.Has(key)
			return err
		})
		return ok, err
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer guard(db.engine, &err)
	if db.beside != nil {
		ok, err = hasBeside(db, key)
	} else {
		ok, err = db.engine.Exists(key)
	}
	return ok, db.public(err)
}

// Put sets the value of key in a transaction of its own. It never conflicts. Errors: those of Tx.Put and Commit.
func (db *DB) Put(key, value []byte) error {
	if err := checkSizes(key, value); err != nil {
		return err
	}
	return db.write(key, value, false)
}

// Delete removes key in a transaction of its own; an absent key is no error.
func (db *DB) Delete(key []byte) error {
	if err := checkSizes(key, nil); err != nil {
		return err
	}
	return db.write(key, nil, true)
}

// writeOne puts a record, or removes it.
func writeOne(tx *Tx, key, value []byte, remove bool) error {
	if remove {
		return tx.Delete(key)
	}
	return tx.Put(key, value)
}

// DeleteRange is Tx.DeleteRange in a transaction of its own, run again after a conflict: see Update.
func (db *DB) DeleteRange(from, to []byte) error {
	return db.Update(func(tx *Tx) error { return tx.DeleteRange(from, to) })
}

func (db *DB) write(key, value []byte, remove bool) (err error) {
	if db.beside != nil {
		return ErrReadOnly
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer guard(db.engine, &err)
	if keyspace.Shifted(key) || db.expiry.begins(value) {
		return db.Update(func(tx *Tx) error { return writeOne(tx, key, value, remove) })
	}
	db.goOnDropping()
	db.expires(0)
	return public(db.engine.WriteOne(key, value, remove))
}

// Len returns the number of records; in a database with keyspaces, those of the default keyspace. For its cost see
// Tx.Len.
func (db *DB) Len() (n int64, err error) {
	if db.beside != nil || mvcc.Keyspaces(db.engine) {
		err = db.View(func(tx *Tx) error {
			n, err = tx.Len()
			return err
		})
		return n, err
	}
	return db.engine.Len()
}

// Sync makes durable all commits that have returned, of all goroutines and in every durability mode, including
// those of CommitAsync and PutAsync. In Buffered mode it lets a program that commits often get a guarantee from
// time to time:
//
//   - When Sync returns nil, every commit that had returned before the call survives a power cut. A commit that
//     returns during the call may or may not survive.
//   - What survives a crash is always a prefix of the commits, in their order: if a commit after the last Sync
//     survives, so do all commits before it.
//   - Other commits go on while Sync waits for the device. Concurrent calls share one sync; a call that finds
//     nothing new does not sync.
//   - After an error the handle has failed, see ErrFailed. What was committed since the last Sync that returned nil
//     may be lost; what was committed before that Sync is not. Calling Sync again does not help; opening the file
//     again shows which commits survived.
func (db *DB) Sync() error { return db.maintain((*mvcc.Engine).Sync) }

// Checkpoint flushes all changed pages and moves the position from which the next Open reads the log.
func (db *DB) Checkpoint() error { return db.maintain((*mvcc.Engine).Checkpoint) }

// opened returns nil if the database is open, otherwise ErrClosed.
func (db *DB) opened() error { return db.maintain(func(*mvcc.Engine) error { return nil }) }

func (db *DB) maintain(fn func(*mvcc.Engine) error) (err error) {
	if db.beside != nil {
		return db.public(db.beside.Use(fn))
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer guard(db.engine, &err)
	return db.public(db.engine.Use(func() error { return fn(db.engine) }))
}

func (db *DB) begin(o mvcc.TxOptions) (*mvcc.Tx, error) {
	if db.beside != nil {
		return db.beside.Begin(o)
	}
	return db.engine.Begin(o)
}
