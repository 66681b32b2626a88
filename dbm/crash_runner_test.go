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

// A trial is one seed: a run of a random script on a file system in memory, and the runs on images of it that crashes at any time
// would leave.
type trial struct {
	seed      uint64
	load      *load
	mode      mode
	keep      steps // of the main script that are taken
	step      int   // of the main script, the one under way
	from      int   // the step from which images are taken
	images    int   // still to be taken,
	besides   int   // and then beside merges aside
	taken     int
	same      int                    // images that were like one before
	known     map[uint64]fingerprint // what images hold that were recovered, by the hash of their files
	deepest   int                    // crashes one after the other
	census    census
	err       error // the first failure ends all runs
	did       Stats // counts of all runs together
	timesFull int   // that a file could not grow any more
	deletes   int   // that found room on a file with a limit
	compacted int   // compactions carried through
	tight     bool  // the file system is small

	aside        [3]int // images taken while a merge was going on aside, by durability
	failedSyncs  int    // that the system was made to report
	leftPending  int    // times that the redo was left pending when the script went on
	layers       uint64 // of write sets that left memory
	collapsed    uint64 // times that these were written anew
	held         int    // checkpoints carried through while snapshots were held
	thinned      int    // holes made in segments of which the rest stayed
	layersRedone int    // times that Open merged such layers
	cuts         int    // ranges that were cut, as far as is known
	cutsRedone   int    // times that Open cut such ranges
	early        uint64 // pages written before their batch was whole
	parts        uint64 // flushes that left leaves behind
	redoBefore   int    // opens that began redo before the base
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

// A runner runs a script on one file system, and knows which states of the database a crash may lead to.
//
// All is done by one goroutine at a time, though there are several: background work has its own, which is resumed step by step, and
// transactions that become one batch have theirs.
type runner struct {
	*trial
	name  string // its ancestry
	depth int
	rng   *rand.Rand // of the script
	dice  *rand.Rand // of the images
	kept  int        // times that background work was begun
	mem   *vfs.Mem
	opts  mvcc.Options
	db    *DB
	hist  *history

	acked int // newest state whose commit has returned
	safe  int // oldest state that a power cut may lead to
	alive int // oldest state that the death of the process may lead to

	opened bool
	oneIn  int // of so many operations crash images are taken at one
	keeper *stepper
	snaps  []heldSnapshot
	guard  guardian
	busy   bool // the hook is at work
	fault  *fault
	full   int // times that the file could not grow any more
}

// heldSnapshot is a View transaction that stays open, and the state that it sees.
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

// hook makes the runner see each operation of its file system.
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
				r.alive = r.safe // the system drops what it could not write, or some of it
			}
			return err
		}
		if !r.busy && r.images <= 0 && r.besides > 0 && r.mergesAside() {
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

// mergesAside reports whether the tree lacks what is being merged aside.
func (r *runner) mergesAside() bool { return r.opened && r.db.engine.Merging() }

// open opens the database, which must have one of the states that are possible, and takes that one for the present state.
func (r *runner) open() error {
	r.opts = r.load.options(r.rng)
	if size := fileSize(r.mem); size > 0 && r.load.maxFile == 0 && r.rng.IntN(2) == 0 {
		r.opts.Store.MaxFileSize = size // the log must turn over in what there is
	}
	if r.rng.IntN(20) == 0 && r.hist.last() > 0 {
		if err := r.peek(); err != nil {
			return fmt.Errorf("read-only: %w", err)
		}
	}
	r.keeper = &stepper{}
	r.opts.Step = r.keeper.step
	db, err := openEngine(r.mem, crashPath, r.opts)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	r.db, r.opened = db, true
	r.acked = r.alive // for who looks while the redo is merged, which may write
	state, err := r.identify(db, r.alive)
	if err != nil {
		return fmt.Errorf("after open: %w", err)
	}
	r.hist.rewind(state)
	r.acked, r.safe, r.alive = state, state, state
	r.trace("%s: opened in state %d", r.name, state)
	if db.engine.Redoing() && r.rng.IntN(2) == 0 {
		r.leftPending++
		return nil // what comes next finds the redo pending
	}
	found := db.Stats().Recovery
	found.Time = 0
	r.trace("%s: recovered: %+v", r.name, found)
	if err := db.Check(context.Background()); err != nil {
		return fmt.Errorf("check after open: %w", err)
	}
	return nil
}

// peek opens the database read-only and looks at it.
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
		r.alive, r.safe = state, state // what was shown is on the disk, whatever the system shows
		err = db.Check(context.Background())
	}
	return errors.Join(err, db.Close())
}

// identify tells which state the database has, of those from least on.
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

// lookUp reads all records one by one, which does not wait for a pending redo.
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

// abandon ends a run as if the process died: nothing more is written.
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

// count adds up what the engines of a trial did.
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

// finish ends all transactions and background work under way.
func (r *runner) finish() {
	if r.keeper != nil {
		r.keeper.finish()
	}
	for _, s := range r.snaps {
		s.tx.Rollback()
	}
	r.snaps = nil
}
