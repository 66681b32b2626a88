package mvcc

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/internal/btree"
	"flashdbm/internal/redo"
	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
	"flashdbm/override"
)

// loggedWork writes random records, most of them with logged values, and notes them in want.
func loggedWork(t *testing.T, e *Engine, rng *rand.Rand, n int, want map[string]string) {
	t.Helper()
	for range n {
		tx := begin(t, e, TxOptions{})
		for range 1 + rng.IntN(4) {
			key := fmt.Sprintf("key%04d", rng.IntN(400))
			if rng.IntN(8) == 0 {
				require.NoError(t, tx.Delete([]byte(key)))
				delete(want, key)
				continue
			}
			value := string(make([]byte, 1+rng.IntN(3))) + fmt.Sprintf("%0*d", 1+rng.IntN(1300), rng.Uint32())
			if rng.IntN(20) == 0 { // a run, between logged values
				value = fmt.Sprintf("%0*d", 6000, rng.Uint32())
			}
			require.NoError(t, tx.Put([]byte(key), []byte(value)))
			want[key] = value
		}
		require.NoError(t, tx.Commit())
	}
}

// loggedPlaces returns the places of the logged values of the newest tree.
func loggedPlaces(t *testing.T, e *Engine) map[string]logstore.Place {
	t.Helper()
	require.NoError(t, e.tree.mergeAll())
	tx := begin(t, e, TxOptions{})
	defer tx.Rollback()
	places := map[string]logstore.Place{}
	var c btree.Cursor
	c.Reset(&tx.snap.Snapshot, override.Root)
	for c.Next() {
		if cell := c.Cell(); cell.Kind() == btree.Logged {
			places[string(c.Key())] = logstore.Place(cell.Ref().ID)
		}
	}
	require.NoError(t, c.Err())
	return places
}

// TestLoggedValues: values that stay in the log are read before and after syncs, flushes, checkpoints, and the end of
// the process with and without a clean close, also by an engine that follows. Each time Check requires that exactly
// the values to which the tree refers are live.
func TestLoggedValues(t *testing.T) {
	inTurn(t)
	for _, d := range []Durability{Durable, WriteThrough, Buffered} {
		t.Run(fmt.Sprint(d), func(t *testing.T) {
			mem := vfs.NewMem(0)
			defer func() { mem.Release() }()
			opts := tiny(d)
			opts.Manual = true
			e := openOn(t, mem, opts)
			rng := rand.New(rand.NewPCG(1, uint64(d)))
			want := map[string]string{}
			for round := range 12 {
				loggedWork(t, e, rng, 60, want)
				requireAll(t, e, want)
				require.Equal(t, d != WriteThrough, len(loggedPlaces(t, e)) > 30, "logged values")
				switch round % 4 {
				case 0:
					require.NoError(t, e.Sync())
				case 1:
					require.NoError(t, e.Checkpoint())
					loggedWork(t, e, rng, 5, want)
				case 2:
					require.NoError(t, e.Housekeep())
					loggedWork(t, e, rng, 5, want)
					require.NoError(t, e.Sync())
					crashed := mem.Clone() // the process ends here
					e.Close()
					mem.Release()
					mem = crashed
					e = openOn(t, mem, opts)
				case 3:
					require.NoError(t, e.Close())
					e = openOn(t, mem, opts)
				}
				requireAll(t, e, want)
			}
			require.NoError(t, e.Close())
		})
	}
}

// TestLoggedValuesMove: segments with few live logged values are emptied. Neither transactions nor recovery after a
// crash are affected.
func TestLoggedValuesMove(t *testing.T) {
	for _, d := range []Durability{Durable, Buffered} {
		t.Run(fmt.Sprint(d), func(t *testing.T) {
			mem := vfs.NewMem(0)
			defer mem.Release()
			opts := tiny(d)
			opts.Manual, opts.RedoLimit = true, 64<<20
			e := openOn(t, mem, opts)
			want := map[string]string{}
			tx := begin(t, e, TxOptions{})
			for i := range 600 {
				key, value := fmt.Sprintf("key%04d", i*7919%1000), fmt.Sprintf("%0*d", 300+i, i)
				require.NoError(t, tx.Put([]byte(key), []byte(value)))
				want[key] = value
			}
			require.NoError(t, tx.Commit())
			n := 0
			for key := range want {
				if n++; n%4 != 0 {
					delete(want, key)
					tx := begin(t, e, TxOptions{})
					require.NoError(t, tx.Delete([]byte(key)))
					require.NoError(t, tx.Commit())
				}
			}
			for range 2 {
				require.NoError(t, e.Checkpoint())
			}
			overwritten := 0
			for key := range want { // the old values of these stay live until a flush has listed them
				if overwritten++; overwritten%5 == 0 {
					want[key] = fmt.Sprintf("%0*d", 400, overwritten)
					put(t, e, key, want[key])
				}
			}
			reader := begin(t, e, TxOptions{ReadOnly: true})
			slices := map[string][]byte{}
			for key := range want {
				v, ok, err := reader.Get([]byte(key))
				require.NoError(t, err)
				require.True(t, ok)
				slices[key] = v
			}
			serial := begin(t, e, TxOptions{Serializable: true}) // moves of values that it reads are no conflict
			for key, value := range want {
				require.Equal(t, value, get(t, serial, key))
			}
			require.NoError(t, serial.Put([]byte("key0000 serial"), []byte("v")))
			before := loggedPlaces(t, e)
			e.checkpoints.mu.Lock()
			require.NoError(t, e.cleaner.clean(1<<20))
			e.checkpoints.mu.Unlock()
			want["key0000 serial"] = "v"
			require.NoError(t, serial.Commit())
			require.NoError(t, e.Sync())
			moved := 0
			for key, place := range loggedPlaces(t, e) {
				if before[key] != place {
					moved++
				}
			}
			require.Greater(t, moved, len(want)/2)
			requireAll(t, e, want)
			crashed := mem.Clone() // both places are live
			defer crashed.Release()
			for key, v := range slices {
				require.Equal(t, want[key], string(v))
			}
			require.NoError(t, reader.Rollback())
			require.NoError(t, e.Checkpoint())
			requireAll(t, e, want)
			require.NoError(t, e.Close())

			e = openOn(t, crashed, opts)
			requireAll(t, e, want)
			require.NoError(t, e.Checkpoint())
			requireAll(t, e, want)
			require.NoError(t, e.Close())
		})
	}
}

// TestLoggedRedo: the stream of a record group says where each logged value is. A stream that does not is refused.
func TestLoggedRedo(t *testing.T) {
	page := func(records ...[]byte) []byte {
		p := make([]byte, 0, logstore.BodySize)
		for _, r := range records {
			p = append(p, r...)
		}
		return p[:logstore.BodySize]
	}
	logged := func(key string, n int) []byte {
		r := redo.Append(nil, &btree.Op{Key: []byte(key), Value: make([]byte, n)})
		r[0] = redo.Logged
		return r
	}
	inline := redo.Append(nil, &btree.Op{Key: []byte("i"), Value: []byte("inline")})
	group := func(values ...uint64) *logstore.ScannedGroup {
		g := &logstore.ScannedGroup{}
		for i, n := range values {
			g.Pages = append(g.Pages, logstore.ScannedPage{Addr: uint64(7 + i), Kind: logstore.KindRecord, Values: int(n)})
		}
		return g
	}
	read := func(stream []byte, g *logstore.ScannedGroup) (refs []btree.Ref, err error) {
		err = readGroupRedo(stream, g, func(op btree.Op) {
			if op.Ref != nil {
				require.Nil(t, op.Value)
				refs = append(refs, *op.Ref)
			}
		}, nil)
		return refs, err
	}
	stream := append(page(logged("a", 1000), inline, logged("b", 2000)), page(logged("c", 300))...)
	refs, err := read(stream, group(2, 1))
	require.NoError(t, err)
	a, b := logged("a", 1000), logged("b", 2000)
	require.Equal(t, []btree.Ref{
		{Kind: btree.Logged, ID: uint64(logstore.PlaceOf(7, len(a)-1000, 0)), ValueLen: 1000},
		{Kind: btree.Logged, ID: uint64(logstore.PlaceOf(7, len(a)+len(inline)+len(b)-2000, 1)), ValueLen: 2000},
		{Kind: btree.Logged, ID: uint64(logstore.PlaceOf(8, len(logged("c", 300))-300, 0)), ValueLen: 300},
	}, refs)
	for name, g := range map[string]*logstore.ScannedGroup{
		"fewer values than the page has": group(1, 1), "more values": group(3, 1), "values of another page": group(1, 2), "no page": group(2),
	} {
		_, err := read(stream, g)
		require.ErrorIs(t, err, redo.ErrStream, name)
	}
	// One page that is two pages long in the file, and one page after it.
	span := append(logged("a", 2000), logged("b", 1900)...)
	at := len(span)
	span = append(span, logged("c", 400)...)
	span = append(append(span, make([]byte, logstore.BodySize+logstore.PageSize-len(span))...), page(logged("d", 300))...)
	long := func(run int64, values ...uint64) *logstore.ScannedGroup {
		g := group(values...)
		g.Pages[0].Run = run
		return g
	}
	refs, err = read(span, long(2, 3, 1))
	require.NoError(t, err)
	require.Equal(t, uint64(logstore.PlaceOf(7, at+len(logged("c", 400))-400, 2)), refs[2].ID)
	require.Equal(t, uint64(logstore.PlaceOf(8, len(logged("d", 300))-300, 0)), refs[3].ID)
	for name, g := range map[string]*logstore.ScannedGroup{
		"a value across pages": group(2, 1, 1), "fewer": long(2, 2, 1), "more": long(2, 4, 1), "longer": long(3, 3, 1),
	} {
		_, err = read(span, g)
		require.ErrorIs(t, err, redo.ErrStream, name)
	}
}

// TestLoggedBetweenParts: commits are buffered between the parts of a flush, and the tree refers to their values at
// once. These commits are in the log before the next part is.
func TestLoggedBetweenParts(t *testing.T) {
	mem := vfs.NewMem(0)
	defer mem.Release()
	opts := tiny(Buffered)
	opts.Manual, opts.StepPages, opts.RedoLimit = true, 1, 64<<20
	want := map[string]string{}
	var between func()
	opts.Step = func(p StepPoint) {
		if p == StepBetween && between != nil {
			between()
		}
	}
	e := openOn(t, mem, opts)
	commits := 0
	commit := func() {
		commits++
		key, value := fmt.Sprintf("between%04d", commits%40), fmt.Sprintf("%0*d", 300, commits)
		put(t, e, key, value)
		want[key] = value
	}
	loggedWork(t, e, rand.New(rand.NewPCG(3, 4)), 200, want)
	for range 3 {
		between = func() {
			commit()
			view := begin(t, e, TxOptions{ReadOnly: true})
			key := fmt.Sprintf("between%04d", commits%40)
			require.Equal(t, want[key], get(t, view, key))
			require.NoError(t, view.Rollback())
		}
		require.NoError(t, e.Checkpoint())
		between = nil
		require.Greater(t, commits, 3)
		requireAll(t, e, want)
	}
	require.NoError(t, e.Sync())
	crashed := mem.Clone()
	defer crashed.Release()
	require.NoError(t, e.Close())
	e = openOn(t, crashed, opts)
	requireAll(t, e, want)
	require.NoError(t, e.Close())
}

// TestUnsyncedValuesAreBounded: pages of logged values that wait for a sync take at most an eighth of MemoryLimit plus
// the pages of one batch, however late the next sync is.
func TestUnsyncedValuesAreBounded(t *testing.T) {
	inTurn(t)
	mem := vfs.NewMem(0)
	defer mem.Release()
	const limit = 8 << 20
	e := openOn(t, mem, Options{Durability: Buffered, FlushInterval: time.Hour, MemoryLimit: limit, RedoLimit: 64 << 20, Manual: true})
	defer e.Close()
	most := int64(0)
	for i := range 10_000 {
		put(t, e, fmt.Sprintf("key%05d", i), strings.Repeat("v", 1000))
		most = max(most, e.store.UnsyncedBytes())
	}
	require.Greater(t, most, int64(limit/unsyncedMost/2))
	require.LessOrEqual(t, most, int64(limit/unsyncedMost+2*bufferedBytes))
	require.NoError(t, e.store.Sync())
	require.Zero(t, e.store.UnsyncedBytes())
}

// TestUnsyncedValuesAreBoundedBesideRuns: the same if each batch has a long value, so that its group is written at
// once.
func TestUnsyncedValuesAreBoundedBesideRuns(t *testing.T) {
	mem := vfs.NewMem(0)
	defer mem.Release()
	const limit = 8 << 20
	e := openOn(t, mem, Options{Durability: Buffered, FlushInterval: time.Hour, MemoryLimit: limit, RedoLimit: 64 << 20, Manual: true})
	defer e.Close()
	most := int64(0)
	for i := range 400 {
		tx := begin(t, e, TxOptions{})
		for j := range 10 {
			require.NoError(t, tx.Put(fmt.Appendf(nil, "key%02d%05d", j, i), make([]byte, 1000)))
		}
		require.NoError(t, tx.Put(fmt.Appendf(nil, "run%05d", i), make([]byte, 4000)))
		require.NoError(t, tx.Commit())
		most = max(most, e.store.UnsyncedBytes())
	}
	require.Greater(t, most, int64(limit/unsyncedMost/2))
	require.LessOrEqual(t, most, int64(limit/unsyncedMost+2*bufferedBytes))
}

// TestMovedValuesAreBounded: values that the cleaner moves take no more memory than others while they wait for a
// sync, even if nothing else syncs.
func TestMovedValuesAreBounded(t *testing.T) {
	inTurn(t)
	const limit = 2 << 20
	for _, d := range []Durability{Durable, WriteThrough, Buffered} {
		t.Run(fmt.Sprint(d), func(t *testing.T) {
			mem := vfs.NewMem(0)
			defer mem.Release()
			opts := Options{Durability: Buffered, FlushInterval: time.Hour, MemoryLimit: limit, RedoLimit: 64 << 20, Manual: true}
			e := openOn(t, mem, opts)
			for i := range 8000 {
				put(t, e, fmt.Sprintf("key%05d", i), strings.Repeat("v", 1000))
			}
			for i := range 8000 {
				if i%4 > 0 {
					put(t, e, fmt.Sprintf("key%05d", i), "v")
				}
			}
			require.NoError(t, e.Checkpoint())
			crashed := mem.Clone()
			defer crashed.Release()
			require.NoError(t, e.Close())
			opts.Durability = d
			most := int64(0)
			opts.Step = func(StepPoint) {
				if e != nil {
					most = max(most, e.store.UnsyncedBytes())
				}
			}
			e = nil
			e = openOn(t, crashed, opts)
			defer e.Close()
			e.checkpoints.mu.Lock()
			defer e.checkpoints.mu.Unlock()
			require.NoError(t, e.cleaner.clean(1<<20))
			require.Greater(t, e.flusher.moved.Load(), uint64(2*limit/unsyncedMost/logstore.PageSize))
			require.LessOrEqual(t, most, int64(limit/unsyncedMost+movedValues*1100))
		})
	}
}
