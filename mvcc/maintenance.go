package mvcc

import (
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"flashdbm/logstore"
)

// Thresholds of background work. What the flush* and lone* ones decide together is in pressure.flushDue.
const (
	// A flush is due when redo reaches 6/10 of the dirty bytes, if no more than flushLoneBytes are dirty and batches have
	// at most loneOps ops. Then a single committer can soon commit by page groups again, which need all pages clean.
	// Larger batches split leaves too often for page groups.
	flushRatioNum  = 6
	flushRatioDen  = 10
	flushLoneBytes = 1 << 20
	loneOps        = 16

	growthLimit = 2       // if all dirty pages are new, a flush is due when redo reaches half of its limit
	minLogBytes = 4 << 20 // no checkpoint is due while less log than this lies after the scan start
	// If the table has at least foldAgainEntries entries after the flush of a checkpoint, and at most a 16th as many
	// pages are dirty, names are folded once more.
	foldAgainEntries = 1 << 10
	foldAgainShare   = 16
	lagShare         = 2  // during a load, redo after the base of a flush may be half of the redo limit when the flush begins
	flushAtOnce      = 16 // a flush of at most this many pages is written without passing the token on in between
)

// maintenance does background work when it is due: flushes, folds, cleaning, checkpoints, and in Buffered mode
// writing what commits have left in memory. It decides when; package override plans what. Its own goroutine does the
// work. A committer that finds no memory or no room does it itself, under the same lock.
type maintenance struct {
	treeParts
	cleaner *cleaner

	compacting sync.Mutex    // one Compact at a time; outermost of all locks
	started    bool          // the goroutine was started
	wake       chan struct{} // wakes the goroutine; room for one
	quit       chan struct{}
	ended      chan struct{} // closed when the goroutine has ended,
	written    chan struct{} // and when the goroutine of writeBuffered has
	due        atomic.Bool   // the goroutine was woken for housekeeping
	zero       atomic.Bool   // and for zeros ahead of the log
	looked     uint64        // Seq of the last batch of commits, as of the last look; guarded by checkpoints.mu
	bulk       time.Time     // last look after a commit of many records; guarded by checkpoints.mu
	idle       rest          // guarded by checkpoints.mu
}

// start starts the background goroutines. due: there is work for them.
func (m *maintenance) start(due bool) {
	m.started = true
	m.quit, m.ended, m.written = make(chan struct{}), make(chan struct{}), make(chan struct{})
	if m.opts.Durability == Buffered {
		go m.writeBuffered()
	} else {
		close(m.written)
	}
	if due {
		m.due.Store(true)
		m.wake <- struct{}{}
	}
	go m.run()
}

func (m *maintenance) stop() {
	if m.quit != nil {
		close(m.quit)
		<-m.ended
		<-m.written
		m.quit = nil
	}
}

// nudge wakes the goroutine if work is due. Token held.
func (m *maintenance) nudge() {
	if !m.started || m.due.Load() {
		return
	}
	if m.pressure.flushDue() {
		m.due.Store(true)
		m.rouse()
	} else if !m.zero.Load() && m.pressure.zeroDue() {
		m.zero.Store(true)
		m.rouse()
	}
}

// nudgeToGrow wakes the goroutine if the file should grow, before a commit has to wait for that. On tmpfs growing
// takes a fifth of the time of a commit that loads a new file; on other file systems it also takes a sync. In Durable
// mode ZeroAhead sees to it. asked is the number of pages that the last commit has reserved. Token held.
func (m *maintenance) nudgeToGrow(asked int64) {
	if !m.started || m.opts.Durability == Durable || m.checkpoints.tight.Load() || !m.store.GrowDue(asked) {
		return
	}
	m.checkpoints.asked.Store(asked)
	m.checkpoints.tight.Store(true)
	m.rouse()
}

func (m *maintenance) rouse() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

func (m *maintenance) run() {
	defer close(m.ended)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	interval := m.opts.FlushInterval
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var aging <-chan time.Time // ticks to look for transactions that are too old
	if age := m.opts.Leases.MaxAge; age > 0 {
		t := time.NewTicker(min(max(age/4, time.Millisecond), time.Second))
		defer t.Stop()
		aging = t.C
	}
	var warned time.Time
	storm := m.newStorm()
	for {
		select {
		case <-m.quit:
			return
		case <-m.wake:
			if !m.woken() {
				continue
			}
		case <-aging:
			m.report("old transactions", m.endOldSnapshots())
			continue
		case <-tick.C:
			warned = m.warnOfOldSnapshot(time.Now(), warned)
			m.warnOfStorm(time.Now(), &storm)
		}
		m.due.Store(false)
		flushes := m.flusher.flushes.Load()
		m.report("housekeeping", m.housekeep())
		if m.flusher.flushes.Load() != flushes {
			m.goOn()
		}
		m.zeroAhead()
		if m.Failed() != nil { // nothing is left to do
			return
		}
	}
}

// woken does what the goroutine was woken for, but for housekeeping, and reports whether that is due.
func (m *maintenance) woken() (housekeeping bool) {
	m.checkpoints.growAhead()
	if m.due.Load() {
		return true
	}
	m.zeroAhead()
	return false
}

// zeroAhead fills the log's next segments with zeros if that is due. It needs no housekeeping before it: that merges
// what is committed, with the token in hand for milliseconds at a time, and commits wait. With 5,000 of PutAsync under
// way, whose many syncs make zeros due often, they waited for a quarter of the time.
func (m *maintenance) zeroAhead() {
	m.zero.Store(false)
	if m.pressure.zeroDue() {
		m.log.asked.Store(0)
		m.report("zeroing", m.store.ZeroAhead())
	}
}

// writeBuffered writes and syncs what Buffered commits have left in memory, once in each FlushInterval. It has its
// own goroutine and does not take checkpoints.mu: a flush, a checkpoint or a compaction may take longer than an
// interval.
func (m *maintenance) writeBuffered() {
	defer close(m.written)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	tick := time.NewTicker(m.opts.FlushInterval)
	defer tick.Stop()
	for m.Failed() == nil {
		select {
		case <-m.quit:
			return
		case <-tick.C:
		case <-m.log.syncDue:
		}
		m.report("write", m.log.syncCommitted()) // CommitAsync completes its commits before it returns in this mode
	}
}

// goOn looks whether more work is due after a flush. Commits look too, but not while they wait for that work: one
// writer, and what it waited for, had come to only 16 commits between two flushes.
func (m *maintenance) goOn() {
	m.report("housekeeping", m.log.withLog(func() error {
		m.nudge()
		return nil
	}))
}

// housekeep does what is due: cleaning, a flush of all or of a part, and a checkpoint after it; or a checkpoint
// alone, if that frees much; or else what scans have asked for (moveScanned).
func (m *maintenance) housekeep() error {
	m.store.NoteDevice()
	m.checkpoints.mu.Lock()
	defer m.checkpoints.mu.Unlock()
	if pages := m.pressure.crowd.asked.Swap(0); pages > 0 {
		return m.makeWay(pages)
	}
	var flush, checkpoint, trim, anew, idle bool
	parts := 1
	look := m.lookAhead()
	defer func() { m.flusher.lag = 0 }()
	if err := look(func() error {
		var dying bool
		if m.Failed() == nil {
			if m.readers.active.Load() > 0 {
				m.tree.reclaim() // commits go on with it, a part at a time
			} else {
				m.tree.reclaimAll() // readers may have ended
			}
		}
		m.pressure.noteRedo()
		flush, checkpoint = m.pressure.flushDue(), m.pressure.checkpointDue()
		parts = m.pressure.parts()
		idle = m.restDue()
		anew = m.checkpoints.cutDue() || flush && parts > 1 && m.flusher.firstPart()
		checkpoint = checkpoint || flush && m.pages.DirtyBytes() > flushLoneBytes // else the pages of the flush would soon make one due
		trim, dying = m.checkpoints.trimDue()
		checkpoint = checkpoint || dying
		return m.Failed()
	}); err != nil {
		return err
	}
	if idle {
		m.flusher.lag = 0
		if err := m.rest(); !logstore.IsFull(err) {
			return err
		}
	}
	if anew {
		if err := m.flusher.beginAnew(); !logstore.IsFull(err) {
			return err
		}
	}
	pages, due := m.cleaner.cleanBudget()
	if m.flusher.lag > 0 && (flush || checkpoint || due) { // with what is merged for it
		var err error
		if parts, err = m.flusher.parts(); err != nil {
			return err
		}
	}
	if parts > 1 && (flush || checkpoint || due) {
		if err := m.cleaner.clean(pages); err != nil {
			return err
		}
		return m.flusher.flushNext(parts, false)
	}
	if checkpoint || due {
		if err := m.cleaner.clean(pages); err != nil {
			return err
		}
		return m.flusher.flushAndCheckpoint()
	}
	if trim {
		return m.checkpoints.checkpointTwice()
	}
	if flush {
		return m.flusher.flush()
	}
	moved, err := m.cleaner.moveScanned()
	if moved {
		m.idle = rest{} // begins again: the moved values leave dead pages
	}
	if moved && m.cleaner.scattered.any() {
		m.due.Store(true)
		m.rouse()
	}
	return err
}

// lookAhead returns the function with which to take the token for a look at what is due. It lets flushes lag behind
// commits (flusher.lag) during a load, whose entries are merged many at a time, if the file may grow. After the last
// commit of many records that holds for idlePause: lookups that follow a load find a memtable's entry, or a leaf as an
// image, sooner than a leaf that a merge has changed, and they share the processors with the merge. After that,
// everything is merged if nothing was committed since the last look. The caller holds checkpoints.mu.
func (m *maintenance) lookAhead() func(fn func() error) error {
	before := m.looked
	m.looked = m.marks.committed.Load()
	_ = m.log.withLog(func() error {
		if m.looked != before && m.pressure.inBulk() {
			m.bulk = time.Now()
		}
		if (m.looked != before || time.Since(m.bulk) < idlePause) && m.tree.late() && (m.tree.tables.merging() || m.tree.manyWait()) {
			m.flusher.lag = m.pressure.shareOfBound() / lagShare
		}
		return nil
	})
	if m.flusher.lag == 0 {
		return m.tree.withMerged
	}
	return m.tree.withTree
}

// closeClean writes what is in memory and shortens the file. Nobody uses the engine any more. opened is the file's
// length in pages at Open.
func (m *maintenance) closeClean(opened logstore.Addr) (err error) {
	defer m.guard(&err)
	if m.store.SinceCheckpoint() == 0 && m.log.waiting() == 0 && m.tree.tables.rest() == 0 && m.pages.DirtyBytes() == 0 {
		if m.store.End() == opened && m.store.Counters().Pages == 0 { // else the file may have grown ahead of commits that did not come
			return nil
		}
	} else if err := m.flusher.flushAndCheckpoint(); err != nil {
		return err
	}
	if err := m.cleaner.cleanAtClose(); err != nil {
		return err
	}
	return m.checkpoints.trimAtClose()
}
