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
	Groups      int           // scanned
	Records     int64         // redone
	Layers      int           // of write sets larger than memory that were merged again
	Ranges      int           // cut again
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

// recovery makes a tree and memtables of what the log has.
type recovery struct {
	treeParts

	stats  RecoveryStats
	follow *followed     // of an engine that reads beside a writer; nil else
	redone chan struct{} // nil, or closed when the goroutine has ended that redoes for a read-only engine
}

// recover rebuilds the tree: installed pages first, then redo, before anything else can use the engine or behind Open.
func (rv *recovery) recover(rec *logstore.Recovery) (err error) {
	defer rv.guard(&err)
	readOnly := rv.opts.Store.ReadOnly
	steps := &rv.stats.Steps
	steps.Load, steps.Scan = rec.Load, rec.Scan
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
	if err != nil { // what was read beside a sync that failed may be anything
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
