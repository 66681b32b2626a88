package writeback

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"flashdbm/internal/streams"
	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
	"flashdbm/mvcc"
)

// A sampler takes images of a vfs.Mem while the kernel writes to it.
type sampler struct {
	mem   *vfs.Mem
	oneIn int // one in oneIn operations gets an image

	// look checks an image. least are the transactions that were durable before it was taken, most those that had
	// begun by then.
	look func(image *vfs.Mem, least, most streams.Numbers) error
	// concurrent: images are checked while the kernel's calls go on, one image at a time. No images are taken meanwhile.
	concurrent bool
	busy       atomic.Bool // an image is being checked, if concurrent

	mu      sync.Mutex // guards the rest; held while an image is checked, which blocks the kernel's call
	rng     *rand.Rand
	process *process
	left    int // images still to be taken
	taken   int
	err     error
}

// watch starts to take images.
func (s *sampler) watch() { s.mem.OnOp(s.see) }

// see is called before each operation.
func (s *sampler) see(op vfs.Op) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left <= 0 || s.err != nil || s.process == nil || s.busy.Load() || s.rng.IntN(s.oneIn) != 0 {
		return nil
	}
	if n := s.mem.Units(); !s.concurrent && n > 0 && n <= 4 && s.rng.IntN(4) == 0 {
		for mask := range uint64(1) << n {
			s.image(fmt.Sprintf("%v subset %#x", op, mask), func() *vfs.Mem { return s.mem.CrashSubset(mask) })
		}
		return nil
	}
	policies := vfs.Policies()
	if s.concurrent || s.rng.IntN(12) != 0 {
		i := s.rng.IntN(len(policies))
		policies = policies[i : i+1]
	}
	for _, p := range policies {
		seed := s.rng.Uint64()
		s.image(fmt.Sprintf("%v %v %d", op, p, seed), func() *vfs.Mem { return s.mem.Crash(p, seed) })
	}
	return nil
}

func (s *sampler) image(name string, take func() *vfs.Mem) {
	if s.left <= 0 || s.err != nil {
		return
	}
	least := s.process.promised()
	image := take()
	most := s.process.begun()
	s.left--
	s.taken++
	name = fmt.Sprintf("image %d, %s, of %+v", s.taken, name, s.process.load)
	if !s.concurrent {
		s.note(name, s.look(image, least, most))
		return
	}
	s.busy.Store(true)
	go func() {
		err := s.look(image, least, most)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.note(name, err)
		s.busy.Store(false)
	}()
}

// note keeps the first error. The mutex must be held.
func (s *sampler) note(image string, err error) {
	if err != nil && s.err == nil {
		s.err = fmt.Errorf("%s: %w", image, err)
	}
}

// finish waits until no image is being checked and returns the first error.
func (s *sampler) finish() error {
	for s.busy.Load() {
		time.Sleep(time.Millisecond)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// follow makes the sampler compare images with what another process records.
func (s *sampler) follow(p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process = p
}

// done reports whether enough images have been taken or an image was wrong.
func (s *sampler) done() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left <= 0 || s.err != nil
}

// lookAt opens the database of an image, compares it and checks it. It does so twice: a second recovery must not
// change anything.
func lookAt(image *vfs.Mem, least, most streams.Numbers) error {
	defer image.Release()
	for again := range 2 {
		found, err := inspect(image, least, most)
		if err != nil {
			return fmt.Errorf("open %d: %w", again+1, err)
		}
		least, most = found, found
	}
	return nil
}

func inspect(image *vfs.Mem, least, most streams.Numbers) (found streams.Numbers, err error) {
	e, err := mvcc.Open(image, databaseName, mvcc.Options{
		Store:       logstore.Options{ChunkPages: 1024},
		MemoryLimit: 64 << 20, RedoLimit: 32 << 20, Manual: true,
	})
	if err != nil {
		return found, err
	}
	tx, err := e.Begin(mvcc.TxOptions{ReadOnly: true})
	if err == nil {
		c := tx.Cursor()
		found, err = streams.Verify(records(c, &err), least, most, false)
		err = errors.Join(err, c.Err(), tx.Rollback())
	}
	if err == nil {
		err = e.Check(context.Background())
	}
	return found, errors.Join(err, e.Close())
}

// records iterates over the records of a cursor.
func records(c *mvcc.Cursor, failed *error) iter.Seq2[[]byte, []byte] {
	return func(yield func([]byte, []byte) bool) {
		for ok := c.First(); ok; ok = c.Next() {
			v, err := c.Value()
			if err != nil {
				*failed = errors.Join(*failed, err)
				return
			}
			if !yield(c.Key(), v) {
				return
			}
		}
	}
}
