package dbm

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
)

// A fault makes one operation fail, or that one and all later ones of its kind, even on handles opened later.
type fault struct {
	name   string
	kinds  []vfs.Kind
	err    error
	part   bool // the first half of a failing write is carried out
	sticky bool
	full   bool // if sticky, the device has no room from then on, so that even a write fails if its place has no space yet
	at     int  // number of the first operation that may fail, counted from 0
	seen   int
	struck int // how many operations have failed
	writes int // how many of these were writes

	phase string    // what is being done
	ops   []faultOp // operations seen
}

// faultOp is an operation that a fault may make fail.
type faultOp struct {
	kind  vfs.Kind
	phase string
}

var faults = []fault{
	{name: "EIO", err: syscall.EIO, kinds: []vfs.Kind{vfs.OpCreate, vfs.OpSyncDir, vfs.OpWrite, vfs.OpWriteVec, vfs.OpDatasync, vfs.OpWriteOut, vfs.OpAllocate, vfs.OpMap}},
	{name: "ENOSPC", err: syscall.ENOSPC, kinds: []vfs.Kind{vfs.OpCreate, vfs.OpWrite, vfs.OpWriteVec, vfs.OpAllocate}},
	{name: "half a write", err: syscall.EIO, part: true, kinds: []vfs.Kind{vfs.OpWrite, vfs.OpWriteVec}},
	{name: "half a write, then no space", err: syscall.ENOSPC, part: true, kinds: []vfs.Kind{vfs.OpWrite, vfs.OpWriteVec}},
	{name: "failed sync", err: syscall.EIO, kinds: []vfs.Kind{vfs.OpDatasync}},
	{name: "no room to grow", err: syscall.ENOSPC, full: true, kinds: []vfs.Kind{vfs.OpAllocate}}, // even for a place that has space, as on XFS
}

// strike returns an error if the operation is to fail.
func (f *fault) strike(op vfs.Op, m *vfs.Mem) error {
	if f == nil {
		return nil
	}
	f.ops = append(f.ops, faultOp{op.Kind, f.phase})
	f.seen++
	if f.seen <= f.at || (f.struck > 0 && !f.sticky) || !slices.Contains(f.kinds, op.Kind) {
		return nil
	}
	if f.struck++; f.full && f.sticky {
		m.SetMaxBytes(max(1, m.Used()))
	}
	if op.Kind == vfs.OpWrite || op.Kind == vfs.OpWriteVec {
		f.writes++
	}
	if f.part {
		return &vfs.ShortWrite{N: op.Len / 2, Err: f.err}
	}
	return f.err
}

// TestCrashFaults runs a tour through everything that the engine does, and makes each operation fail in turn, in
// each way, once or from then on.
func TestCrashFaults(t *testing.T) {
	struck := map[faultOp]int{}
	runs := 0
	n := forSeeds(t, 3, time.Minute, func(t *testing.T, seed uint64, end time.Time) { runs += testFaultSeed(t, seed, end, struck) }, nil)
	t.Logf("%d tours, %d faults", n, runs)
	var lines []string
	for op, times := range struck {
		lines = append(lines, fmt.Sprintf("%s: %v %d", op.phase, op.kind, times))
	}
	slices.Sort(lines)
	t.Log(strings.Join(lines, "; "))
	if n >= 3 && *crashTime > 0 && !t.Failed() {
		for _, phase := range []string{"open", "commit", "housekeeping", "checkpoint", "close", "recovery"} {
			require.NotZero(t, struck[faultOp{vfs.OpWrite, phase}]+struck[faultOp{vfs.OpWriteVec, phase}], "writes: %s", phase)
			require.True(t, phase == "housekeeping" || struck[faultOp{vfs.OpDatasync, phase}] > 0, "syncs: %s", phase)
		}
		require.NotZero(t, struck[faultOp{vfs.OpAllocate, "commit"}])
		require.NotZero(t, struck[faultOp{vfs.OpMap, "commit"}])
	}
}

// TestGrowthFailsTheCommit: a WriteThrough commit fails if the sync of new space does that the commit asks for after its
// own write. That sync may have lost what the commit wrote, and a kill shows it.
func TestGrowthFailsTheCommit(t *testing.T) {
	f := faults[0]
	f.at = 123
	runFault(t, 96000002, &f)
	require.Equal(t, 1, f.struck)
	require.Equal(t, faultOp{vfs.OpDatasync, "commit"}, f.ops[f.at])
}

// testFaultSeed runs the tour of a seed once for each fault and each operation that it can affect, in random order and
// as long as there is time. Without a time or a seed from the command line, it runs at most 150 of them.
func testFaultSeed(t *testing.T, seed uint64, end time.Time, struck map[faultOp]int) (runs int) {
	none := &fault{}
	runFault(t, seed, none)
	order := rand.New(rand.NewPCG(seed, 2))
	var all []fault
	for _, f := range faults {
		for at, op := range none.ops {
			if slices.Contains(f.kinds, op.kind) {
				for _, f.sticky = range []bool{false, true} {
					f.at = at
					all = append(all, f)
				}
			}
		}
	}
	order.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if *crashTime == 0 && *crashSeed == 0 {
		all = all[:min(len(all), 150)]
	}
	for _, f := range all {
		if time.Now().After(end) || t.Failed() {
			break
		}
		runs++
		t.Run(fmt.Sprintf("%s at %d, sticky %v", f.name, f.at, f.sticky), func(t *testing.T) { runFault(t, seed, &f) })
		struck[none.ops[f.at]]++
	}
	return runs
}

// runFault runs the tour of a seed with one fault.
func runFault(t *testing.T, seed uint64, f *fault) {
	isolate(t, seed, nil, func(t *testing.T) {
		c := newTrial(seed)
		if f.struck, f.writes = 0, 0; *crashTrace {
			c.trace("%+v", *c.load)
		}
		r := newRunner(c, c.stream(3), vfs.NewMem(0))
		r.mem.SetLoss(vfs.Loss(r.dice.IntN(3)), seed)
		r.fault = f
		err := r.tour()
		if err != nil && f.struck > 0 {
			c.trace("struck: %v", err)
			err = r.afterFault(err)
		} else if err == nil && f.struck > 0 && !errors.Is(f.err, syscall.ENOSPC) {
			err = fmt.Errorf("nobody was told of: %s in %v", f.name, f.ops[f.at])
		}
		c.fail(r, err)
		r.abandon()
		r.mem.Release()
		c.report(t)
	})
}

// tour does some of everything: it creates a database, makes commits of all sizes while the file grows, batches,
// background work step by step and checkpoints, recovers after a power failure and after a kill, with and without
// redo, and closes cleanly.
func (r *runner) tour() error {
	enter := func(phase string) {
		if r.fault != nil {
			r.fault.phase = phase
		}
	}
	do := func(phase string, fn func() error) func() error {
		return func() error {
			enter(phase)
			return fn()
		}
	}
	commit := do("commit", func() error { return r.commit(r.load.draw(r.rng, r.mem)) })
	work := do("housekeeping", func() error {
		if err := r.housekeep(); err != nil {
			return err
		}
		for range 1 + r.rng.IntN(4) {
			if err := r.unlessFull(r.background.advance()); err != nil {
				return err
			}
		}
		return nil
	})
	checkpoint := do("checkpoint", func() error {
		if err := r.unlessFull(r.background.finish()); err != nil {
			return err
		}
		if err := r.checkpoint(); err != nil {
			return err
		}
		return r.unlessFull(r.background.finish())
	})
	batch := do("commit", r.batch)
	r.load.maxFile, r.load.redoLimit = 1<<30, int64(1)<<(14+r.rng.IntN(4))
	r.load.ops = min(r.load.ops, 20)
	for i, step := range []func() error{
		do("open", r.open), commit, commit, checkpoint, commit, batch, work, commit, work, commit, work, r.hold, do("commit", r.large), checkpoint,
		commit, work, batch, work, do("commit", r.clear), work, checkpoint, commit, commit, do("recovery", r.killed), commit, work, commit,
		do("recovery", r.crash), r.look, commit, do("sync", r.sync), checkpoint, commit, do("recovery", r.killed), commit, checkpoint,
		checkpoint, commit, do("close", r.reopen), commit, do("verify", r.verify), do("close", r.giveBack),
	} {
		r.trace("tour: %d", i)
		if err := step(); err != nil {
			return fmt.Errorf("step %d of the tour: %w", i, err)
		}
		if r.err != nil {
			return r.err
		}
		if r.full > 0 && r.fault != nil && r.opened {
			if err := r.makeRoom(); err != nil {
				return err
			}
		}
	}
	enter("close")
	return r.reopen()
}

// large commits a value that is stored in private segments, in some tours.
func (r *runner) large() error {
	if r.rng.IntN(3) != 0 {
		return nil
	}
	return r.commit([]op{{key: []byte(r.load.key(0)), value: randomBytes(r.rng, 1<<20+r.rng.IntN(1<<17))}})
}

// leastTurning is the least number of segments with which a log can reuse its file: the tail, its successor, two
// checkpoints and a flush.
const leastTurning = 6

// makeRoom deletes a record of a database on a full disk. This must succeed, except in a file that never had the
// reserve, or if the system refuses all writes, as it did when the engine tried to find space that it already has.
func (r *runner) makeRoom() error {
	if r.fault.sticky && r.fault.writes > 0 || fileSize(r.mem) < leastTurning*int64(r.load.segmentPages)*logstore.PageSize {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(r.hist.tip)) {
		if len(key) > 1000 {
			continue
		}
		full := r.full
		if err := r.commit([]op{{key: []byte(key)}}); err != nil || r.full == full {
			return err
		}
		// What an open transaction sees stays, which may be all of a small file.
		for _, s := range r.snaps {
			s.tx.Rollback()
		}
		r.snaps = nil
		if err := r.unlessFull(r.background.finish()); err != nil {
			return err
		}
		full = r.full
		if err := r.commit([]op{{key: []byte(key)}}); err != nil || r.full == full {
			return err
		}
		return fmt.Errorf("no room to delete %.20q: %+v", key, r.db.Stats())
	}
	return nil
}

// TestCrashFailedGrowth: the sync of a growth of the file fails, and the system then assumes that more is durable
// than is. Another handle sees the longer file and uses it. It must not lose it.
func TestCrashFailedGrowth(t *testing.T) {
	mem := vfs.NewMem(0)
	defer mem.Release()
	o := (&load{segmentPages: 8, memoryLimit: 1 << 20, redoLimit: 1 << 20}).options(rand.New(rand.NewPCG(1, 1)))
	db, err := openEngine(mem, crashPath, o)
	require.NoError(t, err)
	grows := false
	mem.OnOp(func(op vfs.Op) error {
		grows = grows || op.Kind == vfs.OpAllocate
		if grows && op.Kind == vfs.OpDatasync {
			return syscall.EIO
		}
		return nil
	})
	require.ErrorIs(t, db.Update(func(tx *Tx) error {
		for i := range 10 {
			require.NoError(t, tx.Put([]byte{byte(i)}, make([]byte, 15000)))
		}
		return nil
	}), ErrFailed)
	db.Close() // it may or may not report the failure
	mem.OnOp(nil)
	db, err = openEngine(mem, crashPath, o)
	require.NoError(t, err)
	defer db.Close()
	for i := range 60 {
		require.NoError(t, db.Put([]byte{100, byte(i)}, make([]byte, 1500)))
		image := mem.Crash(vfs.KeepNone, 1)
		cut, err := openEngine(image, crashPath, o)
		require.NoError(t, err)
		_, err = cut.Get([]byte{100, byte(i)})
		require.NoError(t, err, "record %d, in a file of %d bytes where there were %d", i, fileSize(image), fileSize(mem))
		require.NoError(t, cut.Close())
		image.Release()
	}
}

// afterFault examines the state after an action has failed with the given error.
func (r *runner) afterFault(cause error) error {
	if !errors.Is(cause, r.fault.err) || errors.Is(cause, ErrCorrupt) {
		return fmt.Errorf("wrong error: %w", cause)
	}
	if r.opened {
		if err := r.poisoned(cause); err != nil {
			return err
		}
	}
	r.fault = nil
	r.mem.SetMaxBytes(0)
	r.abandon()
	r.opened = false
	r.hook()
	// The process continues with another handle, or dies, or the power fails, each time with what the fault has
	// left.
	r.images, r.oneIn = 6, 20
	r.image("kill", r.mem.Clone, true)
	for range 4 {
		p, seed := vfs.Policies()[r.rng.IntN(len(vfs.Policies()))], r.rng.Uint64()
		r.image(fmt.Sprint(p), func() *vfs.Mem { return r.mem.Crash(p, seed) }, false)
	}
	if r.err != nil {
		return r.err
	}
	r.images = 3
	if err := r.open(); err != nil {
		return fmt.Errorf("with another handle: %w", err)
	}
	for range 5 + r.rng.IntN(30) {
		if err := r.act(); err != nil {
			return fmt.Errorf("with another handle: %w", err)
		}
	}
	return r.verify()
}

// mayBeLost reports whether a read returned the error for a value that was not synced before a failure. In Durable
// mode, no such values are shown.
func (r *runner) mayBeLost(err error) bool {
	return Durability(r.opts.Durability) != Durable && errors.Is(err, ErrFailed)
}

// poisoned checks that a handle that has failed refuses to write, and shows only what is durable.
func (r *runner) poisoned(cause error) error {
	if r.db.engine.Failed() == nil {
		return fmt.Errorf("the handle has not failed: %w", cause)
	}
	if !errors.Is(cause, ErrFailed) {
		return fmt.Errorf("not ErrFailed: %w", cause)
	}
	r.background.finish()
	if err := r.db.Put([]byte("k"), []byte("v")); !errors.Is(err, ErrFailed) {
		return fmt.Errorf("Put after a failure: %w", err)
	}
	if err := r.db.Sync(); !errors.Is(err, ErrFailed) {
		return fmt.Errorf("Sync after a failure: %w", err)
	}
	if err := r.db.Checkpoint(); !errors.Is(err, ErrFailed) {
		return fmt.Errorf("Checkpoint after a failure: %w", err)
	}
	if err := r.checkVisible(); err != nil {
		return err
	}
	for range 2 { // the second time, everything that was not synced is gone
		if _, err := r.identify(r.db, r.acked); err != nil && !r.mayBeLost(err) {
			return fmt.Errorf("reading after a failure: %w", err)
		}
		if r.rng.IntN(2) == 0 {
			break // another handle or the next process may still find it in the cache
		}
		r.mem.Evict()
	}
	for len(r.snaps) > 0 {
		if err := r.look(); err != nil {
			return err
		}
	}
	return nil
}
