package mvcc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
)

// sparseRuns returns an engine in which most value runs, at scattered places, were deleted, and the records that are
// left.
func sparseRuns(t *testing.T, mem *vfs.Mem, d Durability) (e *Engine, want map[string]string) {
	opts := tiny(d)
	opts.Manual, opts.RedoLimit = true, 64<<20
	e = openOn(t, mem, opts)
	rng := rand.New(rand.NewPCG(1, 2))
	want = map[string]string{}
	for i := range 300 {
		key := fmt.Sprintf("key%04d", i*7919%1000)
		if i%10 == 0 {
			key += string(bytes.Repeat([]byte{'k'}, 1500))
		}
		value := string(bytes.Repeat([]byte{byte(i)}, 3000+rng.IntN(9000)))
		put(t, e, key, value)
		if i%4 == 0 {
			want[key] = value
		} else {
			defer func() {
				tx := begin(t, e, TxOptions{})
				require.NoError(t, tx.Delete([]byte(key)))
				require.NoError(t, tx.Commit())
			}()
		}
	}
	return e, want
}

func requireAll(t *testing.T, e *Engine, want map[string]string) {
	t.Helper()
	tx := begin(t, e, TxOptions{ReadOnly: true})
	for k, v := range want {
		require.True(t, get(t, tx, k) == v, "%.20q", k)
	}
	n, err := tx.Len()
	require.NoError(t, err)
	require.EqualValues(t, len(want), n)
	require.NoError(t, tx.Rollback())
	require.NoError(t, e.Check(context.Background()))
}

// TestValueRunsMove: segments of value runs are cleaned like others. A reader with a slice of the old place is not
// affected, nor is a serializable transaction that has read the value. A value that was overwritten meanwhile stays
// overwritten.
func TestValueRunsMove(t *testing.T) {
	inTurn(t)
	for _, d := range []Durability{Durable, WriteThrough, Buffered} {
		t.Run(fmt.Sprint(d), func(t *testing.T) {
			mem := vfs.NewMem(0)
			defer mem.Release()
			e, want := sparseRuns(t, mem, d)
			require.NoError(t, e.Checkpoint())
			require.NoError(t, e.Checkpoint())
			before := e.store.SpaceStats().FileBytes
			old := begin(t, e, TxOptions{ReadOnly: true})
			serial := begin(t, e, TxOptions{Serializable: true})
			writer := begin(t, e, TxOptions{})
			held := map[string][]byte{}
			var some string
			for k, v := range want {
				s, ok, err := old.Get([]byte(k))
				require.NoError(t, err)
				require.True(t, ok && string(s) == v)
				held[k] = s
				require.Equal(t, v, get(t, serial, k))
				some = k
			}
			require.NoError(t, serial.Put([]byte("serial"), []byte("1")))
			require.Equal(t, want[some], get(t, writer, some))
			require.NoError(t, writer.Put([]byte(some), []byte("overwritten")))
			require.NoError(t, e.Compact(t.Context(), nil))
			put(t, e, "other", "1") // without another commit, nothing would be compared
			require.NoError(t, serial.Commit(), "its values were moved, not changed")
			require.NoError(t, writer.Commit(), "nobody has written its key")
			want["other"], want["serial"], want[some] = "1", "1", "overwritten"
			for k, s := range held {
				if k != some {
					require.True(t, string(s) == want[k], "a slice of the old place")
				}
			}
			require.NoError(t, old.Rollback())
			require.NoError(t, e.Compact(t.Context(), nil))
			requireAll(t, e, want)
			after := e.store.SpaceStats()
			t.Logf("%d -> %d bytes, %d live", before, after.FileBytes, after.LiveBytes)
			require.Less(t, after.FileBytes, 2*after.LiveBytes)
			require.NoError(t, e.Close())
			e = openOn(t, mem, tiny(d))
			requireAll(t, e, want)
			require.NoError(t, e.Close())
		})
	}
}

// TestMovedRunsInCrashes: the power is cut or the process killed at every write of a move, with commits in between and
// without. No value is lost, and no deleted value comes back.
func TestMovedRunsInCrashes(t *testing.T) {
	inTurn(t)
	mem := vfs.NewMem(0)
	defer mem.Release()
	e, want := sparseRuns(t, mem, Durable)
	require.NoError(t, e.Checkpoint())
	require.NoError(t, e.Checkpoint())
	var gone string
	for k := range want {
		gone = max(gone, k)
	}
	var images []*vfs.Mem
	n := 0
	mem.OnOp(func(op vfs.Op) error {
		if n++; op.Kind != vfs.OpMap && n%5 == 0 {
			images = append(images, mem.Crash(vfs.Policies()[n/5%len(vfs.Policies())], uint64(n)), mem.Crash(vfs.KeepAll, 1))
		}
		return nil
	})
	e.checkpoints.mu.Lock()
	victims, _ := e.store.Victims(nil, true)
	require.NotEmpty(t, victims)
	segments := map[uint32]bool{}
	for _, v := range victims {
		segments[v.Segment] = true
	}
	before := e.flusher.moved.Load()
	room, err := e.cleaner.moveRuns(segments, func(extra int64) error { return e.store.Reserve(extra, false) })
	require.NoError(t, err)
	require.True(t, room)
	require.Greater(t, e.flusher.moved.Load(), before+20)
	e.checkpoints.mu.Unlock()
	first := len(images)
	put(t, e, gone, "new")
	overwritten := len(images)
	require.NoError(t, e.Checkpoint())
	mem.OnOp(nil)
	require.NoError(t, e.Close())
	require.Greater(t, first, 10)
	for i, image := range images {
		e := openOn(t, image, tiny(Durable))
		tx := begin(t, e, TxOptions{ReadOnly: true})
		now := get(t, tx, gone)
		require.NoError(t, tx.Rollback())
		switch {
		case i < first:
			require.Equal(t, want[gone], now)
		case i >= overwritten:
			require.Equal(t, "new", now)
		}
		held := want[gone]
		want[gone] = now
		requireAll(t, e, want)
		require.NoError(t, e.Compact(t.Context(), nil))
		requireAll(t, e, want)
		want[gone] = held
		require.NoError(t, e.Close())
		image.Release()
	}
}

// TestOverwrittenRunStays: a value that is overwritten or deleted after it was chosen for a move, and before the move,
// does not come back.
func TestOverwrittenRunStays(t *testing.T) {
	mem := vfs.NewMem(0)
	defer mem.Release()
	e, want := sparseRuns(t, mem, WriteThrough)
	require.NoError(t, e.Checkpoint())
	require.NoError(t, e.Checkpoint())
	keys := slices.Sorted(maps.Keys(want))
	last, deleted := keys[len(keys)-1], keys[len(keys)-2] // the last ones to move
	value := string(bytes.Repeat([]byte{'o'}, len(want[last])))
	all := map[uint32]bool{}
	for n := range e.store.SpaceStats().Segments {
		all[uint32(n)] = true
	}
	found, err := e.cleaner.findRuns(all)
	require.NoError(t, err)
	require.Len(t, found, len(want))
	put(t, e, last, value)
	tx := begin(t, e, TxOptions{})
	require.NoError(t, tx.Delete([]byte(deleted)))
	require.NoError(t, tx.Commit())
	e.checkpoints.mu.Lock()
	room, err := e.cleaner.move(found, func(extra int64) error { return e.store.Reserve(extra, false) })
	require.NoError(t, err)
	require.True(t, room)
	require.NoError(t, e.flusher.flushAndCheckpoint())
	e.checkpoints.mu.Unlock()
	want[last] = value
	delete(want, deleted)
	requireAll(t, e, want)
	require.NoError(t, e.Close())
	e = openOn(t, mem, tiny(Durable))
	requireAll(t, e, want)
	require.NoError(t, e.Close())
}

// TestMovedRunsAreSynced: durable values are moved, and then a sync fails. Readers still see them unchanged, although
// the system has dropped the new copies.
func TestMovedRunsAreSynced(t *testing.T) {
	for _, d := range []Durability{Durable, WriteThrough, Buffered} {
		step := 2
		if d == Durable {
			step = 1 // every sync
		}
		for at, struck := 1, true; struck; at += step {
			mem := vfs.NewMem(0)
			e, want := sparseRuns(t, mem, d)
			require.NoError(t, e.Sync())
			syncs := 0
			struck = false
			mem.OnOp(func(op vfs.Op) error {
				if op.Kind == vfs.OpDatasync {
					if syncs++; syncs == at {
						struck = true
						return syscall.EIO
					}
				}
				return nil
			})
			err := e.Compact(context.Background(), func(Compaction) {})
			require.Equal(t, struck, errors.Is(err, logstore.ErrFailed), "%v", err)
			for range 2 {
				tx := begin(t, e, TxOptions{ReadOnly: true})
				for k, v := range want {
					got, ok, err := tx.Get([]byte(k))
					require.NoError(t, err, "sync %d, %.20q", at, k)
					require.True(t, ok && string(got) == v, "sync %d, %.20q", at, k)
				}
				require.NoError(t, tx.Rollback())
				mem.Evict()
			}
			e.Close()
			mem.Release()
		}
	}
}
