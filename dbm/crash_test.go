package dbm

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"testing/cryptotest"
	"time"

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
	replay := fmt.Sprintf("replay: go test ./dbm -run TestCrash -crash.seed=%d", seed)
	cryptotest.SetGlobalRandom(t, seed)
	hang := time.AfterFunc(crashHang, func() { panic("hangs; " + replay) })
	defer hang.Stop()
	rng := rand.New(rand.NewPCG(seed, 0))
	c := &trial{seed: seed, load: drawLoad(rng), images: 150, trace: func(string, ...any) {}}
	if *crashTrace {
		c.trace = func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	}
	mem := vfs.NewMem(0)
	r := newRunner(c, rng, mem)
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintln(os.Stderr, replay)
			panic(p)
		}
	}()
	err := r.script()
	c.fail(r, err)
	r.abandon()
	r.mem.Release()
	if c.err != nil {
		t.Fatalf("%v\n%+v\n%s", c.err, *c.load, replay)
	}
	d := &c.did
	t.Logf("%d images, %d commits, groups: %d record, %d page, %d flush; %d flushes, %d folds, %d checkpoints; %d pages written, at most %d live of %d, %d times full",
		c.taken, d.Commits, d.RecordGroups, d.PageGroups, d.FlushGroups, d.Flushes, d.Folds, d.Checkpoints, d.PagesWritten, d.LiveBytes/4096, d.FileBytes/4096, c.full)
	return c.taken
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
