package mvcc

import (
	"time"

	"flashdbm/internal/event"
	"flashdbm/logstore"
	"flashdbm/override"
)

// RecoveryStats is what Open found in the log.
type RecoveryStats struct {
	Created     bool
	Groups      int           // number of groups scanned
	Records     int64         // number of records redone
	Layers      int           // number of layers that were merged again, of write sets larger than memory
	Ranges      int           // number of ranges cut again
	RedoBefore  bool          // redo began before the base
	DroppedTail bool          // a group that was not whole was cut off
	Locked      time.Time     // when Open had the file's lock; zero beside a writer
	Duration    time.Duration // of Open
	Steps       RecoverySteps
}

// RecoverySteps is how long each step of recovery took.
type RecoverySteps struct {
	Load    time.Duration // superblocks, table and space map of the newest checkpoint
	Scan    time.Duration // of the log
	Install time.Duration // table, complete flushes and page groups
	Sync    time.Duration // writing again what was not proven durable, and syncing it
	Sort    time.Duration // reading and sorting redo records, at the same time as Sync
	Redo    time.Duration // merging the redo into the tree, perhaps after Open has returned
}

// recovery makes a tree and memtables of what the log has.
type recovery struct {
	treeParts

	stats  RecoveryStats
	follow *followed     // of an engine that reads beside a writer; nil else
	redone chan struct{} // closed when the goroutine that redoes for a read-only engine has ended; nil if there is none
}

// recover rebuilds the tree: first installed pages, then redo, either before anything else can use the engine or in
// the background.
func (rv *recovery) recover(rec *logstore.Recovery) (err error) {
	defer rv.guard(&err)
	readOnly := rv.opts.Store.ReadOnly
	steps := &rv.stats.Steps
	steps.Load, steps.Scan = rec.Load, rec.Scan
	rv.stats.Locked = rec.Locked
	begin, memory := time.Now(), rv.opts.Shares.Versions.NewMemory()
	if rec.Created {
		rv.stats.Created = !readOnly                           // an empty file that is only read stays as it is
		if opts := &rv.opts; opts.PartBytes > 0 && !readOnly { // tests: the first checkpoint says so
			rv.store.RedoBefore()
		}
		if rv.pages, err = override.Create(rv.store, &rv.readers.registry, memory, readOnly); err != nil {
			memory.Close()
			return err
		}
	} else if rv.pages, rv.tree.records, err = override.Recover(rv.store, rec, &rv.readers.registry, memory); err != nil {
		memory.Close()
		return err
	}
	steps.Install = time.Since(begin)
	rv.stats.RedoBefore = rv.pages.RedoStart() < rv.pages.Base()
	rv.log.bytes.Recovered(rv.pages.RedoStart())
	begin = time.Now()
	ready := rv.readyRedo(rec)
	err = rv.store.EndRecovery(rec)
	steps.Sync = time.Since(begin)
	left, redoErr := ready()
	if err != nil { // what was read during a sync that failed may be anything
		return err
	}
	if redoErr != nil {
		return redoErr
	}
	rv.tree.publish(baseSeq, rv.tree.records)
	rv.marks.durable.Store(baseSeq)
	rv.stats.Groups, rv.stats.DroppedTail = len(rec.Groups), rec.Dropped != 0
	if rec.Unsyncable != nil {
		rv.post(event.Event{Kind: event.Background, What: "the directory of the new file cannot be synced: until the system has written it, a power cut may take the file's name, and with it all that is in the file", Err: rec.Unsyncable})
	}
	if rec.Created && !readOnly {
		for range 2 {
			if err := rv.checkpoints.checkpoint(); err != nil {
				return err
			}
		}
	}
	if opts := rv.opts.Store; opts.Beside {
		return rv.startFollowing(rec)
	}
	return rv.startRedo(left)
}
