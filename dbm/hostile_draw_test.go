package dbm

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
)

// tall returns a database with a tree of three levels, values of all kinds, and write sets that left memory.
func tall(t testing.TB, closed bool) *specimen { return tallOf(t, 400, closed) }

// tallOf is tall with keys of the given number. The places of its pages depend on that number.
func tallOf(t testing.TB, keys int, closed bool) *specimen {
	return filled(t, &load{segmentPages: 8, keys: keys, style: 4, ops: 60, deletes: 5, big: 60 << 10, bigShare: 8, middle: 10,
		memoryLimit: 1 << 20, redoLimit: 1 << 20, stepPages: 3}, closed)
}

// filled returns a database with all keys of a load and some more transactions.
func filled(t testing.TB, l *load, closed bool) *specimen {
	s := &specimen{name: "tall", load: l, closed: closed}
	c := &trial{load: l, trace: func(string, ...any) {}, known: map[uint64]fingerprint{}}
	r := newRunner(c, rand.New(rand.NewPCG(9, 9)), vfs.NewMem(0))
	defer func() { r.mem.Release() }()
	do := func(f func() error) {
		if err := f(); err != nil {
			t.Fatal(err)
		}
	}
	do(r.open)
	some := func(n int) {
		for range n * min(l.ops, 1) {
			do(func() error { return r.commit(l.draw(r.rng, r.mem)) })
		}
	}
	some(12)
	do(func() error { return r.commit(l.drawAll(r.rng)) })
	do(r.db.Checkpoint)
	some(4)
	if closed {
		do(r.db.Close)
	} else {
		r.abandon()
	}
	s.file, s.hist = content(r.mem, 0, fileSize(r.mem)), r.hist
	return s
}

// shapes are loads of a few hundred kilobytes each, so that one file takes about a millisecond.
var shapes = []struct {
	name string
	load load
}{
	{"leaf", load{keys: 6, style: 3, ops: 3, deletes: 20, big: 12 << 10, bigShare: 50, middle: 6}},
	{"even", load{keys: 120, style: 3, ops: 60, deletes: 5, even: 9}},
	{"two levels", load{keys: 70, style: 0, ops: 20, deletes: 15, big: 12 << 10, bigShare: 6, middle: 2}},
	{"three levels", load{keys: 110, style: 4, ops: 12, deletes: 5, big: 12 << 10, bigShare: 6, middle: 1}},
	{"cut separators", load{keys: 26, style: 1, ops: 6, deletes: 10, middle: 1}},
	{"long keys", load{keys: 18, style: 2, longEvery: 3, ops: 4, deletes: 15, middle: 3}},
	{"values", load{keys: 8, style: 3, ops: 2, deletes: 25, big: 50 << 10, bigShare: 500, middle: 15}},
}

// drawBase draws a database from which hostile files are made. It has one of the shapes and any durability. Its
// script of transactions and background work is either cut off at one of its operations, as by a kill, or ends with
// Close.
func drawBase(seed uint64) (*specimen, error) {
	s, _, err := drawBaseExtras(seed)
	return s, err
}

// drawBaseExtras is drawBase that also returns what its extras did.
func drawBaseExtras(seed uint64) (*specimen, extrasDone, error) {
	s, x := &specimen{}, drawExtras(seed)
	err := s.drawWith(seed, x)
	return s, x.did, err
}

func (s *specimen) drawWith(seed uint64, x *extras) error {
	rng := rand.New(rand.NewPCG(seed, 77))
	shape := shapes[rng.IntN(len(shapes))]
	l := shape.load
	l.segmentPages, l.memoryLimit, l.redoLimit = 8, 1<<20, int64(1)<<(14+rng.IntN(7))
	l.stepPages, l.durability = 1+rng.IntN(4), rng.IntN(3)
	s.name, s.load = fmt.Sprintf("base %d: %s", seed, shape.name), &l
	mem := vfs.NewMem(0)
	defer mem.Release()
	mem.WithoutCrashes()

	open := func() (*DB, error) {
		o := l.options(rng)
		x.adjust(&o)
		return openEngine(mem, crashPath, o)
	}
	db, err := open()
	if err != nil {
		return err
	}
	kill := rng.IntN(150)
	if rng.IntN(3) == 0 {
		kill = -1
	}
	kill += mem.Ops()
	var mu sync.Mutex // another goroutine syncs commits that nobody waits for
	mem.OnOp(func(op vfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if op.Kind == vfs.OpPunch && op.Off%(int64(l.segmentPages)*logstore.PageSize) != 0 {
			x.did.holes++
		}
		if s.file == nil && op.Index == kill {
			s.file = content(mem, 0, fileSize(mem))
		}
		if s.file != nil {
			return errEnded
		}
		return nil
	})
	steps := []func() error{
		func() error { return commitOps(db, l.drawAll(rng)) },
		func() error { return db.Checkpoint() },
	}
	for range 1 + rng.IntN(8) {
		steps = append(steps, x.steps(func() *DB { return db }, &l, mem)...)
		steps = append(steps, func() (err error) {
			switch rng.IntN(12) {
			case 0:
				return db.Checkpoint()
			case 1:
				return db.Compact(context.Background(), nil)
			case 2:
				return db.Sync()
			case 3:
				x.end()
				if err := db.Close(); err != nil {
					return err
				}
				again, err := open()
				if err == nil {
					db = again
				}
				return err
			case 4:
				return commitOps(db, l.drawClearing(rng, 1+rng.IntN(l.keys)))
			case 5:
				return commitOps(db, l.drawAll(rng))
			}
			return commitOps(db, l.draw(rng, mem))
		})
	}
	for _, step := range steps {
		if err = step(); err != nil || s.file != nil {
			break
		}
	}
	if err == nil && s.file == nil && rng.IntN(2) == 0 {
		s.file = content(mem, 0, fileSize(mem))
	}
	x.end()
	closed := db.Close()
	if s.file == nil {
		if err != nil || closed != nil {
			return fmt.Errorf("%s: %w", s.name, cmp.Or(err, closed))
		}
		s.closed, s.file = true, content(mem, 0, fileSize(mem))
	}
	if n := len(s.file) / (8 * logstore.PageSize) * 8 * logstore.PageSize; n > 0 {
		s.file = s.file[:n] // remove what a torn growth left at the end
	}
	return nil
}

// commitOps commits ops as one transaction.
func commitOps(db *DB, ops []op) error {
	return db.Update(func(tx *Tx) error {
		for _, o := range ops {
			if o.value == nil {
				if err := tx.Delete(o.key); err != nil {
					return err
				}
			} else if err := tx.Put(o.key, o.value); err != nil {
				return err
			}
		}
		return nil
	})
}
