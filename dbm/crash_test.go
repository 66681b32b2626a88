package dbm

import (
	"flag"
	"fmt"
	"hash"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
)

var (
	crashSeed  = flag.Uint64("crash.seed", 0, "run this seed of the crash test alone")
	crashTime  = flag.Duration("crash.time", 0, "run the crash test for so long")
	crashFrom  = flag.Uint64("crash.from", 1, "first seed of the crash test")
	crashTrace = flag.Bool("crash.trace", false, "print what the crash test does")

	crashSteps  = flag.Int("crash.steps", 60, "steps of the scripts whose every operation is a crash")
	crashImages = flag.Int("crash.images", 500, "images of each of these scripts")
	crashKeep   = flag.String("crash.keep", "", "take these steps of the script only: 0-3,7")
	crashShrink = flag.Duration("crash.shrink", 30*time.Second, "how long to look for the least part of a script that fails")
)

// tellingSeeds are scripts of TestCrash that find bugs which the first twelve seeds do not find: deletes that are
// not redone (13), private segments and layers that are not synced, layers that are redone out of order (20),
// segments that are reused too early (24). Mutants with these bugs name TestCrash.
var tellingSeeds = []uint64{13, 20, 24}

const crashHang = time.Minute // longer than any image takes

var crashProgress atomic.Int64 // number of images so far

// TestCrash runs random scripts on a file system in memory, and compares what crashes at any operation leave with a
// model.
func TestCrash(t *testing.T) {
	const fewest, most = 5000, 10_000 // images: until everything that the engine does has happened; make crash takes hundreds of thousands
	var all census
	enough := func() bool {
		return all.enough(most)() || all.enough(fewest)() && (testing.Short() || len(all.missing()) == 0)
	}
	n := forSeeds(t, math.MaxInt, 4*time.Minute, func(t *testing.T, seed uint64, _ time.Time) {
		all.add(crashTrial(t, seed, (*trial).drawMode))
	}, enough)
	if *crashTime == 0 && *crashSeed == 0 && *crashFrom == 1 && !testing.Short() {
		for _, seed := range tellingSeeds {
			t.Run(fmt.Sprint(seed), func(t *testing.T) { all.add(crashTrial(t, seed, (*trial).drawMode)) })
		}
	}
	all.report(t, n)
	if all.images >= fewest && *crashSeed == 0 {
		require.Empty(t, all.missing(), "did not happen")
	}
}

// TestCrashEveryOperation simulates a power failure at every operation of a part of a script, after which none,
// all, or two different parts of the unsynced data remain, and the death of the process at some operations. As a
// long script has 20,000 operations and an image of a large database takes long, the number of images per script is
// limited. Half of the scripts are examined from their beginning, the others from a later step on.
func TestCrashEveryOperation(t *testing.T) {
	var all census
	n := forSeeds(t, 4, time.Minute, func(t *testing.T, seed uint64, _ time.Time) {
		all.add(crashTrial(t, seed, func(c *trial, rng *rand.Rand) {
			c.mode, c.images, c.load.steps = everyOperation, *crashImages, *crashSteps
			steps := c.load.preload + c.load.steps
			c.from = max(0, rng.IntN(2*steps)-steps)
		}))
	}, nil)
	all.report(t, n)
}

// TestCrashReplays: a seed that fails is useful only if it fails again.
func TestCrashReplays(t *testing.T) {
	inTurn(t)
	for seed := range uint64(2) {
		var traces [2]hash.Hash64
		for i := range traces {
			h := fnv.New64a()
			traces[i] = h
			isolate(t, seed+1, nil, func(t *testing.T) {
				c := newTrial(seed + 1)
				c.trace = func(format string, args ...any) { fmt.Fprintf(h, format+"\n", args...) }
				c.images = 60
				require.NoError(t, c.run())
			})
		}
		require.Equal(t, traces[0].Sum64(), traces[1].Sum64(), "seed %d", seed+1)
	}
}

// forSeeds runs a test with successive seeds until the time is over or enough returns true, and returns how many.
// Flags can set the number or choose a single seed. The garbage collector is restrained: with many short-lived
// databases of little memory, it would run all the time.
func forSeeds(t *testing.T, count int, limit time.Duration, test func(t *testing.T, seed uint64, end time.Time), enough func() bool) (n int) {
	percent, most, rate := debug.SetGCPercent(-1), debug.SetMemoryLimit(512<<20), runtime.MemProfileRate
	runtime.MemProfileRate = 0
	defer func() { debug.SetGCPercent(percent); debug.SetMemoryLimit(most); runtime.MemProfileRate = rate }()
	first := *crashFrom
	switch {
	case *crashSeed != 0:
		first, count, limit = *crashSeed, 1, time.Hour
	case *crashTime > 0:
		count, limit = math.MaxInt, *crashTime
	case testing.Short() && raceEnabled:
		t.Skip("the steps follow one another here, each after the one before: nothing for the race detector to see")
	case testing.Short():
		limit /= 8
		if count != math.MaxInt {
			count = (count + 7) / 8
		}
	}
	for end := time.Now().Add(limit); n < count && time.Now().Before(end) && !t.Failed() && (enough == nil || !enough()); n++ {
		seed := first + uint64(n)
		t.Run(fmt.Sprint(seed), func(t *testing.T) { test(t, seed, end) })
	}
	return n
}

// crashTrial runs the script of a seed. If it fails, it looks for the smallest part of the script that fails.
func crashTrial(t *testing.T, seed uint64, mode func(*trial, *rand.Rand)) *trial {
	var kept, c *trial
	run := func(kept *trial) *trial {
		isolate(t, seed, kept, func(*testing.T) {
			c = newTrial(seed)
			mode(c, c.stream(-2))
			if kept != nil {
				c.keep = kept.keep
			}
			c.fail(nil, c.run())
		})
		return c
	}
	if *crashKeep != "" {
		kept = &trial{keep: parseSteps(t, *crashKeep)}
	}
	if run(kept); c.err != nil && kept == nil && *crashShrink > 0 {
		c = shrink(c, run, time.Now().Add(*crashShrink))
	}
	c.report(t)
	return c
}

// isolate runs the test of one seed. The engine's randomness is derived from the seed, and time passes only while
// all goroutines wait. If the test hangs or panics, isolate reports how to repeat it.
func isolate(t *testing.T, seed uint64, kept *trial, test func(*testing.T)) {
	replay := replayLine(t, seed, kept)
	done := make(chan struct{})
	defer close(done)
	go watch(done, replay)
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintln(os.Stderr, replay)
			panic(p)
		}
	}()
	cryptotest.SetGlobalRandom(t, seed)
	failed := t.Failed()
	synctest.Test(t, test)
	if t.Failed() && !failed {
		t.Log(replay)
	}
}

// watch panics if there has been no progress for long. It counts seconds during which it ran, so that a process
// that was stopped for a while is not taken for one that hangs.
func watch(done chan struct{}, replay string) {
	idle, last := time.Duration(0), crashProgress.Load()
	for idle < crashHang {
		select {
		case <-done:
			return
		case <-time.After(time.Second):
		}
		idle += time.Second
		if now := crashProgress.Load(); now != last {
			idle, last = 0, now
		}
	}
	panic("hangs; " + replay)
}

func replayLine(t *testing.T, seed uint64, kept *trial) string {
	name, _, _ := strings.Cut(t.Name(), "/")
	line := fmt.Sprintf("replay: go test ./dbm -run '^%s$' -crash.seed=%d", name, seed)
	if name == "TestCrashEveryOperation" {
		line += fmt.Sprintf(" -crash.steps=%d -crash.images=%d", *crashSteps, *crashImages)
	}
	if kept != nil && kept.keep != nil {
		line += " -crash.keep=" + kept.keep.String()
	}
	return line
}

// newTrial draws what a seed writes. The trial does not examine anything yet.
func newTrial(seed uint64) *trial {
	c := &trial{seed: seed, trace: func(string, ...any) {}, known: map[uint64]fingerprint{}}
	c.load = drawLoad(c.stream(-1))
	if *crashTrace {
		c.trace = func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	}
	return c
}

// stream returns the source of randomness for step n of the main script. Each step has its own, so that it does the
// same, as far as possible, if other steps are left out.
func (c *trial) stream(n int) *rand.Rand { return rand.New(rand.NewPCG(c.seed, uint64(int64(n)))) }

// run runs the trial.
func (c *trial) run() error {
	r := newRunner(c, c.stream(0), vfs.NewMem(0))
	defer func() {
		r.abandon()
		r.mem.Release()
	}()
	if err := r.script(); err != nil && c.err == nil {
		return fmt.Errorf("main: %w", err)
	}
	return c.err
}

// report ends the test of a trial and reports its failure.
func (c *trial) report(t *testing.T) {
	if c.err != nil {
		t.Fatalf("%s\n%v\n%+v", replayLine(t, c.seed, c), c.err, c.load)
	}
	d := &c.did
	t.Logf("%v: %d images, %d commits, groups: %d record, %d page, %d flush; %d flushes, %d folds, %d checkpoints; %d pages written, at most %d live of %d, %d times full; %d given back, %d cleaned; %d times left with redo pending",
		c.mode, c.taken, d.Commits, d.RecordGroups, d.PageGroups, d.FlushGroups, d.Flushes, d.Folds, d.Checkpoints, d.PagesWritten,
		d.LiveBytes/logstore.PageSize, d.FileBytes/logstore.PageSize, c.timesFull, d.ReturnedBytes/logstore.PageSize, d.PagesCleaned, c.leftPending)
}

// script opens the database and runs the steps of the main script.
func (r *runner) script() error {
	if err := r.open(); err != nil {
		return err
	}
	for i := range r.load.preload + r.load.steps {
		if !r.keep.has(i) {
			continue
		}
		r.rng, r.dice = r.stream(i+1), r.stream(1<<32+i)
		r.step = i
		if i == 0 && r.load.even > 0 {
			for ops := range slices.Chunk(r.load.drawAll(r.rng), 100) { // looks in the middle of a commit would wait for the merge of a larger batch
				if err := r.commit(ops); err != nil {
					return fmt.Errorf("fill: %w", err)
				}
			}
		}
		if i >= r.load.preload {
			if err := r.act(); err != nil {
				return fmt.Errorf("step %d: %w", i, err)
			}
		} else if err := r.commit(r.load.draw(r.rng, r.mem)); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	if err := r.verify(); err != nil {
		return err
	}
	r.census.look(r)
	if err := r.reopen(); err != nil {
		return err
	}
	return r.giveBack()
}

// giveBack empties the database and checks that its space can be reused.
func (r *runner) giveBack() error {
	full := r.full
	if err := r.commit(r.load.drawClearing(r.rng, r.load.keys)); err != nil || r.full > full {
		return err
	}
	for range 4 {
		if err := r.unlessFull(r.db.Checkpoint()); err != nil {
			return err
		}
		r.returned()
	}
	// The log's tail and its successor, two checkpoints and the rest of the tree may each take a segment or two.
	used, all := 0, r.db.Segments()
	for _, x := range all {
		if x.Kind != SegmentFree && x.Kind != SegmentAbsent {
			used++
		}
	}
	if used > 12 && r.full == full {
		return fmt.Errorf("%d of %d segments are in use in an empty database: %+v", used, len(all), r.db.Stats())
	}
	return nil
}
