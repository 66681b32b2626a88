package mvcc

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// putScattered puts n records in scattered key order. Keys repeat after 1,009 records, with other values.
func putScattered(t *testing.T, e *Engine, from, n int) {
	for i := from; i < from+n; i++ {
		put(t, e, fmt.Sprintf("%04d", i*7919%1009), fmt.Sprint(i))
	}
}

// TestBackgroundMerge: commits continue during a background merge, and readers see their snapshots without waiting for
// the end of the merge.
func TestBackgroundMerge(t *testing.T) {
	for _, d := range []Durability{Durable, WriteThrough, Buffered} {
		e := newEngine(t, Options{Durability: d, Manual: true, Thresholds: Thresholds{BackgroundOps: 8}})
		if d == Durable { // Durable merges small batches at once
			for i := range 3 {
				tx := begin(t, e, TxOptions{})
				for j := range 2 * deferOps {
					require.NoError(t, tx.Put(fmt.Appendf(nil, "x%04d", (i*2*deferOps+j)*7919%10007), []byte("1")))
				}
				require.NoError(t, tx.Commit())
			}
		} else {
			putScattered(t, e, 0, 20)
		}
		require.True(t, e.tree.tables.merging(), "%d", d)
		tree := e.readers.views.Load()
		put(t, e, "key", "value")
		r := begin(t, e, TxOptions{ReadOnly: true})
		require.Equal(t, "value", get(t, r, "key"))
		require.True(t, e.Pending())
		if d == Buffered {
			require.Equal(t, tree, e.readers.views.Load(), "nobody has needed the tree")
		}
		n, err := r.Len()
		require.NoError(t, err)
		put(t, e, "other", "value")
		require.Equal(t, "", get(t, r, "other"))
		again, err := r.Len()
		require.NoError(t, err)
		require.Equal(t, n, again)
		require.NoError(t, e.tree.mergeAll())
		require.False(t, e.tree.tables.merging())
		require.False(t, e.Pending())
		require.Equal(t, "", get(t, r, "other"))
		require.Equal(t, "value", get(t, r, "key"))
		again, err = r.Len()
		require.NoError(t, err)
		require.Equal(t, n, again)
		require.NoError(t, r.Rollback())
	}
}

// TestBackgroundLeavesSnapshots: several batches are merged together. A reader at the Seq of one of them sees the
// state at that Seq.
func TestBackgroundLeavesSnapshots(t *testing.T) {
	e := newEngine(t, Options{Durability: Buffered, Manual: true, Thresholds: Thresholds{BackgroundOps: 4}})
	var readers []*Tx
	for i := range 40 {
		putScattered(t, e, i*3, 3)
		readers = append(readers, begin(t, e, TxOptions{ReadOnly: true}))
		put(t, e, "key", fmt.Sprint(i))
	}
	for i, r := range readers {
		want := ""
		if i > 0 {
			want = fmt.Sprint(i - 1)
		}
		require.Equal(t, want, get(t, r, "key"))
		n, err := r.Len()
		require.NoError(t, err)
		require.EqualValues(t, 3*(i+1)+min(i, 1), n)
		require.NoError(t, r.Rollback())
	}
}

// TestBackgroundFails: an error of a background merge poisons the store, and Close waits for the end of the merge.
func TestBackgroundFails(t *testing.T) {
	mem := vfs.NewMem(0)
	defer mem.Release()
	e := openOn(t, mem, Options{Durability: Buffered, Manual: true, Thresholds: Thresholds{BackgroundOps: 8}})
	putScattered(t, e, 0, 7)
	put(t, e, "key", "value")
	require.NoError(t, e.log.withLog(func() error {
		require.True(t, e.tree.beginMerge())
		<-e.tree.tables.merge.Load().done
		e.tree.tables.merge.Load().err = errBroken
		return nil
	}))
	require.ErrorIs(t, e.tree.mergeAll(), errBroken)
	require.ErrorIs(t, e.Failed(), errBroken)
	ok, err := e.Exists([]byte("key"))
	require.NoError(t, err)
	require.True(t, ok, "what is committed stays readable")
	require.Error(t, e.Close())
}

// TestBackgroundFailsCommits: if a leader finds that a background merge has failed, its own commit fails like those
// after it, and is not published.
func TestBackgroundFailsCommits(t *testing.T) {
	for _, d := range []Durability{Durable, WriteThrough, Buffered} {
		mem := vfs.NewMem(0)
		defer mem.Release()
		e := openOn(t, mem, Options{Durability: d, Thresholds: Thresholds{BackgroundOps: 8, DeferOps: 1}})
		hold := e.HoldToken()
		m := &backgroundMerge{table: e.tree.tables.active, done: make(chan struct{}), err: errBroken}
		close(m.done)
		e.tree.tables.merge.Store(m)
		applied := e.marks.applied.Load()
		hold()
		for range 2 {
			require.ErrorIs(t, e.WriteOne([]byte("key"), []byte("value"), false), errBroken, "%d", d)
		}
		require.Equal(t, applied, e.marks.applied.Load())
		require.ErrorIs(t, e.Close(), errBroken)
	}
}

// TestFailedLogFailsTheCommit: before a merge begins, the leader of a Buffered commit logs what is buffered. If that
// fails, its commit fails like those after it, and is not published.
func TestFailedLogFailsTheCommit(t *testing.T) {
	mem := vfs.NewMem(0)
	defer mem.Release()
	var fails, struck atomic.Bool
	e := openOn(t, vfs.Faulty(mem, func(op vfs.Op) error {
		if fails.Load() && (op.Kind == vfs.OpWrite || op.Kind == vfs.OpWriteVec) {
			struck.Store(true)
			return syscall.EIO
		}
		return nil
	}), Options{Durability: Buffered, FlushInterval: time.Hour, Thresholds: Thresholds{BackgroundOps: 8, DeferOps: 1}})
	fails.Store(true)
	for i := range 100 {
		applied := e.marks.applied.Load()
		if err := e.WriteOne(fmt.Append(nil, i*7919%100), []byte("value"), false); struck.Load() {
			require.ErrorIs(t, err, syscall.EIO)
			require.Equal(t, applied, e.marks.applied.Load())
			require.ErrorIs(t, e.Close(), syscall.EIO)
			return
		}
	}
	t.Fatal("nothing was logged")
}

// version requires that a value ends with the number of the write that made it.
func version(t *testing.T, value []byte, i int) {
	assert.True(t, strings.HasSuffix(string(value), fmt.Sprint("=", i)), "%q is not of %d", value, i)
}

// TestBackgroundBesideAll: writers, readers and background work run during one background merge after the other.
func TestBackgroundBesideAll(t *testing.T) {
	t.Parallel()
	for _, d := range []Durability{WriteThrough, Buffered} {
		e := newEngine(t, Options{Durability: d, RedoLimit: 256 << 10, MemoryLimit: 8 << 20, Thresholds: Thresholds{BackgroundOps: 64, PartBytes: 16 << 10}})
		var all sync.WaitGroup
		end := time.Now().Add(time.Second)
		const keys = 1 << 12
		var last [4][keys]int
		for w := range last {
			all.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(w), 1))
				for i := 1; time.Now().Before(end); i++ {
					tx, err := e.Begin(TxOptions{})
					if !assert.NoError(t, err) {
						return
					}
					for range 1 + rng.IntN(60) {
						k := rng.IntN(keys)
						last[w][k] = i
						assert.NoError(t, tx.Put(fmt.Appendf(nil, "%d-%04d", w, k), fmt.Append(make([]byte, rng.IntN(200)), fmt.Sprint("=", i))))
					}
					assert.NoError(t, tx.Commit())
					if i%16 == 0 {
						k := rng.IntN(keys)
						r, err := e.Begin(TxOptions{ReadOnly: true})
						if !assert.NoError(t, err) {
							return
						}
						v, _, err := r.Get(fmt.Appendf(nil, "%d-%04d", w, k))
						if last[w][k] > 0 && assert.NoError(t, err) {
							version(t, v, last[w][k])
						}
						assert.NoError(t, r.Rollback())
					}
				}
			})
		}
		all.Wait()
		r := begin(t, e, TxOptions{ReadOnly: true})
		n := 0
		for w := range last {
			for k, i := range last[w] {
				if i == 0 {
					continue
				}
				n++
				v, _, err := r.Get(fmt.Appendf(nil, "%d-%04d", w, k))
				require.NoError(t, err)
				version(t, v, i)
			}
		}
		records, err := r.Len()
		require.NoError(t, err)
		require.EqualValues(t, n, records)
		require.NoError(t, r.Rollback())
	}
}
