package dbm

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// A fault makes an operation fail, or that one and all of its kind that follow while the handle is open.
type fault struct {
	name   string
	kinds  []vfs.Kind
	err    error
	part   bool // of a write the first half is carried out
	sticky bool
	at     int // the first operation seen that may fail; operations are counted from 0
	seen   int
	struck int // times that it has struck
}

var faults = []fault{
	{name: "EIO", err: syscall.EIO, kinds: []vfs.Kind{vfs.OpCreate, vfs.OpSyncDir, vfs.OpWrite, vfs.OpWriteVec, vfs.OpDatasync, vfs.OpWriteOut, vfs.OpAllocate, vfs.OpMap}},
	{name: "ENOSPC", err: syscall.ENOSPC, kinds: []vfs.Kind{vfs.OpCreate, vfs.OpWrite, vfs.OpWriteVec, vfs.OpAllocate}},
	{name: "half a write", err: syscall.EIO, part: true, kinds: []vfs.Kind{vfs.OpWrite, vfs.OpWriteVec}},
	{name: "half a write, then no space", err: syscall.ENOSPC, part: true, kinds: []vfs.Kind{vfs.OpWrite, vfs.OpWriteVec}},
	{name: "failed sync", err: syscall.EIO, kinds: []vfs.Kind{vfs.OpDatasync}},
	{name: "no room to grow", err: syscall.ENOSPC, kinds: []vfs.Kind{vfs.OpAllocate}},
}

// strike returns the error of an operation that is to fail.
func (f *fault) strike(op vfs.Op) error {
	if f == nil {
		return nil
	}
	f.seen++
	if f.seen <= f.at || (f.struck > 0 && !f.sticky) || !slices.Contains(f.kinds, op.Kind) {
		return nil
	}
	f.struck++
	if f.part {
		return &vfs.ShortWrite{N: op.Len / 2, Err: f.err}
	}
	return f.err
}

// TestCrashFaults lets each operation of a script fail in turn, in each way, once and from then on.
func TestCrashFaults(t *testing.T) {
	runs := 0
	n := forSeeds(t, 6, 8*time.Second, func(t *testing.T, seed uint64, end time.Time) { runs += testFaultSeed(t, seed, end) }, nil)
	t.Logf("%d scripts, %d faults", n, runs)
}

// testFaultSeed runs one script with each fault at each operation, as long as there is time.
func testFaultSeed(t *testing.T, seed uint64, end time.Time) (runs int) {
	none := &fault{}
	runFault(t, seed, none)
	order := rand.New(rand.NewPCG(seed, 2))
	var all []fault
	for _, f := range faults {
		for at := range none.seen {
			f.at = at
			f.sticky = order.IntN(2) == 0
			all = append(all, f)
		}
	}
	order.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, f := range all[:min(len(all), 150)] {
		if time.Now().After(end) || t.Failed() {
			break
		}
		runs++
		t.Run(fmt.Sprintf("%s at %d, sticky %v", f.name, f.at, f.sticky), func(t *testing.T) { runFault(t, seed, &f) })
	}
	return runs
}

// runFault runs the script of a seed with one fault.
func runFault(t *testing.T, seed uint64, f *fault) {
	isolate(t, seed, nil, func(t *testing.T) {
		c := newTrial(seed)
		rng := c.stream(3)
		c.load.steps, c.load.preload = 10+rng.IntN(20), 0
		r := newRunner(c, rng, vfs.NewMem(0))
		r.fault = f
		err := r.script()
		if err != nil && f.struck > 0 {
			c.trace("struck: %v", err)
			err = r.afterFault(err)
		}
		c.fail(r, err)
		r.abandon()
		r.mem.Release()
		c.report(t)
	})
}

// TestCrashFailedGrowth: the sync of a growth fails, and what the system then takes for durable is not. Another handle sees the larger
// file, uses it and must not lose it.
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
	db.Close() // tells of the failure or not
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

// afterFault looks at what is left once an action has failed with the given error.
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
	r.abandon()
	r.opened = false
	r.hook()
	// The process goes on with another handle, or dies, or the power fails; each time with what the fault has left.
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

// poisoned makes sure that a failed handle refuses to write and shows what is durable, and nothing that may be lost.
func (r *runner) poisoned(cause error) error {
	if r.db.engine.Failed() == nil {
		return fmt.Errorf("the handle has not failed: %w", cause)
	}
	if !errors.Is(cause, ErrFailed) {
		return fmt.Errorf("not ErrFailed: %w", cause)
	}
	r.keeper.finish()
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
	if _, err := r.identify(r.db, r.acked); err != nil {
		return fmt.Errorf("reading after a failure: %w", err)
	}
	for len(r.snaps) > 0 {
		if err := r.look(); err != nil {
			return err
		}
	}
	return nil
}
