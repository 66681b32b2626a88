package dbm

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
)

var (
	crashSeed  = flag.Uint64("crash.seed", 0, "run this seed of the crash test alone")
	crashTime  = flag.Duration("crash.time", 0, "run the crash test for so long")
	crashFrom  = flag.Uint64("crash.from", 1, "first seed of the crash test")
	crashTrace = flag.Bool("crash.trace", false, "print what the crash test does")
)

const crashHang = time.Minute // longer than any seed takes

// TestCrash runs random scripts on a file system in memory and compares what crashes at any of its operations leave with a model.
func TestCrash(t *testing.T) {
	if *crashSeed != 0 {
		testCrashSeed(t, *crashSeed)
		return
	}
	limit := 12 * time.Second
	if testing.Short() {
		limit = 3 * time.Second
	}
	if *crashTime > 0 {
		limit = *crashTime
	}
	images, n := 0, 0
	for end := time.Now().Add(limit); time.Now().Before(end) && !t.Failed(); n++ {
		seed := *crashFrom + uint64(n)
		t.Run(fmt.Sprint(seed), func(t *testing.T) { images += testCrashSeed(t, seed) })
	}
	t.Logf("%d seeds, %d images", n, images)
}

func testCrashSeed(t *testing.T, seed uint64) (images int) {
	isolate(t, seed, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 0))
		c := newTrial(rng)
		c.images = 150
		r := newRunner(c, rng, vfs.NewMem(0))
		r.oneIn += c.load.steps / 30
		c.fail(r, r.script())
		r.abandon()
		r.mem.Release()
		c.report(t)
		images = c.taken
	})
	return images
}

// isolate runs a test of one seed with randomness of the engine that follows from the seed, and time that passes only while everybody
// waits. A failure says how to repeat it.
func isolate(t *testing.T, seed uint64, test func(*testing.T)) {
	name, _, _ := strings.Cut(t.Name(), "/")
	replay := fmt.Sprintf("replay: go test ./dbm -run '%s$' -crash.seed=%d", name, seed)
	hang := time.AfterFunc(crashHang, func() { panic("hangs; " + replay) })
	defer hang.Stop()
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintln(os.Stderr, replay)
			panic(p)
		}
	}()
	cryptotest.SetGlobalRandom(t, seed)
	synctest.Test(t, test)
	if t.Failed() {
		t.Log(replay)
	}
}

func newTrial(rng *rand.Rand) *trial {
	c := &trial{load: drawLoad(rng), trace: func(string, ...any) {}}
	if *crashTrace {
		c.trace = func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	}
	return c
}

// report ends the test of a trial.
func (c *trial) report(t *testing.T) {
	if c.err != nil {
		t.Fatalf("%v\n%+v", c.err, *c.load)
	}
	d := &c.did
	t.Logf("%d images, %d commits, groups: %d record, %d page, %d flush; %d flushes, %d folds, %d checkpoints; %d pages written, at most %d live of %d, %d times full",
		c.taken, d.Commits, d.RecordGroups, d.PageGroups, d.FlushGroups, d.Flushes, d.Folds, d.Checkpoints, d.PagesWritten,
		d.LiveBytes/logstore.PageSize, d.FileBytes/logstore.PageSize, c.full)
}

// script opens the database and takes the steps of the main script.
func (r *runner) script() error {
	if err := r.open(); err != nil {
		return err
	}
	for range r.load.preload {
		if err := r.commit(r.load.draw(r.rng, r.mem)); err != nil {
			return err
		}
	}
	for range r.load.steps {
		if err := r.act(); err != nil {
			return err
		}
	}
	if err := r.verify(); err != nil {
		return err
	}
	return r.reopen()
}
