package dbm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/cryptotest"
	"time"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
)

// A specimen is a small database with pages of all kinds that is to be damaged.
type specimen struct {
	name   string
	closed bool // it was closed cleanly
	load   *load
	file   []byte
	hist   *history
	oldest int // oldest state that may be shown instead of the last: damage to later groups may look like a torn tail
}

// newSpecimen makes a database of a few hundred kilobytes. If it is closed, it ends with a checkpoint, which covers
// all of it. Otherwise it is in the state in which a killed process leaves it.
func newSpecimen(t testing.TB, closed, small bool) *specimen {
	cryptotest.SetGlobalRandom(t.(*testing.T), 1)
	l := &load{segmentPages: 8, keys: 60, style: 2, longEvery: 9, ops: 4, deletes: 15, big: 60 << 10, bigShare: 60, middle: 15,
		memoryLimit: 1 << 20, redoLimit: 1 << 20, stepPages: 3}
	before, after := 12, 6 // number of transactions before and after a checkpoint
	s := &specimen{name: "left", load: l, closed: closed}
	if closed {
		s.name = "closed"
	}
	if small {
		s.name = "small-" + s.name
		l.keys, l.style, l.longEvery, l.big, l.bigShare, l.middle = 6, 3, 0, 6<<10, 60, 0
		before, after = 2, 2
	}
	c := &trial{load: l, trace: func(string, ...any) {}, known: map[uint64]fingerprint{}}
	r := newRunner(c, rand.New(rand.NewPCG(7, 7)), vfs.NewMem(0))
	defer func() { r.mem.Release() }()
	do := func(f func() error) {
		if err := f(); err != nil {
			t.Fatal(err)
		}
	}
	do(r.open)
	for range before {
		do(func() error { return r.commit(l.draw(r.rng, r.mem)) })
	}
	do(r.db.Checkpoint)
	s.oldest = r.hist.last()
	for range after {
		do(func() error { return r.commit(l.draw(r.rng, r.mem)) })
	}
	do(func() error { return r.commit([]op{{key: []byte(l.key(1)), value: []byte("alone")}}) })
	if closed {
		do(r.db.Close)
		s.oldest = r.hist.last()
	} else {
		r.abandon()
	}
	s.file, s.hist = content(r.mem, 0, fileSize(r.mem)), r.hist
	return s
}

// mem returns a file system with the first size bytes of the database, all of them durable.
func (s *specimen) mem(size int) *vfs.Mem {
	m := vfs.NewMem(0)
	m.WithoutCrashes()
	f, err := m.Open(crashPath, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	if size > 0 {
		if _, err := f.WriteAt(s.file[:size], 0); err != nil {
			panic(err)
		}
	}
	if err := errors.Join(f.Datasync(), m.SyncDir(crashPath)); err != nil {
		panic(err)
	}
	return m
}

// judge opens a damaged database read-only and then for writing. The database must be refused, or show the last
// state or one that a torn tail may leave. Records that were shown must be right even if damage is found
// afterwards.
func (s *specimen) judge(mem *vfs.Mem, oldest int) (refused bool, err error) {
	for _, readOnly := range []bool{true, false} {
		if refused, err = s.judgeOpen(mem, oldest, readOnly); err != nil {
			break
		}
	}
	return refused, err
}

// damageMemory is how many bytes beyond MemoryLimit a damaged file may make an open and the reading of everything
// allocate.
const damageMemory = 64 << 20

func (s *specimen) judgeOpen(mem *vfs.Mem, oldest int, readOnly bool) (refused bool, err error) {
	o := s.load.options(rand.New(rand.NewPCG(1, 1)))
	o.Store.ReadOnly = readOnly
	return frugal(s.load.memoryLimit+damageMemory, func() (bool, error) {
		db, err := openEngine(mem, crashPath, o)
		if err != nil {
			return true, damageOnly(err)
		}
		defer db.Close()
		f, err := scan(db, nil)
		if err != nil {
			return true, damageOnly(err)
		}
		if s.hist.find(f, oldest, s.hist.last()) < 0 {
			found := map[string][]byte{}
			scan(db, found)
			return false, errors.New(s.hist.explain(found, f, oldest, s.hist.last()))
		}
		if err := db.Check(context.Background()); err != nil {
			return true, damageOnly(err)
		}
		for n := range s.load.keys {
			key := s.load.key(n)
			if _, err := db.Get([]byte(key)); err != nil && !errors.Is(err, ErrNotFound) {
				return false, fmt.Errorf("a check found nothing, but: %w", err)
			}
		}
		return false, nil
	})
}

// frugal calls fn, which must not panic and must not allocate more than the given number of bytes, and reports
// progress.
func frugal(most int64, fn func() (bool, error)) (refused bool, err error) {
	crashProgress.Add(1)
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	refused, err = fn()
	runtime.ReadMemStats(&after)
	if n := int64(after.TotalAlloc - before.TotalAlloc); err == nil && n > most {
		err = fmt.Errorf("%d bytes allocated", n)
	}
	return refused, err
}

func damageOnly(err error) error {
	if errors.Is(err, ErrCorrupt) || errors.Is(err, ErrFormat) {
		return nil
	}
	return fmt.Errorf("neither ErrCorrupt nor ErrFormat: %w", err)
}

// TestCrashDamage damages databases in many ways, one at a time: every bit (or some, unless there is time for all),
// every length, sectors and pages overwritten, and pages changed with their checksums corrected.
func TestCrashDamage(t *testing.T) {
	inTurn(t)
	limit := 6 * time.Second // for each specimen and kind of damage: several times what is needed, unless other processes use the processors
	if *crashTime > 0 {
		limit = *crashTime
	}
	for i := range 4 {
		s := newSpecimen(t, i%2 == 0, i < 2)
		name := fmt.Sprintf("%d %s", i%2, s.name)
		t.Run(name+"/bits", func(t *testing.T) { s.flipBits(t, limit) })
		t.Run(name+"/cut", func(t *testing.T) { s.cut(t, limit) })
		t.Run(name+"/sectors", func(t *testing.T) { s.overwriteSectors(t, limit) })
		t.Run(name+"/sealed", func(t *testing.T) { s.reseal(t, limit) })
	}
}

// damage applies one kind of damage until it is done or the time is over, and reports how much was done. Unless a
// time was given on the command line, it does a part of the work.
func (s *specimen) damage(t *testing.T, limit time.Duration, total int, try func(n int) (refused bool, name string, err error)) {
	// The garbage collector runs rarely. Without a memory limit, what is allocated while it runs would make it run
	// even more rarely.
	percent, most := debug.SetGCPercent(1000), debug.SetMemoryLimit(512<<20)
	defer func() { debug.SetGCPercent(percent); debug.SetMemoryLimit(most) }()
	end := time.Now().Add(limit)
	tries := total
	if *crashTime == 0 {
		tries = min(total, scaled(400))
	}
	var done, refused int
	over := make(chan struct{})
	defer close(over)
	go watch(over, fmt.Sprintf("%s of %s", t.Name(), s.name))
	for ; done < tries && time.Now().Before(end); done++ {
		r, name, err := try(done)
		if err != nil {
			t.Fatalf("%s, %s: %v", s.name, name, err)
		}
		if r {
			refused++
		}
	}
	t.Logf("%d bytes: %d of %d, %d refused", len(s.file), done, total, refused)
}

// flipBits flips single bits in a random order, beginning with some in superblocks and page headers. Each database
// is opened read-only, which leaves the file as it is, and some are also opened for writing.
func (s *specimen) flipBits(t *testing.T, limit time.Duration) {
	rng := rand.New(rand.NewPCG(*crashFrom, 11))
	whole := s.mem(len(s.file))
	defer whole.Release()
	oldest := s.oldest
	if !s.closed {
		oldest = s.hist.last() - 1 // each group except the last is covered by the next one
	}
	bits := len(s.file) * 8
	stride := 1_000_003 // a prime, so that all bits are visited and successive ones are far apart
	const special = 3000
	s.damage(t, limit, special+bits, func(n int) (bool, string, error) {
		bit := int64((n - special) * stride % bits)
		switch {
		case n < special/3: // a superblock
			bit = rng.Int64N(2)*logstore.PageSize*8 + rng.Int64N(512*8)
		case n < special: // the header of a page
			bit = rng.Int64N(int64(len(s.file))/logstore.PageSize)*logstore.PageSize*8 + rng.Int64N(64*8)
		}
		flip(whole, bit)
		refused, err := s.judgeOpen(whole, oldest, true)
		if err == nil && (n < special || n%16 == 0) {
			mem := whole.Clone()
			refused, err = s.judgeOpen(mem, oldest, false)
			mem.Release()
		}
		flip(whole, bit)
		return refused, fmt.Sprintf("bit %d of page %d (%d)", bit%(logstore.PageSize*8), bit/8/logstore.PageSize, bit), err
	})
}

// cut truncates the file at each sector.
func (s *specimen) cut(t *testing.T, limit time.Duration) {
	total := len(s.file) / vfs.SectorSize
	stride := 1
	if *crashTime == 0 {
		stride = 7 // coprime to the number of sectors in a page
	}
	s.damage(t, limit, total/stride, func(n int) (bool, string, error) {
		size := (1 + n*stride) * vfs.SectorSize // not 0, as an empty file is an empty database
		mem := s.mem(size)
		defer mem.Release()
		refused, err := s.judge(mem, s.oldest)
		return refused, fmt.Sprintf("cut to %d bytes", size), err
	})
}

// overwriteSectors replaces sectors by zeros, by random bytes, or by sectors of another page of the file.
func (s *specimen) overwriteSectors(t *testing.T, limit time.Duration) {
	rng := rand.New(rand.NewPCG(*crashFrom, 12))
	whole := s.mem(len(s.file))
	defer whole.Release()
	sectors := len(s.file) / vfs.SectorSize
	s.damage(t, limit, sectors*40, func(int) (bool, string, error) {
		mem := whole.Clone()
		defer mem.Release()
		at := rng.IntN(sectors) * vfs.SectorSize
		n := vfs.SectorSize
		if rng.IntN(2) == 0 {
			at, n = at/logstore.PageSize*logstore.PageSize, logstore.PageSize
		}
		b, what := make([]byte, n), "zeros"
		switch rng.IntN(3) {
		case 0:
			b, what = randomBytes(rng, n), "noise"
		case 1:
			from := rng.IntN(len(s.file)/logstore.PageSize)*logstore.PageSize + at%logstore.PageSize
			copy(b, s.file[from:])
			what = fmt.Sprintf("bytes from %d", from)
		}
		overwrite(mem, int64(at), b)
		refused, err := s.judge(mem, s.oldest)
		return refused, fmt.Sprintf("%d bytes at %d (page %d) replaced by %s", n, at, at/logstore.PageSize, what), err
	})
}
