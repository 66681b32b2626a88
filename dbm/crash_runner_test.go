package dbm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
	"flashdbm/mvcc"
)

// A trial is all that is done for one seed: a run of a random script on a file system in memory, and runs on images
// of what crashes at any time would leave.
type trial struct {
	seed      uint64
	load      *load
	mode      mode
	keep      steps // steps of the main script that are run
	step      int   // current step of the main script
	from      int   // step from which on images are taken
	images    int   // images still to be taken
	besides   int   // images still to be taken after those, during merges aside
	taken     int
	same      int                    // images equal to an earlier one
	known     map[uint64]fingerprint // contents of the images that were recovered, by the hash of their files
	deepest   int                    // most crashes in succession
	census    census
	err       error // the first failure ends all runs
	did       Stats // sums over all runs
	timesFull int   // how often a file could not grow any more
	deletes   int   // deletes that found room in files with a size limit
	compacted int   // compactions that were completed
	tight     bool  // the file system is small

	mergeImages  [3]int // images taken while a merge was under way, by durability
	failedSyncs  int    // syncs that the system reported as failed
	leftPending  int    // how often redo was still pending when the script went on
	layers       uint64 // layers of write sets that left memory
	collapsed    uint64 // how often layers were rewritten
	held         int    // checkpoints that were completed while snapshots were held
	thinned      int    // holes punched within segments
	layersRedone int    // opens that merged such layers
	cuts         int    // ranges that are known to have been cut out
	cutsRedone   int    // opens that cut such ranges
	early        uint64 // pages written before their batch was complete
	parts        uint64 // flushes that left leaves behind
	redoBefore   int    // opens whose redo began before the base
	trace        func(format string, args ...any)
}

var errEnded = errors.New("the run has ended")

func (t *trial) fail(r *runner, err error) {
	switch {
	case err == nil || t.err != nil:
	case r == nil:
		t.err = err
	default:
		t.err = fmt.Errorf("%s: %w", r.name, err)
	}
}

// A runner runs a script on one file system, and knows in which states a crash may leave the database.
//
// Only one of its goroutines runs at a time: background work has its own goroutine, which is resumed step by step,
// and so have transactions that are to become one batch.
type runner struct {
	*trial
	name  string // the path of crashes that led to it
	depth int
	rng   *rand.Rand // for the script
	dice  *rand.Rand // for the images
	kept  int        // how often background work was begun
	mem   *vfs.Mem
	opts  mvcc.Options
	db    *DB
	hist  *history

	acked int // newest state whose commit has returned
	safe  int // oldest state in which a power failure may leave the database
	alive int // oldest state in which the death of the process may leave the database

	opened     bool
	oneIn      int // one in oneIn operations gets a crash image
	background *stepper
	snaps      []heldSnapshot
	guard      guardian
	busy       bool // the hook is running
	fault      *fault
	full       int // how often the file could not grow any more
}

// heldSnapshot is a View transaction that stays open, with the state that it sees.
type heldSnapshot struct {
	tx    *Tx
	state int
	want  fingerprint
}

func newRunner(t *trial, rng *rand.Rand, mem *vfs.Mem) *runner {
	r := &runner{trial: t, name: "main", rng: rng, dice: rng, mem: mem, hist: newHistory(), oneIn: 1}
	r.hook()
	return r
}

// hook lets the runner see each operation of its file system.
func (r *runner) hook() {
	r.guard = guardian{r: r}
	r.mem.Guard(r.guard.check)
	r.mem.OnOp(func(op vfs.Op) error {
		if r.err != nil {
			return errEnded
		}
		r.guard.seen(op)
		r.trace("%s: %v", r.name, op)
		if op.Kind == vfs.OpPunch && op.Off%(int64(r.load.segmentPages)*logstore.PageSize) != 0 {
			r.thinned++
		}
		if err := r.fault.strike(op, r.mem); err != nil {
			if op.Kind == vfs.OpDatasync || op.Kind == vfs.OpWriteOut {
				r.failedSyncs++
				r.alive = r.safe // the system drops some or all pages that it could not write
			}
			return err
		}
		if !r.busy && r.images <= 0 && r.besides > 0 && r.merging() {
			r.images, r.besides = 1, r.besides-1
		}
		if r.busy || r.images <= 0 || r.step < r.from || r.dice.IntN(r.oneIn) != 0 || op.Kind == vfs.OpMap {
			return nil
		}
		r.busy = true
		defer func() {
			r.busy = false
			if p := recover(); p != nil {
				r.fail(r, fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
			}
		}()
		r.examine(op)
		return nil
	})
}

// merging reports whether a merge is under way whose operations the tree lacks.
func (r *runner) merging() bool { return r.opened && r.db.engine.Merging() }

// open opens the database. It must be in one of the possible states, which becomes the current one.
func (r *runner) open() error {
	r.opts = r.load.options(r.rng)
	if size := fileSize(r.mem); size > 0 && r.load.maxFile == 0 && r.rng.IntN(2) == 0 {
		r.opts.Store.MaxFileSize = size // the log must find room within the present size
	}
	if r.rng.IntN(20) == 0 && r.hist.last() > 0 {
		if err := r.peek(); err != nil {
			return fmt.Errorf("read-only: %w", err)
		}
	}
	r.background = &stepper{}
	r.opts.Step = r.background.step
	db, err := openEngine(r.mem, crashPath, r.opts)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	r.db, r.opened = db, true
	r.acked = r.alive // for checks while the redo is merged, which may write
	state, err := r.identify(db, r.alive)
	if err != nil {
		return fmt.Errorf("after open: %w", err)
	}
	r.hist.rewind(state)
	r.acked, r.safe, r.alive = state, state, state
	r.trace("%s: opened in state %d", r.name, state)
	if db.engine.Redoing() && r.rng.IntN(2) == 0 {
		r.leftPending++
		return nil // the next step begins with redo pending
	}
	found := db.Stats().Recovery
	found.Time, found.Locked = 0, Recovery{}.Locked
	r.trace("%s: recovered: %+v", r.name, found)
	if err := db.Check(context.Background()); err != nil {
		return fmt.Errorf("check after open: %w", err)
	}
	return nil
}

// peek opens the database read-only and checks it.
func (r *runner) peek() error {
	o := r.opts
	o.Store.ReadOnly = true
	db, err := openEngine(r.mem, crashPath, o)
	if errors.Is(err, os.ErrNotExist) && r.alive == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	state, err := r.identify(db, r.alive)
	if err == nil {
		r.alive, r.safe = state, state // what was shown is durable, whatever else the system shows
		err = db.Check(context.Background())
	}
	return errors.Join(err, db.Close())
}

// identify finds out which state the database is in, from state least on.
func (r *runner) identify(db *DB, least int) (state int, err error) {
	read := scan
	if db.engine.Redoing() && r.rng.IntN(4) != 0 {
		read = r.lookUp
	}
	f, err := read(db, nil)
	if err != nil {
		return 0, err
	}
	if state = r.hist.find(f, least, r.hist.last()); state >= 0 {
		return state, nil
	}
	found := map[string][]byte{}
	if _, err := read(db, found); err != nil {
		return 0, err
	}
	return 0, errors.New(r.hist.explain(found, f, least, r.hist.last()))
}

// scan reads all records.
func scan(db *DB, into map[string][]byte) (f fingerprint, err error) {
	err = db.View(func(tx *Tx) error {
		f, err = scanTx(tx, into)
		return err
	})
	return f, err
}

// lookUp reads all records one by one, which does not wait for pending redo.
func (r *runner) lookUp(db *DB, into map[string][]byte) (f fingerprint, err error) {
	err = db.View(func(tx *Tx) error {
		for n := range r.load.keys {
			k := []byte(r.load.key(n))
			v, err := tx.Get(k)
			if errors.Is(err, ErrNotFound) {
				continue
			}
			if err != nil {
				return err
			}
			f.add(k, v)
			if into != nil {
				into[string(k)] = append([]byte{}, v...)
			}
		}
		return nil
	})
	return f, err
}

func scanTx(tx *Tx, into map[string][]byte) (f fingerprint, err error) {
	for k, v := range tx.All() {
		f.add(k, v)
		if into != nil {
			into[string(k)] = append([]byte{}, v...)
		}
	}
	if err := tx.Err(); err != nil {
		return f, err
	}
	n, err := tx.Len()
	if err == nil && n != int64(f.records) {
		err = fmt.Errorf("Len is %d, %d records found", n, f.records)
	}
	return f, err
}

// abandon ends a run like the death of the process: nothing more is written.
func (r *runner) abandon() {
	r.mem.OnOp(func(vfs.Op) error { return errEnded })
	r.mem.Guard(nil)
	r.finish()
	if r.db != nil {
		r.trial.count(r.db)
		r.db.Close()
	}
	r.db, r.opened = nil, false
}

// count adds the counts of an engine to those of the trial.
func (t *trial) count(db *DB) {
	e, err := db.engine.Stats()
	if err != nil { // closed
		return
	}
	t.layers += e.Layers
	t.collapsed += e.Collapsed
	t.early += e.Pages.Early
	t.parts += e.Pages.Parts
	if e.Recovery.RedoBefore {
		t.redoBefore++
	}
	t.layersRedone += min(1, e.Recovery.Layers)
	t.cutsRedone += min(1, e.Recovery.Ranges)
	s, d := fromEngine(e, 0), &t.did
	d.Commits += s.Commits
	d.RecordGroups += s.RecordGroups
	d.PageGroups += s.PageGroups
	d.FlushGroups += s.FlushGroups
	d.Flushes += s.Flushes
	d.Folds += s.Folds
	d.Checkpoints += s.Checkpoints
	d.PagesWritten += s.PagesWritten
	d.ReturnedBytes += s.ReturnedBytes
	d.PagesCleaned += s.PagesCleaned
	d.TableEntries = max(d.TableEntries, s.TableEntries)
	d.LiveBytes = max(d.LiveBytes, s.LiveBytes)
	d.FileBytes = max(d.FileBytes, s.FileBytes)
}

// finish ends all open transactions and background work.
func (r *runner) finish() {
	if r.background != nil {
		r.background.finish()
	}
	for _, s := range r.snaps {
		s.tx.Rollback()
	}
	r.snaps = nil
}
