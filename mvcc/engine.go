package mvcc

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"flashdbm/internal/btree"
	"flashdbm/internal/commit"
	"flashdbm/internal/event"
	"flashdbm/internal/lease"
	"flashdbm/internal/overlay"
	"flashdbm/internal/redo"
	"flashdbm/internal/writeset"
	"flashdbm/lockfree"
	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
	"flashdbm/override"
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
	Manual        bool            // no background goroutine: tests step the housekeeping themselves
	Step          func(StepPoint) // tests: called between the steps of the housekeeping
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
	DeferOps      int  // least ops of a synced batch that the tree may lack for longer: else 256
	ScanOften     int  // scans of a leaf's values out of order, behind which these are put in order: else 8, and with Manual none
	KeepInline    bool // values that fit their leaf are in it, whatever their length: for what is about large trees
	LastSlots     int  // of the table hash(key) -> last Seq, a power of two: else 2 MiB of them
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

// Engine runs transactions over the pages of one file.
//
// Order of locks, outermost first: gate.alone, keeper.mu, the baton, that of marks, then those of the store (growing, syncing, space). Nothing that
// waits for the baton is called with that of marks held.
type Engine struct {
	opts     Options
	store    *logstore.Store
	pages    *override.Pages
	registry lockfree.Registry
	list     lockfree.List[pushedCommit]
	writes   commit.LastWrites // see told.go
	recovery RecoveryStats
	leases   lease.Table

	// Watermarks: Seqs of batch ends. applied: what new updates read; every change up to it is in memory. durable: survives a power
	// cut. viewAt is the one that View reads at.
	applied atomic.Uint64
	durable atomic.Uint64
	viewAt  *atomic.Uint64
	views   views
	marks   commit.Marks

	baton      baton
	tables     memtables
	leafy      atomic.Bool   // the tree had more than fewKeys pages, dirty ones too; written by the baton holder
	active     atomic.Int32  // commits that were admitted and are not settled, and those of WriteOne from their beginning to their end
	unpinned   unpinned      // transactions that wait for admission, or write to the file, and may not be in the registry meanwhile
	compacting sync.Mutex    // one Compact at a time; outermost
	closed     atomic.Bool   // Close was called,
	ending     atomic.Bool   // and nobody uses the engine any more
	redone     chan struct{} // nil, or closed when the goroutine has ended that redoes for a read-only engine
	gate       commit.Gate
	moved      commit.Waiters // for applied
	sets       sets
	keeper     keeper
	async      async
	scattered  scattered
	glances    sync.Pool // of *Tx
	singles    sync.Pool // of *Tx

	// Owned by the baton holder.
	records int64            // in the tree, at applied
	nodes   []*commitNode    // scratch of a batch
	entries []writeset.Entry // scratch of a batch
	ops     []btree.Op       // scratch of a batch
	opBytes int              // of their keys and values
	runs    []bornRun        // of the group being built
	listed  []logstore.Addr  // where the large values begin whose extents they list
	redo    []byte           // not yet in the log; between batches empty unless Buffered, see unlogged
	redoOps uint64           // records in redo
	open    *logstore.Group  // of redo that is not yet in the log; Buffered
	newborn []bornLogged     // of groups not written
	scratch []byte
	stays   bool        // values of the last batch stay in the log: no flush brings page groups nearer
	refs    []btree.Ref // room for those of logged values

	held      int64 // pages reserved for what is dirty
	logged    int64 // pages of groups of commits for which what was reserved is not given up yet: see spend
	redoBytes redo.Bytes
	excess    excess
	crowd     crowd
	growth    growth
	full      atomic.Bool // the file could not grow when a commit needed it to
	layered   bool        // the log has layers to redo: the next flush is of all
	batches   uint64
	batchOps  int // in the last batch of commits
	row       row
	left      bool // the last batch has left commits to the next one
	device    device

	opened logstore.Addr // pages that the file had when it was opened

	atCheckpoint int64 // bytes between the scan start and the end of the last checkpoint: mostly of its flush

	known     known // what Stats tells of it
	conflicts atomic.Uint64
	cleaned   atomic.Uint64 // pages that the cleaner has moved
	memory    atomic.Int64  // bytes of versions, as of the last batch
	ceiling   atomic.Int64  // of memory, above which a commit asks for relief: MemoryLimit, or more while readers hold that
	horizon   atomic.Uint64 // as of the last Reclaim
	expired   atomic.Int64  // when a reader was last asked to end for want of room
	follow    *followed     // of an engine that reads beside a writer; nil else
	unlogged  atomic.Bool   // redo has commits that have returned, or are about to: set before they do, false only once they are in the log and noted. Written by the baton holder
	committed atomic.Uint64 // Seq of the last batch of commits; others are of housekeeping. Written before applied moves
}

type commitNode = lockfree.Node[pushedCommit]

// RecoveryStats is what Open found in the log.
type RecoveryStats struct {
	Created     bool
	Groups      int           // scanned
	Records     int64         // redone
	Layers      int           // of write sets larger than memory that were merged again
	RedoBefore  bool          // redo began before the base
	DroppedTail bool          // a group that was not whole was cut off
	Duration    time.Duration // of Open
	Steps       RecoverySteps
}

// RecoverySteps is what each step of recovery took.
type RecoverySteps struct {
	Load    time.Duration // superblocks, table and space map of the newest checkpoint
	Scan    time.Duration // of the log
	Install time.Duration // table, complete flushes and page groups
	Sync    time.Duration // what was not proven durable is written again and synced
	Sort    time.Duration // redo records are read and sorted, beside that
	Redo    time.Duration // into the tree, perhaps behind Open
}

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
	e := &Engine{opts: opts, store: store}
	e.writes.Init(cmp.Or(opts.LastSlots, lastSlots))
	e.viewAt = &e.applied
	if opts.Durability == Durable && !opts.Store.Beside {
		e.viewAt = &e.durable
	}
	e.baton.handed = make(chan struct{}, 1)
	e.tables.active = overlay.NewMemtable()
	e.tables.backgroundFrom = backgroundFrom(&opts)
	e.tables.backgroundAt = e.tables.backgroundFrom
	e.publishView(0, 0)
	e.keeper.wake, e.keeper.sync = make(chan struct{}, 1), make(chan struct{}, 1)
	e.moved.Init()
	e.async.init(e)
	e.excess.held.Init()
	e.crowd.waiters.Init()
	e.gate.Init()
	e.ceiling.Store(opts.MemoryLimit)
	e.sets.budget.Init(opts.spillBytes())
	e.scattered.often = scanOften(&opts)
	if err := e.recover(rec); err != nil {
		if e.pages != nil {
			e.pages.Close()
		}
		store.Close()
		return nil, err
	}
	e.recovery.Duration = time.Since(begin)
	e.known.tell(e.recovery)
	if r := &e.recovery; !r.Created && !opts.Store.Beside { // which loads again and again, and may meet a group that is being written
		e.post(event.Event{Kind: event.Recovery, Took: r.Duration, Count: r.Records, Dropped: r.DroppedTail})
	}
	e.opened = store.End()
	switch {
	case opts.Manual:
	case !opts.Store.ReadOnly:
		e.keeper.start(e)
	case e.Redoing():
		e.redone = make(chan struct{})
		go func() {
			defer close(e.redone)
			_ = e.mergeAll() // an error has poisoned the store
		}()
	}
	return e, nil
}

// recover rebuilds the tree: installed pages first, then redo, before anything else can use the engine or behind Open.
func (e *Engine) recover(rec *logstore.Recovery) (err error) {
	defer e.guard(&err)
	readOnly := e.opts.Store.ReadOnly
	steps := &e.recovery.Steps
	steps.Load, steps.Scan = rec.Load, rec.Scan
	begin, memory := time.Now(), e.opts.Shares.Versions.NewMemory()
	if rec.Created {
		e.recovery.Created = !readOnly                        // an empty file that is only read stays as it is
		if opts := &e.opts; opts.PartBytes > 0 && !readOnly { // tests: the first checkpoint says so
			e.store.RedoBefore()
		}
		if e.pages, err = override.Create(e.store, &e.registry, memory, readOnly); err != nil {
			memory.Close()
			return err
		}
	} else if e.pages, e.records, err = override.Recover(e.store, rec, &e.registry, memory); err != nil {
		memory.Close()
		return err
	}
	steps.Install = time.Since(begin)
	e.recovery.RedoBefore = e.pages.RedoStart() < e.pages.Base()
	e.redoBytes.Recovered(e.pages.RedoStart())
	begin = time.Now()
	ready := e.readyRedo(rec)
	err = e.store.EndRecovery(rec)
	steps.Sync = time.Since(begin)
	left, redoErr := ready()
	layered := errors.Is(redoErr, redo.ErrHasLayers)
	if layered {
		redoErr = nil
	}
	if err != nil { // what was read beside a sync that failed may be anything
		return err
	}
	if redoErr != nil {
		return redoErr
	}
	e.publish(baseSeq, e.records)
	e.durable.Store(baseSeq)
	e.recovery.Groups, e.recovery.DroppedTail = len(rec.Groups), rec.Dropped != 0
	if rec.Unsyncable != nil {
		e.post(event.Event{Kind: event.Background, What: "the directory of the new file cannot be synced: until the system has written it, a power cut may take the file's name, and with it all that is in the file", Err: rec.Unsyncable})
	}
	if rec.Created && !readOnly {
		for range 2 {
			if err := e.checkpoint(); err != nil {
				return err
			}
		}
	}
	if opts := e.opts.Store; opts.Beside {
		return e.startFollowing(rec)
	}
	if layered {
		e.redoBytes.Recovered(e.pages.RedoStart())
		err = e.redoWithLayers(rec) // as much as that may be, it is not held in memory to be looked up
	} else {
		err = e.startRedo(left)
	}
	return err
}

// Close refuses what would begin, waits for what is open, writes what is in memory, checkpoints and closes the file. Of a poisoned
// engine it returns the error. A second call does nothing.
//
// Whatever uses the engine is in the registry of snapshots, or active, or among the unpinned. It registers first and then looks at closed; Close
// sets closed and then looks at the registry: one of them sees the other.
func (e *Engine) Close() error {
	if !e.closed.CompareAndSwap(false, true) {
		return nil
	}
	e.awaitUsers()
	e.ending.Store(true)
	if e.redone != nil {
		<-e.redone
	}
	e.async.stop()
	e.keeper.stop()
	e.takeBaton()
	e.settleMerge()
	e.putBaton(true)
	err := e.Failed()
	if err == nil && !e.opts.Store.ReadOnly {
		if err = e.closeClean(); err == nil {
			err = e.Failed() // in what may fail without harm, as giving space back
		}
	}
	e.pages.Close()
	if cerr := e.store.Close(); err == nil {
		err = cerr
	}
	return err
}

// collectAfter is how long Close waits before it has the collector look for transactions that were dropped without being ended.
const collectAfter = 100 * time.Millisecond

// awaitUsers returns when nobody uses the engine but the keeper.
func (e *Engine) awaitUsers() {
	collect := time.Now().Add(collectAfter)
	for wait := time.Microsecond; e.used(); wait = min(2*wait, 10*time.Millisecond) {
		time.Sleep(wait)
		if time.Now().After(collect) {
			runtime.GC()
			collect = time.Now().Add(10 * collectAfter)
		}
	}
}

// used reports whether anybody but the keeper uses the engine. Who goes to the unpinned from the registry, or from the active, while both are
// looked at is in one of them all the time, and could be missed in both: so it counts how many ever went.
func (e *Engine) used() bool {
	counts := e.unpinned.counts.Load()
	return e.unpinned.any() || e.active.Load() > 0 || e.registry.Count() > 0 || e.unpinned.counts.Load() != counts
}

func (e *Engine) closeClean() (err error) {
	defer e.guard(&err)
	if e.store.SinceCheckpoint() == 0 && e.waiting() == 0 && e.tables.rest() == 0 && e.pages.DirtyBytes() == 0 {
		if e.store.End() == e.opened && e.store.Counters().Pages == 0 { // else it may have grown ahead of commits that did not come
			return nil
		}
	} else if err := e.flushAndCheckpoint(); err != nil {
		return err
	}
	if err := e.cleanAtClose(); err != nil {
		return err
	}
	return e.trimAtClose()
}

// Failed returns the error that poisoned the engine, or nil.
func (e *Engine) Failed() error { return e.store.Failed() }

// Fail poisons the engine for a reason that its user has found, and returns what it answers from now on.
func (e *Engine) Fail(err error) error { return e.store.Fail(err) }

// show makes seq what new updates read. Baton holder.
func (e *Engine) show(seq uint64) {
	e.applied.Store(seq)
	e.moved.Broadcast()
}

// noteLogged notes that the batch at seq is in the log, unless it is in e.redo on its way there. Baton holder.
func (e *Engine) noteLogged(seq uint64) {
	if e.waiting() == 0 {
		e.marks.Note(e.store.LastGroup(), seq)
	}
}

// enter registers a user of the engine at the newest version of the tree, unless it is closed.
func (e *Engine) enter() (lockfree.Slot, error) { return e.enterNear(lockfree.Slot{}) }

// enterNear is enter in the place in the registry that was used for last.
func (e *Engine) enterNear(last lockfree.Slot) (lockfree.Slot, error) {
	slot := e.registry.AcquireNear(last, &e.views)
	if e.closed.Load() {
		slot.Release()
		return slot, ErrClosed
	}
	return slot, nil
}

// Use calls fn with the engine kept open.
func (e *Engine) Use(fn func() error) error {
	slot, err := e.enter()
	if err != nil {
		return err
	}
	defer slot.Release()
	return fn()
}

// publishDurable moves the durable watermark to what the store's syncs have covered.
func (e *Engine) publishDurable() { e.marks.Publish(e.store.Durable(), &e.durable) }

// awaitDurable returns once the batch at seq survives a power cut.
func (e *Engine) awaitDurable(seq uint64) error {
	if e.durable.Load() >= seq {
		return nil
	}
	if err := e.store.Sync(); err != nil {
		return err
	}
	e.publishDurable()
	if e.durable.Load() < seq { // Buffered: still in memory
		return e.Sync()
	}
	return nil
}

// Sync makes all commits that have returned durable, also those that nobody waits for.
func (e *Engine) Sync() error {
	if e.opts.Store.ReadOnly {
		return nil
	}
	e.settleReturned()
	return e.syncSettled()
}

// syncSettled makes all commits that are settled durable.
func (e *Engine) syncSettled() error {
	if err := e.logBuffered(); err != nil {
		return err
	}
	if err := e.store.Sync(); err != nil {
		return err
	}
	e.publishDurable()
	return nil
}

// Path returns the name of the file.
func (e *Engine) Path() string { return e.store.Path() }

func (e *Engine) wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("flashdbm: %s %s: %w", op, e.store.Path(), err)
}
