package mvcc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
)

// tiny returns options with which flushes, folds, checkpoints, reuse of segments and syncs without the token happen
// all the time.
func tiny(d Durability) Options {
	return Options{
		Store:      logstore.Options{SegmentPages: 8, ChunkPages: 1 << 10},
		Durability: d, MemoryLimit: 64 << 20, RedoLimit: 64 << 10,
		Thresholds: Thresholds{SyncBeside: true},
	}
}

// newEngine opens an engine on a file system in memory. At the end of the test the engine is checked and closed.
func newEngine(t testing.TB, opts Options) *Engine {
	t.Helper()
	mem := vfs.NewMem(0)
	e := openOn(t, mem, opts)
	t.Cleanup(func() {
		if t.Failed() { // Close would wait for transactions that are still open
			return
		}
		if e.Failed() == nil && !e.readers.closed.Load() {
			require.NoError(t, e.Check(context.Background()))
			require.NoError(t, e.Close())
		} else {
			e.Close()
		}
		mem.Release()
	})
	return e
}

func openOn(t testing.TB, fs vfs.FS, opts Options) *Engine {
	t.Helper()
	if opts.MemoryLimit == 0 {
		opts.MemoryLimit = 64 << 20
	}
	if opts.RedoLimit == 0 {
		opts.RedoLimit = 8 << 20
	}
	if opts.Store.ChunkPages == 0 {
		opts.Store.ChunkPages = 1 << 14 // a quarter of the space that a file in memory has
	}
	if opts.FlushInterval == 0 {
		opts.FlushInterval = 20 * time.Millisecond
	}
	e, err := Open(fs, "a.fdbm", opts)
	require.NoError(t, err)
	return e
}

func begin(t testing.TB, e *Engine, o TxOptions) *Tx {
	t.Helper()
	tx, err := e.Begin(o)
	require.NoError(t, err)
	return tx
}

// put commits one record in its own transaction.
func put(t testing.TB, e *Engine, key, value string) {
	t.Helper()
	tx := begin(t, e, TxOptions{})
	require.NoError(t, tx.Put([]byte(key), []byte(value)))
	require.NoError(t, tx.Commit())
}

// get returns the value that tx reads, "" for a key without a value.
func get(t testing.TB, tx *Tx, key string) string {
	t.Helper()
	v, _, err := tx.Get([]byte(key))
	require.NoError(t, err)
	return string(v)
}

// update runs fn with Retry, as dbm does.
func update(e *Engine, o TxOptions, fn func(*Tx) error) error {
	return e.Retry(context.Background(), o, func(tx *Tx) (bool, error) {
		if err := fn(tx); err != nil {
			tx.Rollback()
			return false, err
		}
		err := tx.Commit()
		return errors.Is(err, ErrConflict), err
	})
}

// patience is how long a test waits for something that must happen. Even a busy machine takes less, so a longer wait
// means that something hangs.
const patience = time.Minute

// persist is update for a caller that must succeed. On a busy machine other transactions may not wait at the gate for
// long enough, so that even a transaction that closes the gate may lose too often.
func persist(e *Engine, o TxOptions, fn func(*Tx) error) error {
	err := error(ErrConflict)
	for round := 0; round < 100 && errors.Is(err, ErrConflict); round++ {
		err = update(e, o, fn)
	}
	return err
}

// within ends the process and prints all stacks if fn hangs, because the end of the test would hang too.
func within(t testing.TB, fn func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	select {
	case <-done:
	case <-time.After(patience):
		stacks := make([]byte, 1<<20)
		fmt.Fprintf(os.Stderr, "%s: not done after %v\n%s\n", t.Name(), patience, stacks[:runtime.Stack(stacks, true)])
		os.Exit(1)
	}
}

// together runs n goroutines and waits for them.
func together(n int, fn func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { fn(i) })
	}
	wg.Wait()
}
