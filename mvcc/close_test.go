package mvcc

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/internal/commit"
	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
)

// TestUseHoldsNothing: Close waits for a call of Use. Pages that die during the call are not kept for it.
func TestUseHoldsNothing(t *testing.T) {
	e := newEngine(t, Options{Durability: Buffered, Manual: true})
	closed := make(chan error, 1)
	require.NoError(t, e.Use(func() error {
		for range 3 {
			put(t, e, "k", "v")
			require.NoError(t, e.Checkpoint())
		}
		require.Zero(t, e.readers.registry.Count())
		require.Zero(t, e.store.HeldBytes())
		go func() { closed <- e.Close() }()
		for !e.readers.closed.Load() {
			time.Sleep(time.Millisecond)
		}
		require.True(t, e.readers.used())
		require.Empty(t, closed)
		return nil
	}))
	require.NoError(t, <-closed)
}

// TestCloseRefusesAndWaits: transactions that began before Close end as usual, later ones are refused.
func TestCloseRefusesAndWaits(t *testing.T) {
	mem := vfs.NewMem(0)
	defer mem.Release()
	e := openOn(t, mem, Options{Durability: Buffered})
	put(t, e, "k", "0")
	writer, reader := begin(t, e, TxOptions{}), begin(t, e, TxOptions{ReadOnly: true})
	closed := make(chan error, 1)
	go func() { closed <- e.Close() }()
	for !e.readers.closed.Load() {
		time.Sleep(time.Millisecond)
	}
	_, err := e.Begin(TxOptions{})
	require.ErrorIs(t, err, ErrClosed)
	_, _, err = e.GetCopy([]byte("k"))
	require.ErrorIs(t, err, ErrClosed)
	_, err = e.Exists([]byte("k"))
	require.ErrorIs(t, err, ErrClosed)
	_, err = e.Len()
	require.ErrorIs(t, err, ErrClosed)
	_, err = e.Stats()
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, e.Use(func() error { return nil }), ErrClosed)
	for _, size := range []int{1, logstore.PageSize} {
		require.ErrorIs(t, e.WriteOne([]byte("k"), make([]byte, size), false), ErrClosed)
	}
	require.NoError(t, e.Close(), "the second call")

	require.Equal(t, "0", get(t, reader, "k"))
	require.NoError(t, writer.Put([]byte("k"), []byte("1")))
	require.NoError(t, writer.Commit())
	// What is committed while Close waits is written to the file too.
	seq := e.marks.applied.Load()
	require.Eventually(t, func() bool { return e.marks.durable.Load() >= seq }, patience, time.Millisecond)
	require.Empty(t, closed)
	require.NoError(t, reader.Rollback())
	require.NoError(t, <-closed)

	e = openOn(t, mem, Options{})
	v, ok, err := e.GetCopy([]byte("k"))
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "1", string(v))
	require.NoError(t, e.Close())
}

// TestCloseBetweenWrites: the file has what was acknowledged before Close or while Close waited, and nothing else.
func TestCloseBetweenWrites(t *testing.T) {
	for round := range 20 {
		mem := vfs.NewMem(0)
		e := openOn(t, mem, Options{Durability: Buffered})
		var written [4]int
		closed := make(chan error, 1)
		go func() {
			time.Sleep(time.Duration(round) * 100 * time.Microsecond)
			closed <- e.Close()
		}()
		key := func(g, i int) []byte { return fmt.Appendf(nil, "%d-%06d", g, i) }
		together(len(written), func(g int) {
			for {
				if err := e.WriteOne(key(g, written[g]), nil, false); err != nil {
					assert.ErrorIs(t, err, ErrClosed)
					return
				}
				written[g]++
			}
		})
		require.NoError(t, <-closed)
		e = openOn(t, mem, Options{})
		sum := 0
		for g, n := range written {
			for i := range n {
				ok, err := e.Exists(key(g, i))
				require.NoError(t, err)
				require.True(t, ok, "%s", key(g, i))
			}
			sum += n
		}
		n, err := e.Len()
		require.NoError(t, err)
		require.EqualValues(t, sum, n)
		require.NoError(t, e.Close())
		mem.Release()
	}
}

// TestCloseTellsOfFailure: Close returns the error if Buffered commits in memory could not be written.
func TestCloseTellsOfFailure(t *testing.T) {
	mem := vfs.NewMem(0)
	defer mem.Release()
	e := openOn(t, mem, Options{Durability: Buffered, Manual: true})
	put(t, e, "k", "0")
	mem.OnOp(func(op vfs.Op) error {
		if op.Kind == vfs.OpDatasync {
			return syscall.EIO
		}
		return nil
	})
	require.ErrorIs(t, e.Sync(), logstore.ErrFailed)
	require.ErrorIs(t, e.Close(), logstore.ErrFailed)
	require.NoError(t, e.Close())
}

// TestFailureWakesEveryone: after a failed sync no committer waits any longer, and none of their commits is published.
func TestFailureWakesEveryone(t *testing.T) {
	for _, kind := range []vfs.Kind{vfs.OpDatasync, vfs.OpWrite} {
		t.Run(kind.String(), func(t *testing.T) {
			mem := vfs.NewMem(0)
			defer mem.Release()
			e := openOn(t, mem, Options{})
			put(t, e, "old", "0")
			var failing atomic.Bool
			mem.OnOp(func(op vfs.Op) error {
				if failing.Load() && (op.Kind == kind || kind == vfs.OpWrite && op.Kind == vfs.OpWriteVec) {
					return syscall.EIO
				}
				return nil
			})
			var failed atomic.Int32
			within(t, func() {
				together(16, func(g int) {
					for i := 0; ; i++ {
						if g == 0 && i == 20 {
							failing.Store(true)
						}
						err := update(e, TxOptions{}, func(tx *Tx) error {
							if _, _, err := tx.Get([]byte("old")); err != nil {
								return err
							}
							return tx.Put(fmt.Appendf(nil, "%d-%d", g, i), nil)
						})
						if err == nil {
							continue
						}
						if !errors.Is(err, logstore.ErrFailed) || !errors.Is(err, syscall.EIO) {
							t.Errorf("%v", err)
						}
						failed.Add(1)
						return
					}
				})
			})
			require.EqualValues(t, 16, failed.Load())
			_, err := e.Begin(TxOptions{})
			require.ErrorIs(t, err, logstore.ErrFailed)
			tx := begin(t, e, TxOptions{ReadOnly: true})
			require.Equal(t, "0", get(t, tx, "old"))
			require.LessOrEqual(t, tx.Snapshot(), e.marks.durable.Load())
			require.NoError(t, tx.Rollback())
			within(t, func() { require.ErrorIs(t, e.Close(), logstore.ErrFailed) })
		})
	}
}

// TestPanicWakesEveryone: if one committer panics because of a broken invariant, the others do not go on waiting,
// whether their group is synced with the token or without it.
func TestPanicWakesEveryone(t *testing.T) {
	t.Run("with", func(t *testing.T) {
		testPanicWakesEveryone(t, false, func(e *Engine) { e.pages.Begin(e.marks.applied.Load() + 1) }) // the batch will find its Seq in use
	})
	t.Run("without", func(t *testing.T) {
		testPanicWakesEveryone(t, true, func(e *Engine) { e.committer.resolver.writes = commit.LastWrites{} }) // without slots for keys
	})
}

func testPanicWakesEveryone(t *testing.T, beside bool, breakIt func(*Engine)) {
	mem := vfs.NewMem(0)
	defer mem.Release()
	e := openOn(t, mem, Options{Manual: true, Thresholds: Thresholds{SyncBeside: beside}})
	put(t, e, "k", "0")
	release := e.HoldToken()
	var panics, failed atomic.Int32
	within(t, func() {
		together(8, func(g int) {
			if g == 0 {
				for e.Pushed() < 7 {
					time.Sleep(time.Millisecond)
				}
				breakIt(e)
				release()
				return
			}
			defer func() {
				if recover() != nil {
					panics.Add(1)
				}
			}()
			tx := begin(t, e, TxOptions{})
			tx.Put(fmt.Append(nil, g), nil)
			if err := tx.Commit(); errors.Is(err, logstore.ErrFailed) {
				failed.Add(1)
			} else {
				t.Errorf("%v", err)
			}
		})
		require.EqualValues(t, 1, panics.Load())
		require.EqualValues(t, 6, failed.Load())
		require.ErrorIs(t, e.Close(), logstore.ErrFailed)
	})
}

// TestCloseGivesBackWhatGrewAhead: a file has grown since the last checkpoint for commits that did not come. Close
// makes it as short as it was.
func TestCloseGivesBackWhatGrewAhead(t *testing.T) {
	mem := vfs.NewMem(0)
	defer mem.Release()
	e := openOn(t, mem, Options{Manual: true, Store: logstore.Options{SegmentPages: 32}})
	put(t, e, "k", "v")
	require.NoError(t, e.Close())
	size := func() int64 {
		f, err := mem.Open("a.fdbm", os.O_RDONLY, 0)
		require.NoError(t, err)
		defer f.Close()
		n, err := f.Blocks()
		require.NoError(t, err)
		return n
	}
	before := size()
	grow := func(e *Engine) {
		require.NoError(t, e.store.Reserve(1000, false))
		e.store.Release(1000)
		require.Greater(t, size(), before+2<<20)
	}
	e = openOn(t, mem, Options{Manual: true})
	grow(e)
	require.NoError(t, e.Close())
	require.Less(t, size(), before+1<<20)

	// The file is as long as when it was opened, but it was shorter in between.
	e = openOn(t, mem, Options{Manual: true})
	grow(e)
	e.opened = e.store.End()
	require.NoError(t, e.Compact(t.Context(), nil))
	require.Less(t, size(), before+1<<20)
	grow(e)
	require.Equal(t, e.opened, e.store.End())
	require.NoError(t, e.Close())
	require.Less(t, size(), before+1<<20)
}

// TestCloseMovesTogether: Close compacts the live pages of a small file, whether or not background work has left other
// work to it. Close does not change a dense file.
func TestCloseMovesTogether(t *testing.T) {
	for _, checkpointed := range []bool{false, true} {
		t.Run(fmt.Sprint(checkpointed), func(t *testing.T) {
			mem := vfs.NewMem(0)
			defer mem.Release()
			opts := Options{Thresholds: Thresholds{KeepInline: true}, Manual: true, Store: logstore.Options{SegmentPages: 32}}
			e := openOn(t, mem, opts)
			const records = 6000
			write := func(from, step int) {
				for i := from; i < records; i += 100 * step {
					tx := begin(t, e, TxOptions{})
					for j := i; j < min(i+100*step, records); j += step {
						require.NoError(t, tx.Put(fmt.Appendf(nil, "%06d", j), make([]byte, 400)))
					}
					require.NoError(t, tx.Commit())
				}
			}
			write(0, 1)
			require.NoError(t, e.Checkpoint())
			write(0, 30) // a third of the leaves: the other leaves lie in segments that are more than half live
			require.NoError(t, e.Checkpoint())
			require.NoError(t, e.Checkpoint())
			if !checkpointed {
				write(1, 2000)
			}
			_, dead := e.store.Victims(nil, true)
			live := e.store.SpaceStats().LiveBytes
			require.Greater(t, dead*logstore.PageSize*closeSparse, live)
			require.NoError(t, e.Close())

			e = openOn(t, mem, opts)
			s := e.store.SpaceStats()
			require.Less(t, s.FileBytes*10, s.LiveBytes*13, "%+v", s)
			require.NoError(t, e.Check(t.Context()))
			require.NoError(t, e.Close())
			e = openOn(t, mem, opts)
			write(2, 2000)
			pages := e.store.Counters().Pages
			require.NoError(t, e.Close())
			require.Less(t, int64(e.store.Counters().Pages-pages), s.LiveBytes/logstore.PageSize/4)
		})
	}
}
