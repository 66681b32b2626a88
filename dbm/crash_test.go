package dbm

import (
	"flag"
	"fmt"
	"math"
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
	images := 0
	n := forSeeds(t, 40, 20*time.Second, func(t *testing.T, seed uint64, _ time.Time) { images += testCrashSeed(t, seed) })
	t.Logf("%d seeds, %d images", n, images)
}

// forSeeds runs a test with so many seeds, or as many as there is time for, and returns how many. Flags can ask for more, or for one.
func forSeeds(t *testing.T, count int, limit time.Duration, test func(t *testing.T, seed uint64, end time.Time)) (n int) {
	first := *crashFrom
	switch {
	case *crashSeed != 0:
		first, count, limit = *crashSeed, 1, time.Hour
	case *crashTime > 0:
		count, limit = math.MaxInt, *crashTime
	case testing.Short():
		count, limit = (count+7)/8, limit/8
	}
	for end := time.Now().Add(limit); n < count && time.Now().Before(end) && !t.Failed(); n++ {
		seed := first + uint64(n)
		t.Run(fmt.Sprint(seed), func(t *testing.T) { test(t, seed, end) })
	}
	return n
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
		d.LiveBytes/logstore.PageSize, d.FileBytes/logstore.PageSize, c.timesFull)
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
	if err := r.reopen(); err != nil {
		return err
	}
	return r.giveBack()
}

// giveBack empties the database and makes sure that its space can be used again.
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
	// The log's tail and its successor, two checkpoints and what is left of the tree may each keep a segment or two.
	s := r.db.Stats()
	page := int64(logstore.PageSize)
	segments := s.FileBytes / (int64(r.load.segmentPages) * page)
	free := s.FreeBytes / (int64(r.load.segmentPages-1) * page) // each has a header
	if segments-free > 12 && r.full == full {
		return fmt.Errorf("%d of %d segments are in use in an empty database: %+v", segments-free, segments, s)
	}
	return nil
}
