package mvcc

import (
	"sync"
	"sync/atomic"
	"time"

	"flashdbm/internal/btree"
	"flashdbm/internal/commit"
	"flashdbm/internal/lease"
	"flashdbm/internal/redo"
	"flashdbm/internal/writeset"
	"flashdbm/lockfree"
	"flashdbm/logstore"
	"flashdbm/override"
)

// file is what all parts of the engine use. Its fields do not change once recovery has begun to use them.
type file struct {
	opts  Options
	store *logstore.Store
	pages *override.Pages
	known known // what Stats tells
}

// watermarks are Seqs of batch ends. applied: what new updates read; every change up to it is in memory. durable: survives a power cut. at is
// the one that View reads at.
type watermarks struct {
	*file
	applied   atomic.Uint64
	durable   atomic.Uint64
	viewAt    *atomic.Uint64
	committed atomic.Uint64  // Seq of the last batch of commits; others are of background work. Written before applied moves
	moved     commit.Waiters // for applied
	groups    commit.Marks
}

// readers are those who use the engine.
type readers struct {
	*file
	registry  lockfree.Registry
	views     views
	leases    lease.Table
	unpinned  unpinned     // transactions that wait for admission, or write to the file, and may not be in the registry meanwhile
	active    atomic.Int32 // commits that were admitted and are not settled, and those of WriteOne from their beginning to their end
	closed    atomic.Bool  // Close was called,
	ending    atomic.Bool  // and nobody uses the engine any more
	expired   atomic.Int64 // when a reader was last asked to end for want of room
	conflicts atomic.Uint64
}

// room is what is reserved in the file for what is dirty. It belongs to the token's holder.
type room struct {
	*file
	unwritten func() int64 // bounds the pages that what is in memory will take: see pressure
	held      int64        // pages reserved for what is dirty
	logged    int64        // pages of groups of commits for which what was reserved is not given up yet: see spend
	full      atomic.Bool  // the file could not grow when a commit needed it to
}

// redoLog is redo on its way to the log. Its fields but the atomic ones belong to the token's holder.
type redoLog struct {
	*file
	marks   *watermarks
	readers *readers
	token   *token
	room    *room

	redo     []byte          // not yet in the log; between batches empty unless Buffered, see unlogged
	redoOps  uint64          // records in redo
	open     *logstore.Group // of redo that is not yet in the log; Buffered
	runs     []bornRun       // of the group being built
	newborn  []bornLogged    // of groups not written
	refs     []btree.Ref     // room for those of logged values
	scratch  []byte
	bytes    redo.Bytes
	recent   recent
	device   device
	unlogged atomic.Bool   // redo has commits that have returned, or are about to: set before they do, false only once they are in the log and noted
	wanted   atomic.Bool   // a sync waits for the token's holder to log what is in memory; set by the sync, taken back by a holder. See logBuffered
	syncDue  chan struct{} // a sync is due before the next tick; room for one
}

// recent is what background work goes by that commits have done lately. It belongs to the token's holder.
type recent struct {
	batches uint64 // so far
	ops     int    // in the last batch of commits
	stays   bool   // values of the last batch stay in the log: no flush brings page groups nearer
	row     row
}

// tree is the newest version of the tree, and the memtables above it. Its fields but the atomic ones belong to the token's holder.
type tree struct {
	*file
	marks   *watermarks
	readers *readers
	token   *token
	room    *room
	log     *redoLog

	records int64 // in the tree, at applied
	tables  memtables
	sets    sets
	leafy   atomic.Bool   // the tree had more than fewKeys pages, dirty ones too
	memory  atomic.Int64  // bytes of versions, as of the last batch
	ceiling atomic.Int64  // of memory, above which a commit asks for relief: MemoryLimit, or more while readers hold that
	horizon atomic.Uint64 // as of the last Reclaim
}

// pressure is how much waits to be written, and what is due because of that. Its fields but the atomic ones belong to the token's holder.
type pressure struct {
	*file
	marks   *watermarks
	readers *readers
	room    *room
	log     *redoLog
	tree    *tree

	excess       excess
	crowd        crowd
	growth       growth
	layered      bool  // the log has layers to redo: the next flush is of all
	atCheckpoint int64 // bytes between the scan start and the end of the last checkpoint: mostly of its flush
}

// checkpointer writes checkpoints and gives space back. Its fields but the atomic ones are guarded by mu.
type checkpointer struct {
	*file
	marks    *watermarks
	readers  *readers
	token    *token
	log      *redoLog
	tree     *tree
	pressure *pressure

	mu     sync.Mutex // one flush or checkpoint at a time; taken before the token
	pacing pacing
	turn   turn
	tight  atomic.Bool   // the file is to grow before a commit has to wait for that,
	asked  atomic.Int64  // for commits that reserve so many pages
	done   atomic.Uint64 // checkpoints
}

// flusher writes dirty pages and folds names. Its fields but the atomic ones are guarded by checkpoints.mu.
type flusher struct {
	*file
	marks       *watermarks
	readers     *readers
	token       *token
	room        *room
	log         *redoLog
	tree        *tree
	pressure    *pressure
	checkpoints *checkpointer

	hand      []byte        // key that the next part of a flush begins at
	whole     int64         // pages of the last flush if that was of all
	allBase   uint64        // base of the last flush of all
	unnamed   uint64        // pages appended when names were folded away for the last time
	stuck     stuckSegments // that the cleaner cannot empty
	installed atomic.Uint64 // least Seq whose readers cannot see what the last flush has retired; written with the token
	flushes   atomic.Uint64
	moved     atomic.Uint64 // pages made dirty so that their segments become free
}

// cleaner moves what lives out of segments that are mostly dead. Its fields are guarded by checkpoints.mu.
type cleaner struct {
	*file
	marks       *watermarks
	readers     *readers
	room        *room
	log         *redoLog
	tree        *tree
	pressure    *pressure
	checkpoints *checkpointer
	flusher     *flusher

	at        time.Time // of the last time
	searched  uint64    // pages written to the log before the tree was searched for value runs
	scattered scattered
}

// maintenance does the background work when it is due: flushes, folds, cleaning, checkpoints, and in Buffered mode the writing of what commits
// have left in memory. It decides when; package override plans what. Its own goroutine does the work; a committer that finds no memory or no
// room does it itself, under the same lock.
type maintenance struct {
	*file
	marks       *watermarks
	readers     *readers
	token       *token
	log         *redoLog
	tree        *tree
	pressure    *pressure
	checkpoints *checkpointer
	flusher     *flusher
	cleaner     *cleaner

	compacting sync.Mutex    // one Compact at a time; outermost
	started    bool          // there is a goroutine
	wake       chan struct{} // room for one
	quit       chan struct{}
	ended      chan struct{} // closed when the goroutine has ended,
	written    chan struct{} // and when that of writeBuffered has
	due        atomic.Bool   // the goroutine was nudged
	idle       rest          // guarded by checkpoints.mu
}

// admission has commits wait for memory, for room in the file, and for flushes, before they are resolved.
type admission struct {
	*file
	marks       *watermarks
	readers     *readers
	room        *room
	log         *redoLog
	tree        *tree
	pressure    *pressure
	checkpoints *checkpointer
	flusher     *flusher
	cleaner     *cleaner
	maintenance *maintenance
}

// committer has the commit list, and settles what is in it. What has no comment of its own belongs to the token's holder.
type committer struct {
	*file
	marks       *watermarks
	readers     *readers
	token       *token
	room        *room
	log         *redoLog
	tree        *tree
	pressure    *pressure
	checkpoints *checkpointer
	flusher     *flusher
	maintenance *maintenance
	admission   *admission

	list    lockfree.List[pushedCommit]
	writes  commit.LastWrites // see told.go
	gate    commit.Gate
	async   async
	batch   commitBatch // at hand
	left    bool        // the last batch has left commits to the next one
	singles sync.Pool   // of *Tx
}

// recovery makes a tree and memtables of what the log has.
type recovery struct {
	*file
	marks       *watermarks
	readers     *readers
	token       *token
	room        *room
	log         *redoLog
	tree        *tree
	pressure    *pressure
	checkpoints *checkpointer
	flusher     *flusher

	stats  RecoveryStats
	follow *followed     // of an engine that reads beside a writer; nil else
	redone chan struct{} // nil, or closed when the goroutine has ended that redoes for a read-only engine
}

// commitBatch has room for what a batch of commits is made of.
type commitBatch struct {
	nodes   []*commitNode
	entries []writeset.Entry
	ops     []btree.Op
	opBytes int             // of their keys and values
	listed  []logstore.Addr // where the large values begin whose extents they list
}
