package dbm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
	"flashdbm/mvcc"
)

// A worn database has had random overwrites, after which half of its records were deleted.
func worn(t *testing.T, db *DB, records, overwrites, size int) (left map[string][]byte) {
	rng := rand.New(rand.NewPCG(1, 2))
	left = map[string][]byte{}
	write := func(n int, change func(tx *Tx, key []byte) error) {
		for n > 0 {
			require.NoError(t, db.Update(func(tx *Tx) error {
				for range min(n, 100) {
					key := binary.BigEndian.AppendUint64(nil, uint64(rng.IntN(records))*0x9E3779B97F4A7C15)
					if err := change(tx, key); err != nil {
						return err
					}
				}
				return nil
			}))
			n -= 100
		}
	}
	put := func(tx *Tx, key []byte) error {
		v := randomBytes(rng, size/2+rng.IntN(size))
		left[string(key)] = v
		return tx.Put(key, v)
	}
	write(overwrites, put)
	write(records*7/10, func(tx *Tx, key []byte) error { delete(left, string(key)); return tx.Delete(key) })
	return left
}

// compacting are options for small files.
func compacting(d Durability) mvcc.Options {
	o := (&Options{Durability: d}).engine()
	o.Store.SegmentPages, o.Store.ChunkPages = 32, 1<<11
	return o
}

// diskBytes returns how much space a file takes on disk.
func diskBytes(t *testing.T, mem *vfs.Mem, path string) int64 {
	f, err := mem.Open(path, os.O_RDONLY, 0)
	require.NoError(t, err)
	defer f.Close()
	n, err := f.Blocks()
	require.NoError(t, err)
	return n
}

// freshBytes returns how much space a database takes on disk after the records were loaded in order.
func freshBytes(t *testing.T, records map[string][]byte, o mvcc.Options) int64 {
	mem := vfs.NewMem(0)
	defer mem.Release()
	db, err := openEngine(mem, "fresh", o)
	require.NoError(t, err)
	keys := slices.Sorted(maps.Keys(records))
	for part := range slices.Chunk(keys, 1000) {
		require.NoError(t, db.Update(func(tx *Tx) error {
			for _, k := range part {
				if err := tx.Put([]byte(k), records[k]); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	require.NoError(t, db.Close())
	return diskBytes(t, mem, "fresh")
}

func requireRecords(t *testing.T, db *DB, want map[string][]byte) {
	n, err := db.Len()
	require.NoError(t, err)
	require.EqualValues(t, len(want), n)
	require.NoError(t, db.View(func(tx *Tx) error {
		for k, v := range tx.All() {
			if string(want[string(k)]) != string(v) {
				return fmt.Errorf("record %x is wrong", k)
			}
		}
		return tx.Err()
	}))
}

// TestCompact: a worn file shrinks to within a tenth of the size of a fresh load of its records, and stays intact.
func TestCompact(t *testing.T) {
	t.Parallel()
	records := 80_000
	if testing.Short() {
		records = 10_000
	}
	for _, d := range []Durability{Buffered, Durable} {
		t.Run(fmt.Sprint(d), func(t *testing.T) {
			mem := vfs.NewMem(0)
			defer mem.Release()
			db, err := openEngine(mem, "db", compacting(Buffered))
			require.NoError(t, err)
			want := worn(t, db, records, 2*records, 200)
			require.NoError(t, db.Close())
			before := diskBytes(t, mem, "db")
			db, err = openEngine(mem, "db", compacting(d))
			require.NoError(t, err)
			last, began := Compaction{}, time.Now()
			require.NoError(t, db.Compact(t.Context(), func(c Compaction) {
				require.GreaterOrEqual(t, c.Done, last.Done)
				last = c
			}))
			took := time.Since(began)
			require.Equal(t, 1.0, last.Done)
			requireRecords(t, db, want)
			require.NoError(t, db.Check(context.Background()))
			after, fresh := diskBytes(t, mem, "db"), freshBytes(t, want, compacting(d))
			t.Logf("%d -> %d bytes, %d a fresh load: %.3f; %v", before, after, fresh, float64(after)/float64(fresh), took)
			require.Less(t, float64(after), 1.1*float64(fresh))
			require.NoError(t, db.Close())
			const segment = 32 * logstore.PageSize // the checkpoint of Close may have to begin a segment
			require.LessOrEqual(t, diskBytes(t, mem, "db"), after+segment)
			db, err = openEngine(mem, "db", compacting(d))
			require.NoError(t, err)
			requireRecords(t, db, want)
			require.NoError(t, db.Check(context.Background()))
			require.NoError(t, db.Close())
			require.ErrorIs(t, db.Compact(t.Context(), nil), ErrClosed)
		})
	}
}

// TestCompactBeside: transactions continue during a compaction, each takes at most a moment longer, and no snapshot
// changes.
func TestCompactBeside(t *testing.T) {
	mem := vfs.NewMem(0)
	defer mem.Release()
	db, err := openEngine(mem, "db", compacting(WriteThrough))
	require.NoError(t, err)
	want := worn(t, db, 30_000, 50_000, 200)
	old, err := db.Begin(TxOptions{ReadOnly: true})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var counts [3]atomic.Int32
	for g := range counts {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				key := fmt.Appendf(nil, "new-%d-%d", g, n%500)
				err := db.UpdateContext(t.Context(), TxOptions{Serializable: g == 0}, func(tx *Tx) error {
					if _, err := tx.Get(key); err != nil && !errors.Is(err, ErrNotFound) {
						return err
					}
					return tx.Put(key, binary.BigEndian.AppendUint64(nil, uint64(n)))
				})
				if err != nil {
					t.Errorf("committer %d: %v", g, err)
					return
				}
				counts[g].Add(1)
			}
		})
	}
	few := func() bool { return counts[0].Load() <= 20 || counts[1].Load() <= 20 || counts[2].Load() <= 20 }
	for n := 0; n < 3 || few() && !t.Failed(); n++ {
		require.NoError(t, db.Compact(t.Context(), nil))
	}
	stop()
	all.Wait()
	n := 0
	for k, v := range old.All() {
		require.Equal(t, want[string(k)], v)
		n++
	}
	require.NoError(t, old.Err())
	require.Len(t, want, n)
	require.NoError(t, old.Rollback())
	for g := range counts {
		done := int(counts[g].Load())
		for i := max(0, done-500); i < done; i++ {
			want[fmt.Sprintf("new-%d-%d", g, i%500)] = binary.BigEndian.AppendUint64(nil, uint64(i))
		}
	}
	requireRecords(t, db, want)
	require.NoError(t, db.Check(context.Background()))
	require.NoError(t, db.Close())
}

// TestCompactEnds: a compaction ends early when its context ends or Close is called, and leaves everything as
// usable as before.
func TestCompactEnds(t *testing.T) {
	t.Parallel()
	mem := vfs.NewMem(0)
	defer mem.Release()
	db, err := openEngine(mem, "db", compacting(WriteThrough))
	require.NoError(t, err)
	records := 30_000
	if testing.Short() {
		records = 10_000
	}
	want := worn(t, db, records, records*5/3, 200)
	for limit := 1; ; limit++ { // number of calls of stop
		ctx := &countedContext{Context: t.Context(), left: limit}
		err := db.Compact(ctx, nil)
		if err == nil {
			require.Greater(t, limit, 4)
			break
		}
		require.ErrorIs(t, err, context.Canceled)
		requireRecords(t, db, want)
	}
	require.NoError(t, db.Check(context.Background()))
	require.NoError(t, db.Close())
	db, err = openEngine(mem, "db", compacting(WriteThrough))
	require.NoError(t, err)
	want = worn(t, db, records, records*5/3, 200)
	var closed error
	started := make(chan bool)
	go func() { <-started; closed = db.Close(); started <- true }()
	err = db.Compact(&hookedContext{Context: t.Context(), at: 2, hook: func() {
		started <- true
		for {
			tx, err := db.Begin(TxOptions{ReadOnly: true})
			if errors.Is(err, ErrClosed) {
				return
			}
			require.NoError(t, err)
			require.NoError(t, tx.Rollback())
			time.Sleep(time.Millisecond)
		}
	}}, nil)
	require.ErrorIs(t, err, ErrClosed)
	<-started
	require.NoError(t, closed)
	db, err = openEngine(mem, "db", compacting(WriteThrough))
	require.NoError(t, err)
	requireRecords(t, db, want)
	require.NoError(t, db.Close())
}

// countedContext ends after it has been asked a given number of times.
type countedContext struct {
	context.Context
	left int
}

func (c *countedContext) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// hookedContext calls hook when it is asked for the at-th time.
type hookedContext struct {
	context.Context
	at   int
	hook func()
}

func (c *hookedContext) Err() error {
	if c.at--; c.at == 0 {
		c.hook()
	}
	return nil
}

// TestCompactMakesNothingLarger: a file of one record, or of some, is not larger after Compact.
func TestCompactMakesNothingLarger(t *testing.T) {
	for _, bytes := range []int{1, 100 << 10, 1 << 20, 3 << 20} {
		path := filepath.Join(t.TempDir(), "a.fdbm")
		db, err := openUnsynced(path, nil)
		require.NoError(t, err)
		for i := range max(bytes/1000, 1) {
			require.NoError(t, db.Put(fmt.Appendf(nil, "%06d", i), make([]byte, min(bytes, 1000))))
		}
		require.NoError(t, db.Close())
		before, err := os.Stat(path)
		require.NoError(t, err)
		db, err = openUnsynced(path, nil)
		require.NoError(t, err)
		require.NoError(t, db.Compact(t.Context(), nil))
		require.NoError(t, db.Close())
		after, err := os.Stat(path)
		require.NoError(t, err)
		t.Logf("%d bytes: %d, then %d", bytes, before.Size(), after.Size())
		require.LessOrEqual(t, after.Size(), before.Size())
	}
}
