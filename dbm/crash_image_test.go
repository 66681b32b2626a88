package dbm

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"

	"flashdbm/logstore/vfs"
)

const maxCrashDepth = 3

// A mode determines at which operations of the main script images are taken, and which images.
type mode uint8

const (
	here           mode = iota // a random kind of image at some operations
	everyPolicy                // all kinds at every operation
	everySubset                // also every subset of the units that are not synced, if there are at most 12
	everyOperation             // some kinds at every operation
)

func (m mode) String() string {
	return [...]string{"some images", "every policy", "every subset", "every operation"}[m]
}

// drawMode chooses what is to be examined. Short scripts are examined at every operation, long ones at some.
func (c *trial) drawMode(rng *rand.Rand) {
	switch rng.IntN(8) {
	case 0:
		c.mode, c.images, c.load.steps = everySubset, 800, 10+rng.IntN(15)
	case 1, 2:
		c.mode, c.images, c.load.steps = everyPolicy, 600, min(c.load.steps, 80)
	default:
		c.mode, c.images, c.besides = here, 250, 50
	}
}

// examine takes images of what a crash at this moment would leave, and runs on them.
func (r *runner) examine(op vfs.Op) {
	if r.opened && r.dice.IntN(8) == 0 {
		r.fail(r, r.checkVisible())
	}
	if r.depth >= maxCrashDepth {
		return
	}
	all := r.depth == 0 && r.mode != here
	units := r.mem.Units()
	if units > 0 && (all && r.mode == everySubset && units <= 12 || units <= 4 && r.dice.IntN(4) == 0) {
		r.subsets(op, units)
		if !all {
			return
		}
	}
	switch {
	case all && r.mode == everyOperation:
		r.cut(op, vfs.KeepNone, vfs.KeepAll, somePolicy(r.dice), somePolicy(r.dice))
		if r.dice.IntN(4) == 0 {
			r.kill(op)
		}
	case all:
		r.cut(op, vfs.Policies()...)
		r.kill(op)
	default:
		switch r.dice.IntN(12) {
		case 0:
			r.cut(op, vfs.Policies()...)
		case 1, 2, 3:
			r.kill(op)
		default:
			r.cut(op, somePolicy(r.dice))
		}
	}
}

func somePolicy(rng *rand.Rand) vfs.Policy { return vfs.Policies()[rng.IntN(len(vfs.Policies()))] }

// subsets takes the image of each subset of the units that are not synced.
func (r *runner) subsets(op vfs.Op, units int) {
	for mask := range uint64(1) << units {
		r.image(fmt.Sprintf("%v subset %#x", op, mask), func() *vfs.Mem { return r.mem.CrashSubset(mask) }, false)
	}
}

// cut takes images of power failures.
func (r *runner) cut(op vfs.Op, policies ...vfs.Policy) {
	for _, p := range policies {
		seed := r.dice.Uint64()
		r.image(fmt.Sprintf("%v %v %d", op, p, seed), func() *vfs.Mem { return r.mem.Crash(p, seed) }, false)
	}
}

// kill takes the image that remains when the process is killed.
func (r *runner) kill(op vfs.Op) { r.image(fmt.Sprintf("%v kill", op), r.mem.Clone, true) }

// image runs on one image. An image of a kill still has unsynced changes, which may be lost in a power failure.
func (r *runner) image(name string, take func() *vfs.Mem, killed bool) {
	if r.err != nil || r.images <= 0 {
		return
	}
	crashProgress.Add(1)
	mem := take()
	defer func() { mem.Release() }()
	rng := rand.New(rand.NewPCG(r.dice.Uint64(), 1))
	least := r.safe
	var hash uint64
	if killed {
		least = r.alive
	} else {
		if rng.IntN(5) == 0 {
			name += damageSuperblock(mem, rng)
		}
		hash = maphash.Bytes(hashSeed, view(mem))
		if f, ok := r.known[hash]; ok {
			r.same++
			if r.hist.find(f, least, r.hist.last()) < 0 {
				r.fail(r, fmt.Errorf("%s: an image like this held state %d, where one of %d to %d belongs", name, r.hist.find(f, 0, r.hist.last()), least, r.hist.last()))
			}
			return
		}
	}
	r.images--
	r.taken++
	if r.merging() {
		r.mergeImages[r.opts.Durability]++
	}
	r.deepest = max(r.deepest, r.depth+1)
	c := &runner{trial: r.trial, name: r.name + " / " + name, depth: r.depth + 1, rng: rng, dice: rng, mem: mem, hist: r.hist.fork(),
		acked: r.acked, safe: r.safe, alive: least, oneIn: 20}
	c.hook()
	err := c.open()
	if err == nil && !killed {
		r.known[hash] = c.hist.states[c.acked]
	}
	if err == nil {
		err = c.goOn(killed)
	}
	if err != nil {
		r.fail(c, err)
	}
	c.abandon()
	mem = c.mem
}

// goOn uses the opened database of an image and checks the result.
func (r *runner) goOn(killed bool) error {
	if killed && r.depth < maxCrashDepth { // what Open has shown must not be only in the system's cache
		r.image("then cut", func() *vfs.Mem { return r.mem.Crash(vfs.KeepNone, 0) }, false)
	}
	if err := r.commit(r.load.draw(r.rng, r.mem)); err != nil {
		return err
	}
	if r.rng.IntN(4) != 0 {
		state, err := r.identify(r.db, r.acked)
		if err == nil && r.hist.states[state] != r.hist.states[r.acked] {
			err = fmt.Errorf("state %d after a commit, where %d belongs", state, r.acked)
		}
		return err
	}
	for range 1 + r.rng.IntN(12) {
		if err := r.act(); err != nil {
			return err
		}
	}
	return r.verify()
}

// checkVisible checks the database in the middle of an operation. In Durable mode nobody can see what is not
// durable, so what is visible now must be there after any later crash.
func (r *runner) checkVisible() error {
	if Durability(r.opts.Durability) != Durable || r.db == nil {
		return nil
	}
	read := scan
	if r.db.engine.Redoing() { // it may be called in the middle of redo
		read = r.lookUp
	} else if r.db.engine.Pending() { // a scan would wait for the holder of the token, which waits for this function
		return nil
	}
	f, err := read(r.db, nil)
	if errors.Is(err, ErrClosed) { // Close writes too
		return nil
	}
	if err != nil {
		return fmt.Errorf("view during an operation: %w", err)
	}
	if r.hist.find(f, r.acked, r.hist.last()) < 0 {
		return fmt.Errorf("a view shows state %d; %d commits were acknowledged", r.hist.find(f, 0, r.hist.last()), r.acked)
	}
	for r.hist.states[r.safe] != f { // the oldest of the states with the same records
		r.safe++
	}
	r.alive = max(r.alive, r.safe)
	return nil
}
