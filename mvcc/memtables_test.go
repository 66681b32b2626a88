package mvcc

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/internal/overlay"
	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
)

// TestSnapshotsOverMemtables: commits that the tree does not have yet are seen by every transaction that began after
// them and by no other, in whatever order readers first read. No reader causes a merge.
func TestSnapshotsOverMemtables(t *testing.T) {
	for _, backwards := range []bool{false, true} {
		t.Run(fmt.Sprint(backwards), func(t *testing.T) {
			e := newEngine(t, Options{Durability: Buffered, Manual: true})
			const n = 20
			var readers []*Tx
			for i := range n {
				put(t, e, "k", fmt.Sprint(i))
				put(t, e, fmt.Sprintf("k%03d", i), "x")
				if i%3 == 0 {
					readers = append(readers, begin(t, e, TxOptions{ReadOnly: i%2 == 0}))
				}
			}
			tree := e.readers.views.Load()
			require.Less(t, tree, e.marks.applied.Load())
			look := func() {
				for i := range readers {
					if backwards {
						i = len(readers) - 1 - i
					}
					at := 3 * i
					require.Equal(t, fmt.Sprint(at), get(t, readers[i], "k"))
					records, err := readers[i].Len()
					require.NoError(t, err)
					require.EqualValues(t, at+2, records)
					require.Equal(t, "", get(t, readers[i], fmt.Sprintf("k%03d", at+1)))
					require.Len(t, collect(t, readers[i]), at+2)
				}
			}
			look()
			require.Equal(t, tree, e.readers.views.Load(), "a reader has had something merged")
			require.NoError(t, e.tree.mergeAll())
			require.Equal(t, e.marks.applied.Load(), e.readers.views.Load())
			look()
			for _, r := range readers {
				require.NoError(t, r.Rollback())
			}
		})
	}
}

// TestReadersTakeNoLock: while the token and the lock of background work are held for ever, readers of all kinds
// begin, look up, scan and end. They see all that was committed, in memory or in the tree.
func TestReadersTakeNoLock(t *testing.T) {
	for _, d := range []Durability{Durable, WriteThrough, Buffered} {
		e := newEngine(t, Options{Durability: d, Manual: true})
		for i := range 2000 {
			put(t, e, fmt.Sprintf("%04d", i*7919%2000), fmt.Sprint(i))
			if i == 1000 {
				require.NoError(t, e.Checkpoint())
			}
		}
		e.checkpoints.mu.Lock()
		e.token.take()
		within(t, func() {
			var all sync.WaitGroup
			for g := range 4 {
				all.Go(func() {
					for i := range 300 {
						key := []byte(fmt.Sprintf("%04d", i*7919%2000))
						v, ok, err := e.GetCopy(key)
						assert.NoError(t, err)
						assert.True(t, ok)
						assert.Equal(t, fmt.Sprint(i), string(v))
						ok, err = e.After(key, false, func([]byte) {})
						assert.NoError(t, err)
						assert.Equal(t, string(key) != "1999", ok)
					}
					for _, o := range []TxOptions{{ReadOnly: true}, {}, {Serializable: true}} {
						tx, err := e.Begin(o)
						if !assert.NoError(t, err) {
							return
						}
						n, err := tx.Len()
						assert.NoError(t, err)
						assert.EqualValues(t, 2000, n)
						assert.Len(t, collect(t, tx), 2000)
						assert.Equal(t, fmt.Sprint(g), get(t, tx, fmt.Sprintf("%04d", g*7919%2000)))
						assert.NoError(t, tx.Rollback())
					}
					n, err := e.Len()
					assert.NoError(t, err)
					assert.EqualValues(t, 2000, n)
				})
			}
			all.Wait()
		})
		e.token.pass(true)
		e.checkpoints.mu.Unlock()
	}
}

// TestTablesAreUsedAgain: a memtable whose entries are in the tree is reused, but not while a reader may use it. What
// was returned to that reader stays unchanged.
func TestTablesAreUsedAgain(t *testing.T) {
	e := newEngine(t, Options{Durability: Buffered, Manual: true, Thresholds: Thresholds{KeepInline: true}})
	fill := func(round int) {
		for i := range turnEntries/100 + 1 {
			tx := begin(t, e, TxOptions{})
			for j := range 100 {
				require.NoError(t, tx.Put(fmt.Appendf(nil, "%d", (i*100+j)*7919%100003), fmt.Appendf(nil, "of round %d", round)))
			}
			require.NoError(t, tx.Commit())
		}
	}
	fill(0)
	first := e.tree.tables.active
	reader := begin(t, e, TxOptions{ReadOnly: true})
	key := "7919"
	v, _, err := reader.Get([]byte(key))
	require.NoError(t, err)
	for round := 1; round < 6; round++ {
		require.NoError(t, e.tree.mergeAll())
		e.tree.reclaim()
		require.NotSame(t, first, e.tree.tables.active)
		fill(round)
		require.Equal(t, "of round 0", string(v))
		require.Equal(t, "of round 0", get(t, reader, key))
	}
	require.NoError(t, reader.Rollback())
	require.NoError(t, e.tree.mergeAll())
	e.tree.reclaim()
	require.Empty(t, e.tree.tables.retired)
	require.Len(t, e.tree.tables.spare, spareTables)
	again := e.tree.tables.spare[spareTables-1]
	fill(6)
	require.NoError(t, e.tree.mergeAll())
	require.Same(t, again, e.tree.tables.active)
	r := begin(t, e, TxOptions{ReadOnly: true})
	require.Equal(t, "of round 6", get(t, r, key))
	require.NoError(t, r.Rollback())
}

// TestLoadLeavesNoMemory: the memory of a load's entries, and of their merge, is not kept for later batches.
func TestLoadLeavesNoMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes most of a second")
	}
	const load = 2*mostEntries + 1
	e := newEngine(t, Options{Durability: Buffered, Manual: true, MemoryLimit: 1 << 30, RedoLimit: 1 << 30})
	tables := &e.tree.tables
	tables.backgroundFrom = 2 * load // no merge begins by itself
	merged := func(n uint32) {
		for i := uint32(0); i < n; {
			tx := begin(t, e, TxOptions{})
			for end := min(i+1000, n); i < end; i++ { // the keys of a batch ascend; a larger batch would be merged at once
				if err := tx.Put(binary.LittleEndian.AppendUint32(nil, i*7919), nil); err != nil {
					t.Fatal(err)
				}
			}
			require.NoError(t, tx.Commit())
		}
		require.NoError(t, e.log.withLog(func() error {
			require.True(t, e.tree.seal())
			e.tree.finishMerge()
			return e.Failed()
		}))
		e.tree.reclaim()
		require.Empty(t, tables.retired)
	}
	merged(load)
	require.Empty(t, tables.spare)
	require.True(t, reflect.ValueOf(tables.sorter).IsZero())
	merged(2 * turnEntries)
	require.Len(t, tables.spare, 1)
	require.False(t, reflect.ValueOf(tables.sorter).IsZero())
}

// TestLargeBatchesAreLoads: batches of many records in random order are merged together, as smaller batches are,
// although the keys of each batch ascend. Batches of a load in key order are merged two at a time.
func TestLargeBatchesAreLoads(t *testing.T) {
	for _, ascending := range []bool{false, true} {
		e := newEngine(t, Options{Durability: Buffered, Manual: true})
		e.tree.tables.backgroundFrom = 1 << 30 // no merge begins by itself
		for batch := range uint32(3) {
			tx := begin(t, e, TxOptions{})
			for i := range uint32(mostAscending) {
				key := batch*mostAscending + i
				if !ascending {
					key *= 0x9E3779B9
				}
				require.NoError(t, tx.Put(binary.BigEndian.AppendUint32(nil, key), nil))
			}
			require.NoError(t, tx.Commit())
		}
		if ascending {
			require.Equal(t, mostAscending, e.tree.tables.rest())
		} else {
			require.Equal(t, 3*mostAscending, e.tree.tables.rest())
		}
	}
}

// TestMemtableValues: a long value that is replaced before it was in the tree is freed. newEngine checks the space map
// at the end.
func TestMemtableValues(t *testing.T) {
	e := newEngine(t, Options{Durability: Buffered, Manual: true})
	for i := range 6 {
		put(t, e, "long", strings.Repeat(fmt.Sprint(i), 3*logstore.PageSize))
	}
	put(t, e, "gone", strings.Repeat("x", 2*logstore.PageSize))
	tx := begin(t, e, TxOptions{})
	require.NoError(t, tx.Delete([]byte("gone")))
	require.NoError(t, tx.Commit())
	require.True(t, e.Pending())
	r := begin(t, e, TxOptions{ReadOnly: true})
	require.Equal(t, strings.Repeat("5", 3*logstore.PageSize), get(t, r, "long"))
	require.Equal(t, "", get(t, r, "gone"))
	require.NoError(t, r.Rollback())
	require.NoError(t, e.Checkpoint())
}

// TestMemtableIsBounded: however much is committed without reads, the number of unmerged entries is bounded, and the
// bound is lower with a small MemoryLimit.
func TestMemtableIsBounded(t *testing.T) {
	inTurn(t)
	t.Parallel()
	for _, c := range []struct {
		limit, most int64 // of ops
	}{{1 << 30, mostEntries}, {16 << 20, 16 << 20 / 8 / overlay.EntryBytes}} {
		for _, d := range []Durability{Durable, WriteThrough, Buffered} {
			if testing.Short() && c.most == mostEntries && d != Buffered {
				continue // the other limit shows all that differs between the modes
			}
			e := newEngine(t, Options{Durability: d, Manual: true, MemoryLimit: c.limit})
			all, most := int(c.most/deferOps*3/2), 0
			for i := range all {
				tx := begin(t, e, TxOptions{})
				for j := range deferOps {
					require.NoError(t, tx.Put(fmt.Appendf(nil, "%07d", (i*deferOps+j)*7919%1000003), []byte("value")))
				}
				require.NoError(t, tx.Commit())
				most = max(most, e.tree.tables.rest())
			}
			require.LessOrEqual(t, most, int(c.most+deferOps), "%d", d)
			require.GreaterOrEqual(t, most, int(c.most/2), "%d", d)
			n, err := e.Len()
			require.NoError(t, err)
			require.EqualValues(t, all*deferOps, n)
		}
	}
}

// TestSyncLeavesPending: Sync writes and syncs unmerged entries without merging them. They survive a power cut.
func TestSyncLeavesPending(t *testing.T) {
	mem := vfs.NewMem(0)
	defer mem.Release()
	e := openOn(t, mem, Options{Durability: Buffered, Manual: true})
	put(t, e, "k", "v")
	require.NoError(t, e.Sync())
	require.True(t, e.Pending())
	require.Equal(t, e.marks.applied.Load(), e.marks.durable.Load())
	image := mem.Crash(vfs.KeepNone, 0)
	defer image.Release()
	r := openOn(t, image, Options{Manual: true})
	v, ok, err := r.GetCopy([]byte("k"))
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "v", string(v))
	require.NoError(t, r.Close())
	require.NoError(t, e.Close())
}

// TestMemtableAfterFailure: what was durable when the store failed can be read even if it was not in the tree. What
// was not durable cannot be read.
func TestMemtableAfterFailure(t *testing.T) {
	mem := vfs.NewMem(0)
	defer mem.Release()
	e := openOn(t, mem, Options{Durability: Durable, Manual: true})
	many := func(value string) error {
		tx, err := e.Begin(TxOptions{})
		require.NoError(t, err)
		for i := range max(deferOps, pageGroupOps+1) {
			require.NoError(t, tx.Put(fmt.Appendf(nil, "%05d", i), []byte(value)))
		}
		return tx.Commit()
	}
	require.NoError(t, many("1"))
	require.Less(t, e.readers.views.Load(), e.marks.durable.Load(), "not deferred: nothing is tested")
	e.store.Fail(vfs.ErrNoSpace)
	v, ok, err := e.GetCopy([]byte("00007"))
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "1", string(v))
	require.ErrorIs(t, e.Close(), logstore.ErrFailed)
}

// TestMemtableLarge: a large value is replaced before its batch is logged, by the same transaction or by another one
// of the batch. Its segments are freed, also if the batch stays in memory.
func TestMemtableLarge(t *testing.T) {
	for _, d := range []Durability{Durable, WriteThrough, Buffered} {
		t.Run(fmt.Sprint(d), func(t *testing.T) {
			e := newEngine(t, Options{Durability: d, Manual: true, Store: logstore.Options{SegmentPages: 8}})
			private := func() (n int) {
				for _, s := range e.store.Segments() {
					if s.State == logstore.Values {
						n++
					}
				}
				return n
			}
			for range 3 {
				tx := begin(t, e, TxOptions{})
				require.NoError(t, tx.Put([]byte("k"), make([]byte, 100_000)))
				require.Positive(t, private(), "not in segments of its own: nothing is tested")
				require.NoError(t, tx.Put([]byte("k"), []byte("short")))
				require.NoError(t, tx.Commit())
				require.Zero(t, private())
			}
		})
	}
}

// TestMemtablePages: the pages that are reserved for unmerged entries cover all pages that their merge makes dirty,
// even if the records are so short that the slots of a leaf take more bytes than the keys.
func TestMemtablePages(t *testing.T) {
	inTurn(t)
	for _, keyBytes := range []int{3, 4, 8, 40, 400} {
		t.Run(fmt.Sprint(keyBytes), func(t *testing.T) {
			e := newEngine(t, Options{Durability: Buffered, Manual: true})
			for i := range 8 {
				tx := begin(t, e, TxOptions{})
				for j := range 2000 {
					n := uint64(i*2000+j+1) * 0x9E3779B97F4A7C15
					require.NoError(t, tx.Put(append(binary.BigEndian.AppendUint64(nil, n), make([]byte, keyBytes)...)[:keyBytes], nil))
				}
				require.NoError(t, tx.Commit())
			}
			require.NotZero(t, e.tree.tables.rest())
			bound := e.pressure.unwritten()
			require.NoError(t, e.tree.withMerged(func() error {
				require.LessOrEqual(t, e.pages.Unwritten(), bound)
				return nil
			}))
		})
	}
}

// TestMemtableEnds: after a failure nothing is merged, and readers continue.
func TestMemtableEnds(t *testing.T) {
	mem := vfs.NewMem(0)
	defer mem.Release()
	e := openOn(t, mem, Options{Durability: Buffered, Manual: true})
	var readers []*Tx
	for i := range 4 {
		tx := begin(t, e, TxOptions{})
		for j := range 10 {
			require.NoError(t, tx.Put(fmt.Appendf(nil, "%d", j), fmt.Append(nil, i)))
			require.NoError(t, tx.Put(fmt.Appendf(nil, "%d of %d", j, i), nil))
		}
		require.NoError(t, tx.Commit())
		readers = append(readers, begin(t, e, TxOptions{ReadOnly: true}))
	}
	tree := e.readers.views.Load()
	require.Less(t, tree, readers[0].Snapshot(), "the tree has all")
	e.store.Fail(vfs.ErrNoSpace)
	for i, tx := range readers {
		require.Equal(t, fmt.Sprint(i), get(t, tx, "7"))
		require.Error(t, e.tree.mergeAll())
		require.Equal(t, tree, e.readers.views.Load())
		n, err := tx.Len()
		require.NoError(t, err)
		require.EqualValues(t, 10*(i+2), n)
	}
	for _, tx := range readers {
		tx.Rollback()
	}
	require.ErrorIs(t, e.Close(), logstore.ErrFailed)
}

// TestMemtableDuringAFlush: in a file with a size limit, commits change leaves that the running flush writes for the
// first time. The commits reserve room for these leaves, also if the flush has already assigned places to some of
// them.
func TestMemtableDuringAFlush(t *testing.T) {
	const records, size = 1000, 1010 // three to a leaf; few enough to stay unmerged
	key := func(i int) []byte { return fmt.Appendf(nil, "%06d", i) }
	turn, looks := 0, map[int]func(){}
	opts := Options{Thresholds: Thresholds{KeepInline: true, StepPages: 4}, Durability: Durable, Manual: true, Step: func(StepPoint) {
		turn++
		if look := looks[turn]; look != nil {
			look()
		}
	}}
	opts.Store.MaxFileSize = 64 << 20
	e := newEngine(t, opts)
	write := func(value []byte) (estimate int64) {
		tx := begin(t, e, TxOptions{})
		for i := range records {
			require.NoError(t, tx.Put(key(i), value))
		}
		estimate = tx.e.admission.estimate(tx)
		require.NoError(t, tx.Commit())
		return estimate
	}
	write(make([]byte, size))
	require.NoError(t, e.tree.withMerged(func() error { return e.tree.merge() }))
	leaves := e.pages.MustPages() - 1 // the root has a place
	require.Greater(t, leaves, int64(records/4))

	look := func(unplaced, upTo int64) func() {
		return func() {
			got := e.pages.Unplaced()
			require.GreaterOrEqual(t, got, unplaced)
			require.LessOrEqual(t, got, upTo)
			estimate := write([]byte{1})
			require.GreaterOrEqual(t, estimate, leaves)
			e.token.take() // withMerged would merge
			defer e.token.pass(true)
			require.NotZero(t, e.tree.tables.rest())
			held := e.room.held
			require.NoError(t, e.tree.merge())
			require.GreaterOrEqual(t, held, e.pressure.unwritten(), "turn %d", turn)
			delete(looks, turn)
		}
	}
	turn, looks[2], looks[90] = 0, look(leaves, leaves), look(1, leaves-1) // during the first part, and while pages are assigned their places
	require.NoError(t, e.Checkpoint())
	require.Empty(t, looks)
	require.NoError(t, e.Checkpoint())
	require.Zero(t, e.pages.Unplaced())
}
