package mvcc

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// TestTickDuringHousekeeping: Buffered commits in memory are written and synced within FlushInterval, even while the
// lock of background work is held, by a flush, a checkpoint or a compaction.
func TestTickDuringHousekeeping(t *testing.T) {
	mem := vfs.NewMem(0)
	defer mem.Release()
	e := openOn(t, mem, Options{Durability: Buffered, FlushInterval: 5 * time.Millisecond})
	defer e.Close()
	e.checkpoints.mu.Lock()
	defer e.checkpoints.mu.Unlock()
	time.Sleep(20 * time.Millisecond) // by now background work waits for the lock
	for i := range 3 {
		put(t, e, "k", fmt.Sprint(i))
		seq := e.marks.applied.Load()
		require.Eventually(t, func() bool { return e.marks.durable.Load() >= seq }, patience, time.Millisecond, "a commit stays unsynced")
	}
}

// stopped is a context whose Err blocks at its n-th call until the test continues it. Check calls it at each page.
type stopped struct {
	context.Context
	calls atomic.Int64
	at    int64
	once  sync.Once
	there chan struct{}
	goOn  chan struct{}
}

func stopAt(n int64) *stopped {
	return &stopped{Context: context.Background(), at: n, there: make(chan struct{}), goOn: make(chan struct{})}
}

func (c *stopped) Err() error {
	if c.calls.Add(1) >= c.at {
		c.once.Do(func() { close(c.there) })
		<-c.goOn
	}
	return nil
}

// TestCheckHoldsNothingUp: Check is stopped at a page, of any of its phases. Meanwhile commits that need flushes for
// their memory continue, and so do checkpoints and compactions, which move everything that Check reads. Check then
// finds the state that it began with, undamaged.
func TestCheckHoldsNothingUp(t *testing.T) {
	count := stopAt(1 << 40)
	stops := 0
	for at := int64(1); at < max(count.calls.Load(), 2); at += 1 + count.calls.Load()/8 {
		mem := vfs.NewMem(64 << 20)
		o := Options{Durability: Durable, MemoryLimit: 1 << 20}
		o.Store.SegmentPages = 16
		e := openOn(t, mem, o)
		key := func(i int) string { return fmt.Sprintf("k%05d", i) }
		fill := func(round int) {
			for i := 0; i < 4000; i += 200 {
				tx := begin(t, e, TxOptions{})
				for j := i; j < i+200; j++ {
					value := fmt.Appendf(nil, "%0*d", 50+j%7/6*3000, round)
					if round > 0 && j%5 == round%5 {
						require.NoError(t, tx.Delete([]byte(key(j))))
					} else {
						require.NoError(t, tx.Put([]byte(key(j)), value))
					}
				}
				require.NoError(t, tx.Commit())
			}
		}
		fill(0)
		if at == 1 {
			require.NoError(t, e.Check(count))
			require.Greater(t, count.calls.Load(), int64(50))
		}
		ctx := stopAt(at)
		done := make(chan error, 1)
		go func() { done <- e.Check(ctx) }()
		select {
		case err := <-done: // after other background flushes this database has fewer pages than the first one
			require.NoError(t, err)
		case <-ctx.there:
			stops++
			within(t, func() {
				for round := 1; round < 3; round++ {
					fill(round)
					require.NoError(t, e.Checkpoint())
					require.NoError(t, e.Compact(context.Background(), func(Compaction) {}))
				}
			})
			close(ctx.goOn)
			require.NoError(t, <-done, "stopped at %d of %d", at, count.calls.Load())
		}
		require.NoError(t, e.Check(context.Background()))
		require.NoError(t, e.Close())
		mem.Release()
	}
	require.GreaterOrEqual(t, stops, 5)
}
