package dbm

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"flashdbm/logstore/vfs"
)

const maxCrashDepth = 3

// examine takes images of what crashes at this moment would leave, and runs on them.
func (r *runner) examine(op vfs.Op) {
	if r.opened && r.rng.IntN(8) == 0 {
		r.fail(r, r.checkVisible())
	}
	if r.depth >= maxCrashDepth {
		return
	}
	if n := r.mem.Units(); n > 0 && n <= 4 && r.rng.IntN(4) == 0 {
		for mask := range uint64(1) << n {
			r.image(fmt.Sprintf("%v subset %#x", op, mask), func() *vfs.Mem { return r.mem.CrashSubset(mask) }, false)
		}
		return
	}
	policies := vfs.Policies()
	switch r.rng.IntN(12) {
	case 0: // all
	case 1, 2, 3:
		r.image(fmt.Sprintf("%v kill", op), r.mem.Clone, true)
		return
	default:
		i := r.rng.IntN(len(policies))
		policies = policies[i : i+1]
	}
	for _, p := range policies {
		seed := r.rng.Uint64()
		r.image(fmt.Sprintf("%v %v %d", op, p, seed), func() *vfs.Mem { return r.mem.Crash(p, seed) }, false)
	}
}

// image runs on one image. One left by a kill still has unsynced changes, which a power cut may take.
func (r *runner) image(name string, take func() *vfs.Mem, killed bool) {
	if r.err != nil || r.images <= 0 {
		return
	}
	r.images--
	r.taken++
	mem := take()
	rng := rand.New(rand.NewPCG(r.rng.Uint64(), 1))
	c := &runner{trial: r.trial, name: r.name + " / " + name, depth: r.depth + 1, rng: rng, mem: mem, hist: r.hist.fork(),
		acked: r.acked, safe: r.safe, alive: r.safe, oneIn: 20}
	if killed {
		c.alive = r.alive
	} else if rng.IntN(5) == 0 {
		c.name += damageSuperblock(mem, rng)
	}
	c.hook()
	if err := c.run(); err != nil {
		r.fail(c, err)
	}
	c.abandon()
	c.mem.Release()
}

// run opens the database of an image, goes on with the script for a while and looks at the result.
func (r *runner) run() error {
	if err := r.open(); err != nil {
		return err
	}
	if r.rng.IntN(4) != 0 {
		return nil
	}
	for range 1 + r.rng.IntN(12) {
		if err := r.act(); err != nil {
			return err
		}
	}
	return r.verify()
}

// checkVisible looks at the database in the middle of something. In Durable mode nobody can see what is not durable: what is seen now
// must be there after any crash from now on.
func (r *runner) checkVisible() error {
	if Durability(r.opts.Durability) != Durable || r.db == nil {
		return nil
	}
	f, err := scan(r.db, nil)
	if errors.Is(err, ErrClosed) { // Close writes too
		return nil
	}
	if err != nil {
		return fmt.Errorf("view during an operation: %w", err)
	}
	if r.hist.find(f, r.acked, r.hist.last()) < 0 {
		return fmt.Errorf("a view shows state %d; %d commits were acknowledged", r.hist.find(f, 0, r.hist.last()), r.acked)
	}
	for r.hist.states[r.safe] != f { // the oldest of those that look like this
		r.safe++
	}
	r.alive = max(r.alive, r.safe)
	return nil
}
