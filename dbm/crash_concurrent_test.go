package dbm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
	"flashdbm/mvcc"
)

// crowd runs many writers at once, with background work, and takes crash images at any time. Each writer counts its
// transactions: all records of one have its number, and no other writer's transactions touch them. Records of a
// single key are put without a transaction.
type crowd struct {
	mem     *vfs.Mem
	opts    mvcc.Options
	writers []*countingWriter
	images  atomic.Int64
	most    int64      // number of images still to be taken
	enough  func()     // stops the writers
	mu      sync.Mutex // held while an image is taken; guards rng and err
	rng     *rand.Rand
	err     error
}

type countingWriter struct {
	id     int
	keys   int
	issued atomic.Uint64 // number of the current transaction
	acked  atomic.Uint64 // number of the last one that has returned
	synced atomic.Uint64 // number of the last one that is certain to survive a power failure
}

func (w *countingWriter) key(n int) []byte { return fmt.Appendf(nil, "%03d/%d", n, w.id) } // neighboring keys belong to different writers

// TestCrashConcurrent takes crash images while the transactions of many goroutines share groups. If commits are not
// durable by themselves, the writers call Sync from time to time, during the others' commits.
func TestCrashConcurrent(t *testing.T) {
	for _, d := range []mvcc.Durability{mvcc.Durable, mvcc.WriteThrough, mvcc.Buffered} {
		t.Run([]string{"durable", "write-through", "buffered"}[d], func(t *testing.T) {
			o := (&Options{}).engine()
			o.Durability, o.MemoryLimit, o.RedoLimit, o.FlushInterval = d, 256<<10, 128<<10, time.Millisecond
			o.Store.SegmentPages, o.Store.ChunkPages = 16, 16
			c := &crowd{mem: vfs.NewMem(1 << 30), opts: o, rng: rand.New(rand.NewPCG(*crashFrom, 9))}
			defer c.mem.Release()
			for id := range 8 {
				c.writers = append(c.writers, &countingWriter{id: id, keys: 1 + 7*max(0, id-2)})
			}
			limit := time.Minute
			if c.most = int64(scaled(60)); *crashTime > 0 {
				limit, c.most = *crashTime/3, math.MaxInt64
			}
			c.run(t, limit)
		})
	}
}

func (c *crowd) run(t *testing.T, limit time.Duration) {
	db, err := openEngine(c.mem, crashPath, c.opts)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	c.enough = cancel
	c.mem.OnOp(c.seen)
	var all sync.WaitGroup
	for _, w := range c.writers {
		all.Go(func() { c.note(w.write(ctx, db, c.opts.Durability)) })
	}
	all.Wait()
	c.mem.OnOp(nil)
	require.NoError(t, db.Check(context.Background()))
	s := db.Stats()
	require.NoError(t, db.Close())
	require.NoError(t, c.err)
	t.Logf("%d images, %d commits in %d groups, %d flushes, %d checkpoints, %d pages in a file of %d", c.images.Load(), s.Commits,
		s.RecordGroups+s.PageGroups, s.Flushes, s.Checkpoints, s.PagesWritten, s.FileBytes/logstore.PageSize)
}

func (c *crowd) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
}

// write commits one transaction after another.
func (w *countingWriter) write(ctx context.Context, db *DB, d mvcc.Durability) error {
	rng := rand.New(rand.NewPCG(uint64(w.id), 10))
	for ctx.Err() == nil {
		n := w.issued.Add(1)
		value := make([]byte, 8+rng.IntN(100)*rng.IntN(2))
		if rng.IntN(100) == 0 {
			value = make([]byte, rng.IntN(100<<10))
		}
		value = binary.LittleEndian.AppendUint64(value, n)
		if err := w.commit(db, value); err != nil {
			return err
		}
		w.acked.Store(n)
		if d != mvcc.Durable && rng.IntN(20) == 0 {
			if err := db.Sync(); err != nil {
				return err
			}
		} else if d != mvcc.Durable {
			continue
		}
		w.synced.Store(n)
	}
	return nil
}

func (w *countingWriter) commit(db *DB, value []byte) error {
	if w.keys == 1 {
		return db.Put(w.key(0), value)
	}
	return db.Update(func(tx *Tx) error {
		for k := range w.keys {
			if err := tx.Put(w.key(k), value); err != nil {
				return err
			}
		}
		return nil
	})
}

// seen is the hook. It takes only one image at a time, so that the writers make progress.
func (c *crowd) seen(op vfs.Op) error {
	if op.Kind == vfs.OpMap || !c.mu.TryLock() {
		return nil
	}
	defer c.mu.Unlock()
	if c.err != nil || c.rng.IntN(3) != 0 {
		return nil
	}
	killed := c.rng.IntN(2) == 0
	least := make([]uint64, len(c.writers))
	for i, w := range c.writers {
		least[i] = w.synced.Load()
		if killed && c.opts.Durability != mvcc.Buffered {
			least[i] = w.acked.Load()
		}
	}
	var image *vfs.Mem
	if killed {
		image = c.mem.Clone()
	} else {
		policies := vfs.Policies()
		image = c.mem.Crash(policies[c.rng.IntN(len(policies))], c.rng.Uint64())
	}
	defer image.Release()
	if c.images.Add(1) == c.most {
		c.enough()
	}
	if err := c.check(image, least); err != nil {
		c.err = fmt.Errorf("%v: %w", op, err)
	}
	return nil
}

// check opens an image and checks each writer's records.
func (c *crowd) check(image *vfs.Mem, least []uint64) error {
	o := c.opts
	o.Manual = true
	db, err := openEngine(image, crashPath, o)
	if err != nil {
		return err
	}
	defer db.Close()
	for i, w := range c.writers {
		most := w.issued.Load()
		if err := w.check(db, least[i], most); err != nil {
			return fmt.Errorf("writer %d: %w", i, err)
		}
	}
	return db.Check(context.Background())
}

func (w *countingWriter) check(db *DB, least, most uint64) error {
	var first uint64
	for k := range w.keys {
		var n uint64
		switch value, err := db.Get(w.key(k)); {
		case err == nil:
			n = binary.LittleEndian.Uint64(value[len(value)-8:])
		case !errors.Is(err, ErrNotFound):
			return err
		}
		if k == 0 {
			first = n
		}
		if n != first {
			return fmt.Errorf("transactions %d and %d both in part", first, n)
		}
	}
	if first < least || first > most {
		return fmt.Errorf("transaction %d is the last one; %d was acknowledged, %d begun", first, least, most)
	}
	return nil
}
