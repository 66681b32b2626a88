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
	Durable      Durability = iota // synced: survives a power cut
	WriteThrough                   // with the system: survives the process
	Buffered                       // in memory, written and synced within FlushInterval
)

// MaxValue is the largest value in bytes: 4 GiB.
const MaxValue = btree.MaxValue

// Options configure an engine.
type Options struct {
	Store         logstore.Options
	Durability    Durability
	FlushInterval time.Duration   // Buffered: longest time that a commit is in memory only
	MemoryLimit   int64           // bytes for versions in memory and write sets
	RedoLimit     int64           // bytes of log to redo at open before a flush is due
	Leases        LeaseOptions    // how transactions hold their snapshots
	Events        *event.Hub      // nil, or told what happens
	Manual        bool            // no background goroutine: tests step background work themselves
	Step          func(StepPoint) // tests: called between the steps of background work
	StepPages     int             // tests: most pages of such a step; 0 = as it suits
	Shares        MemoryShares    // tests: parts of MemoryLimit
	Thresholds                    // tests
}

// Thresholds are lower in tests, so that little data takes every path. 0 = as it suits.
type Thresholds struct {
	RedoBehind int   // least records that are redone behind Open: else 8,192, and with Manual none
	PartBytes  int64 // of dirty pages that a part of a flush is worth, whatever else has to be written with it: else 4 MiB
	// BackgroundOps are the least entries that the tree lacks and that are merged in the background: else 32,768, and with Manual none.
	BackgroundOps int
	Lag           int64 // bytes of redo that any flush may leave behind its base, but for those of Close: else those of background work alone, while commits go on
	DeferOps      int   // least ops of a synced batch that the tree may lack for longer: else 256
	ScanOften     int   // scans of a leaf's values out of order, behind which these are put in order: else 8, and with Manual none
	KeepInline    bool  // values that fit their leaf are in it, whatever their length: for what is about large trees
	CutFrom       int64 // least records of a range that is cut: else 4,097
	SyncBeside    bool  // groups of several committers are synced beside the next one, whatever the device takes for that
	LastSlots     int   // of the table hash(key) -> last Seq, a power of two: else 2 MiB of them
}

// MemoryShares say where memory goes: parts of MemoryLimit in bytes, of which 0 is the default of each, and whose it is.
type MemoryShares struct {
	WriteSets int64 // in memory, above which the larger ones are spilled: a quarter
	Batch     int64 // of versions, above which a large batch writes pages early: half

	Versions *btree.MemoryPool // that versions get their memory from and leave it to; nil: the system
}

// Sentinels of this layer, for errors.Is.
var (
	ErrConflict       = errors.New("flashdbm: another transaction has changed what this one depends on; run it again")
	ErrSnapshotTooOld = logstore.ErrTooOld
	ErrClosed         = errors.New("flashdbm: database is closed")
)

const lastSlots = 1 << 18 // of the table hash(key) -> last Seq, by default: 2 MiB

// Engine runs transactions over the pages of one file. It wires the parts together, each of which has its own state, and uses only those
// that are listed before it:
//
//	file         the options, the log, and the pages of the tree
//	marks        up to which commit updates and views read
//	readers      who is in the registry of snapshots, and who else uses the engine
//	token        the right to append to the log and to change the tree
//	room         pages of the file that are reserved for what is dirty
//	log          redo on its way to the log
//	tree         memtables, merges, versions of the tree
//	pressure     how much waits to be written, and what is due
//	checkpoints  checkpoints, and space that goes back to the file system behind them
//	flusher      flushes and folds
//	cleaner      moves what lives out of segments that are mostly dead
//	maintenance  when to do which of that
//	admission    how long a commit waits for memory, room and redo before it is resolved
//	committer    the commit list and what its leader does
//	recovery     from the log to a tree and memtables
//
// Order of locks, outermost first: gate.alone, checkpoints.mu, the token, token.syncing, that of marks, then those of the store (growing, syncing, space).
// Nothing that waits for the token is called with that of marks held.
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

	opened  logstore.Addr // pages that the file had when it was opened
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
	e.recovery.stats.Duration = time.Since(begin)
	e.known.tell(e.recovery.stats)
	if r := &e.recovery.stats; !r.Created && !opts.Store.Beside { // which loads again and again, and may meet a group that is being written
		e.post(event.Event{Kind: event.Recovery, Took: r.Duration, Count: r.Records, Dropped: r.DroppedTail})
	}
	e.opened = store.End()
	switch {
	case opts.Manual:
	case !opts.Store.ReadOnly:
		e.maintenance.start()
	case e.tree.redoing():
		e.recovery.redone = make(chan struct{})
		go func() {
			defer close(e.recovery.redone)
			_ = e.tree.mergeAll() // an error has poisoned the store
		}()
	}
	return e, nil
}

// Close refuses what would begin, waits for what is open, writes what is in memory, checkpoints and closes the file. Of a poisoned
// engine it returns the error. A second call does nothing.
//
// Whatever uses the engine is in the registry of snapshots, or active, or among the unpinned. It registers first and then looks at closed; Close
// sets closed and then looks at the registry: one of them sees the other.
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
	e.tree.settleMerge()
	e.token.pass(true)
	err := e.Failed()
	if err == nil && !e.opts.Store.ReadOnly {
		if err = e.maintenance.closeClean(e.opened); err == nil {
			err = e.Failed() // in what may fail without harm, as giving space back
		}
	}
	e.pages.Close()
	if cerr := e.store.Close(); err == nil {
		err = cerr
	}
	emptyPools(e)
	return err
}

// Use calls fn with the engine kept open.
func (e *Engine) Use(fn func() error) error {
	slot, err := e.readers.enter()
	if err != nil {
		return err
	}
	defer slot.Release()
	return fn()
}

// Sync makes all commits that have returned durable, also those that nobody waits for.
func (e *Engine) Sync() error {
	if e.opts.Store.ReadOnly {
		return nil
	}
	e.committer.settleReturned()
	return e.log.syncSettled()
}
