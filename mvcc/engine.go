package mvcc

import (
	"errors"
	"sync"
	"time"

	"flashdbm/internal/btree"
	"flashdbm/internal/event"
	"flashdbm/lockfree"
	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
)

// Durability says when a commit returns.
type Durability uint8

const (
	Durable      Durability = iota // synced to the device: survives a power cut
	WriteThrough                   // handed to the operating system: survives the process
	Buffered                       // in memory; written and synced within FlushInterval
)

// MaxValue is the largest value in bytes: 4 GiB.
const MaxValue = btree.MaxValue

// Options configure an engine.
type Options struct {
	Store         logstore.Options
	Durability    Durability
	FlushInterval time.Duration     // Buffered: longest time that a commit is in memory only, before it is written and synced
	MemoryLimit   int64             // bytes for versions in memory and write sets
	RedoLimit     int64             // bytes of log that Open may have to redo, above which a flush is due
	Leases        LeaseOptions      // how transactions hold their snapshots
	Events        *event.Hub        // receives events; nil for none
	CallbackError func(error) error // what functions of asynchronous commits get for an error. Default: the error
	Manual        bool              // no background goroutines: tests call each step of background work themselves
	Step          func(StepPoint)   // tests: called between the steps of background work
	Shares        MemoryShares      // tests: shares of MemoryLimit
	Thresholds                      // tests
}

// Thresholds are set lower in tests, so that little data takes every path. 0 stands for the default, which follows
// "default" below.
type Thresholds struct {
	RedoBehind int   // fewest records that are redone in the background after Open. Default 8,192; never if Manual
	PartBytes  int64 // dirty bytes that one part of a flush should cover, whatever else is due. Default 4 MiB
	// BackgroundOps is the fewest memtable entries that are merged in the background. Default 32,768, or more (see
	// backgroundFrom); never if Manual.
	BackgroundOps int
	// Lag is how many bytes of redo any flush except those of Close may leave behind its base. Default: only flushes
	// of background work may do so, while commits go on.
	Lag        int64
	DeferOps   int   // fewest ops of a synced batch that may stay unmerged for longer. Default 256
	ScanOften  int   // scans of a leaf's values out of key order, after which the values are put in order. Default 8; never if Manual
	KeepInline bool  // values that fit into their leaf are stored in it, whatever their length: for tests of large trees
	CutFrom    int64 // fewest records of a range that is cut, not deleted one by one. Default 4,097
	SyncBeside bool  // groups of several committers are synced while the next one is made, however long a sync takes
	StepPages  int   // most pages of a step of background work
	LastSlots  int   // of the table hash(key) -> last Seq; a power of two. Default 2 MiB worth of them
}

// MemoryShares split MemoryLimit, in bytes; 0 stands for the default share.
type MemoryShares struct {
	WriteSets int64 // write sets in memory, above which the larger ones are spilled. Default a quarter
	Keys      int64 // keys of commits since a backup. Default a 16th; below 0 none
	Batch     int64 // versions in memory, above which a large batch writes pages early. Default half

	Versions *btree.MemoryPool // where versions get their memory from and return it to; nil: the system
}

// Errors of this package, for errors.Is.
var (
	ErrConflict       = errors.New("flashdbm: another transaction has changed what this one depends on; run it again")
	ErrSnapshotTooOld = logstore.ErrTooOld
	ErrClosed         = errors.New("flashdbm: database is closed")
)

const (
	lastSlots  = 1 << 18 // of the table hash(key) -> last Seq, by default: 2 MiB
	recentKeys = 1 << 17 // keys written lately, which tell those apart that share a slot: 1 MiB
)

// Engine runs transactions over the pages of one file. It wires its parts together. Each part has its own state and
// uses only parts that are listed before it, so no call goes upwards:
//
//	file         the options, the log, and the pages of the tree
//	marks        the watermarks: up to which batch updates and Views read
//	readers      the registry of snapshots, and who else uses the engine
//	token        the right to append to the log and to change the tree
//	room         pages of the file that are reserved for what is dirty
//	log          redo on its way to the log
//	tree         memtables, merges, versions of the tree
//	pressure     how much waits to be written, and what background work is due
//	checkpoints  checkpoints, and the space that goes back to the file system after them
//	flusher      flushes and folds
//	cleaner      moves live pages and values out of segments that are mostly dead
//	maintenance  decides when to do which background work
//	admission    backpressure: how long a commit waits for memory, room and redo before it is resolved
//	committer    the commit list, and what the leader does with it
//	recovery     from the log to a tree and memtables
//
// Order of locks, outermost first: maintenance.compacting, the gate's right to be alone, checkpoints.mu, the token,
// token.syncing, the lock of marks, the lock of the line of commits (line.mu), then those of the store (growing, syncing,
// space). Nobody who holds the lock of marks waits for the token.
type Engine struct {
	file
	marks       watermarks
	readers     readers
	token       token
	room        room
	log         redoLog
	tree        tree
	pressure    pressure
	checkpoints checkpointer
	flusher     flusher
	cleaner     cleaner
	maintenance maintenance
	admission   admission
	committer   committer
	recovery    recovery

	opened  logstore.Addr // length of the file in pages when it was opened
	glances *sync.Pool    // of *Tx
}

type commitNode = lockfree.Node[pushedCommit]

// Open opens or creates the database file and recovers it.
func Open(fs vfs.FS, path string, opts Options) (*Engine, error) {
	begin := time.Now()
	opts.Store.CheckNode, opts.Store.Synced = btree.CheckPage, opts.Durability == Durable
	opts.Store.Growing = opts.Durability == WriteThrough
	store, rec, err := logstore.Open(fs, path, opts.Store)
	if err != nil {
		return nil, err
	}
	store.Tell(opts.Events)
	e := assemble(&opts, store)
	if err := e.recovery.recover(rec); err != nil {
		if e.pages != nil {
			e.pages.Close()
		}
		store.Close()
		return nil, err
	}
	if e.recovery.stats.Records > 0 {
		e.committer.changed.unsure = store.LastGroup()
	}
	e.recovery.stats.Duration = time.Since(begin)
	e.known.tell(e.recovery.stats)
	// An engine beside a writer recovers again and again, and may meet a group that is being written.
	if r := &e.recovery.stats; !r.Created && !opts.Store.Beside {
		e.post(event.Event{Kind: event.Recovery, Took: r.Duration, Count: r.Records, Dropped: r.DroppedTail})
	}
	e.opened = store.End()
	due := e.tree.redoing() || e.pressure.flushDue()
	e.token.shared = !opts.Manual
	switch {
	case opts.Manual:
	case !opts.Store.ReadOnly:
		e.maintenance.start(due)
	case e.tree.redoing():
		e.recovery.redone = make(chan struct{})
		go func() {
			defer close(e.recovery.redone)
			_ = e.tree.mergeAll() // an error has poisoned the store
		}()
	}
	return e, nil
}

// Close refuses new transactions, waits for open ones, writes what is in memory, checkpoints and closes the file. If
// the engine has failed, Close returns that error. A second call does nothing.
//
// No user is missed. Every user of the engine is in the registry of snapshots, or counted in readers.active,
// readers.unpinned, readers.places or readers.calls. It first makes itself known there and then reads readers.closed;
// Close first sets closed and then looks there. So at least one of the two sees the other.
func (e *Engine) Close() error {
	if !e.readers.closed.CompareAndSwap(false, true) {
		return nil
	}
	e.readers.awaitUsers()
	e.readers.ending.Store(true)
	if e.recovery.redone != nil {
		<-e.recovery.redone
	}
	e.committer.async.stop()
	e.maintenance.stop()
	e.token.take()
	e.tree.finishMerge()
	e.token.pass(true)
	e.token.shared = false
	err := e.Failed()
	if err == nil && !e.opts.Store.ReadOnly {
		if err = e.maintenance.closeClean(e.opened); err == nil {
			err = e.Failed() // of something that may fail without harm, such as giving space back
		}
	}
	e.pages.Close()
	if cerr := e.store.Close(); err == nil {
		err = cerr
	}
	emptyPools(e)
	return err
}

// Use calls fn and keeps the engine open until fn returns. It keeps nothing else: a Checkpoint that counted as a reader
// held what its own flushes had made dead. ErrClosed if the engine is closed already.
func (e *Engine) Use(fn func() error) error {
	e.readers.calls.Add(1)
	defer e.readers.calls.Add(-1)
	if e.readers.closed.Load() {
		return ErrClosed
	}
	return fn()
}

// Sync makes all commits that have returned durable, including those of CommitAsync that have returned and are not
// completed yet.
func (e *Engine) Sync() error {
	if e.opts.Store.ReadOnly {
		return nil
	}
	e.committer.commitReturned()
	return e.log.syncAwaited()
}
