package mvcc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
	"flashdbm/override"
)

// killedWithRedo returns the file of an engine that was killed, and its records. Recovery installs pages and then has
// records to redo. The leaves have born names.
func killedWithRedo(t testing.TB) (*vfs.Mem, map[string]string) { return killedAfter(t, 1) }

// killedAfter is killedWithRedo with the given number of checkpoints before the records to redo. The second checkpoint
// folds, so that the leaves have addresses as names.
func killedAfter(t testing.TB, checkpoints int) (*vfs.Mem, map[string]string) {
	t.Helper()
	mem := vfs.NewMem(0)
	defer mem.Release()
	e := openOn(t, mem, Options{Manual: true, Store: logstore.Options{SegmentPages: 8}})
	want := map[string]string{}
	rng := rand.New(rand.NewPCG(11, 12))
	commit := func(keys int, change func(n int) (value string, deleted bool)) {
		tx := begin(t, e, TxOptions{})
		for n := range keys {
			key := fmt.Sprintf("key%04d", rng.IntN(2000))
			if n%50 == 0 {
				key += string(bytes.Repeat([]byte{'l'}, 1200))
			}
			value, deleted := change(n)
			if deleted {
				require.NoError(t, tx.Delete([]byte(key)))
				delete(want, key)
			} else {
				require.NoError(t, tx.Put([]byte(key), []byte(value)))
				want[key] = value
			}
		}
		require.NoError(t, tx.Commit())
	}
	commit(1500, func(n int) (string, bool) { return fmt.Sprintf("old %d", n), false })
	for range checkpoints {
		require.NoError(t, e.Checkpoint())
	}
	for round := range 3 {
		commit(400, func(n int) (string, bool) {
			switch {
			case n%3 == 0:
				return "", true
			case n%97 == 1:
				return string(bytes.Repeat([]byte{byte(n)}, 20_000)), false
			case n == 200:
				return string(bytes.Repeat([]byte{byte(n)}, 400_000)), false // larger than a run
			case n%31 == 1:
				return "", false
			}
			return fmt.Sprintf("new %d %d", round, n), false
		})
	}
	image := mem.Clone()
	require.NoError(t, e.Close())
	return image, want
}

func lookEverywhere(t testing.TB, want map[string]string, get func(key string) (string, bool)) {
	t.Helper()
	for n := range 2000 {
		for _, key := range []string{fmt.Sprintf("key%04d", n), fmt.Sprintf("key%04d%s", n, bytes.Repeat([]byte{'l'}, 1200))} {
			w, there := want[key]
			v, ok := get(key)
			require.Equal(t, there, ok, "%.20q", key)
			require.True(t, w == v, "%.20q: %.20q instead of %.20q", key, v, w)
		}
	}
	for _, key := range []string{"", "k", "key", "kez", "zz", "key00001"} {
		_, ok := get(key)
		require.False(t, ok)
	}
}

func collect(t testing.TB, tx *Tx) map[string]string {
	t.Helper()
	got := map[string]string{}
	c := tx.Cursor()
	for ok := c.First(); ok; ok = c.Next() {
		v, err := c.Value()
		require.NoError(t, err)
		got[string(c.Key())] = string(v)
	}
	require.NoError(t, c.Err())
	return got
}

func getter(t testing.TB, tx *Tx) func(key string) (string, bool) {
	return func(key string) (string, bool) {
		v, ok, err := tx.Get([]byte(key))
		require.NoError(t, err)
		has, err := tx.Has([]byte(key))
		require.NoError(t, err)
		require.Equal(t, ok, has)
		return string(v), ok
	}
}

// TestLookupsOverRedo: lookups of all kinds are answered before the redo is in the tree, with the same results as
// afterwards.
func TestLookupsOverRedo(t *testing.T) {
	inTurn(t)
	for _, readOnly := range []bool{false, true} {
		t.Run(fmt.Sprintf("read-only %v", readOnly), func(t *testing.T) {
			image, want := killedWithRedo(t)
			defer image.Release()
			e := openOn(t, image, Options{Manual: true, Thresholds: Thresholds{RedoBehind: 3}, Store: logstore.Options{ReadOnly: readOnly}})
			defer func() { require.NoError(t, e.Close()) }()
			require.True(t, e.Redoing())
			require.Greater(t, e.recovery.stats.Records, int64(1000))

			lookEverywhere(t, want, func(key string) (string, bool) {
				v, ok, err := e.GetCopy([]byte(key))
				require.NoError(t, err)
				has, err := e.Exists([]byte(key))
				require.NoError(t, err)
				require.Equal(t, ok, has)
				return string(v), ok
			})
			lookEverywhere(t, want, func(key string) (value string, ok bool) {
				ok, err := e.Look([]byte(key), func(v []byte) { value = string(v) })
				require.NoError(t, err)
				return value, ok
			})
			early := begin(t, e, TxOptions{ReadOnly: true})
			lookEverywhere(t, want, getter(t, early))
			lookEverywhere(t, want, func(key string) (string, bool) {
				r, n, ok, err := early.ValueReader([]byte(key))
				require.NoError(t, err)
				if !ok {
					return "", false
				}
				v, err := io.ReadAll(r)
				require.NoError(t, err)
				require.EqualValues(t, n, len(v))
				return string(v), true
			})
			late := begin(t, e, TxOptions{ReadOnly: true})
			require.Equal(t, want, collect(t, late))
			n, err := e.Len()
			require.NoError(t, err)
			require.EqualValues(t, len(want), n)
			require.True(t, e.Redoing(), "nobody waits")
			require.NoError(t, e.tree.mergeAll())
			require.False(t, e.Redoing())
			lookEverywhere(t, want, getter(t, early))
			lookEverywhere(t, want, getter(t, late))
			require.Equal(t, want, collect(t, early))
			for _, tx := range []*Tx{early, late, begin(t, e, TxOptions{ReadOnly: true})} {
				n, err := tx.Len()
				require.NoError(t, err)
				require.EqualValues(t, len(want), n)
				require.NoError(t, tx.Rollback())
			}
			require.NoError(t, e.Check(context.Background()))
		})
	}
}

// TestWhatWaitsForRedo: when any of these calls returns, the redo is merged.
func TestWhatWaitsForRedo(t *testing.T) {
	image, _ := killedWithRedo(t)
	defer image.Release()
	for name, fn := range map[string]func(e *Engine) error{
		"Checkpoint": (*Engine).Checkpoint,
		"Housekeep":  (*Engine).Housekeep,
		"Check":      func(e *Engine) error { return e.Check(context.Background()) },
		"Commit": func(e *Engine) error {
			tx := begin(t, e, TxOptions{})
			require.NoError(t, tx.Put([]byte("k"), nil))
			require.True(t, e.Redoing())
			return tx.Commit()
		},
	} {
		t.Run(name, func(t *testing.T) {
			mem := image.Clone()
			defer mem.Release()
			e := openOn(t, mem, Options{Manual: true, Thresholds: Thresholds{RedoBehind: 3}})
			require.True(t, e.Redoing())
			within(t, func() { require.NoError(t, fn(e)) })
			require.False(t, e.Redoing())
			require.NoError(t, e.Check(context.Background()))
			require.NoError(t, e.Close())
		})
	}
}

// TestSyncOverRedo: the records to redo were durable when Open returned, so Sync does not wait for them.
func TestSyncOverRedo(t *testing.T) {
	image, want := killedWithRedo(t)
	defer image.Release()
	e := openOn(t, image, Options{Manual: true, Thresholds: Thresholds{RedoBehind: 3}})
	require.NoError(t, e.Sync())
	require.True(t, e.Redoing())
	n, err := e.Len()
	require.NoError(t, err)
	require.EqualValues(t, len(want), n)
	require.NoError(t, e.Close())
}

// TestCommitOverRedo: the redo is no conflict for transactions that began before it was merged; later commits are.
func TestCommitOverRedo(t *testing.T) {
	for _, serializable := range []bool{false, true} {
		t.Run(fmt.Sprintf("serializable %v", serializable), func(t *testing.T) {
			image, want := killedWithRedo(t)
			defer image.Release()
			var key string
			for key = range want {
				break
			}
			e := openOn(t, image, Options{Manual: true, Thresholds: Thresholds{RedoBehind: 3}})
			defer func() { require.NoError(t, e.Close()) }()
			o := TxOptions{Serializable: serializable}
			a, b, c := begin(t, e, o), begin(t, e, o), begin(t, e, o)
			for _, tx := range []*Tx{a, b, c} {
				require.Equal(t, want[key], get(t, tx, key))
			}
			require.NoError(t, a.Put([]byte(key), []byte("a")))
			require.NoError(t, b.Put([]byte(key), []byte("b")))
			require.NoError(t, c.Put([]byte("another"), []byte("c")))
			require.True(t, e.Redoing())
			require.NoError(t, a.Commit())
			require.ErrorIs(t, b.Commit(), ErrConflict, "first committer wins")
			if serializable {
				require.ErrorIs(t, c.Commit(), ErrConflict, "what it has read is no longer so")
			} else {
				require.NoError(t, c.Commit())
			}
			v, _, err := e.GetCopy([]byte(key))
			require.NoError(t, err)
			require.Equal(t, "a", string(v))
			require.Zero(t, e.readers.registry.Count())
			require.NoError(t, e.Check(context.Background()))
		})
	}
}

// TestReaderFromBeforeRedoIsHeld: a reader that began before the redo was merged keeps its snapshot through flushes,
// checkpoints and the reuse of segments, in lookups and in cursors opened afterwards.
func TestReaderFromBeforeRedoIsHeld(t *testing.T) {
	image, want := killedWithRedo(t)
	defer image.Release()
	e := openOn(t, image, Options{Manual: true, Thresholds: Thresholds{RedoBehind: 3}})
	defer func() { require.NoError(t, e.Close()) }()
	looker, walker := begin(t, e, TxOptions{ReadOnly: true}), begin(t, e, TxOptions{ReadOnly: true})
	lookEverywhere(t, want, getter(t, looker))
	for round := range 12 {
		tx := begin(t, e, TxOptions{})
		for n := range 2000 {
			require.NoError(t, tx.Put(fmt.Appendf(nil, "key%04d", n), fmt.Appendf(nil, "after %d", round)))
		}
		require.NoError(t, tx.Commit())
		require.NoError(t, e.Checkpoint())
	}
	lookEverywhere(t, want, getter(t, looker))
	require.Equal(t, want, collect(t, walker))
	require.NoError(t, looker.Rollback())
	require.NoError(t, walker.Rollback())
	require.NoError(t, e.Check(context.Background()))
}

// TestValuesFromBeforeRedoStay: slices of pages from before the redo stay unchanged until their transaction ends,
// although a flush right after the redo moves all those pages and segments are reused.
func TestValuesFromBeforeRedoStay(t *testing.T) {
	image, want := killedWithRedo(t)
	defer image.Release()
	e := openOn(t, image, Options{Manual: true, Thresholds: Thresholds{RedoBehind: 3}})
	tx := begin(t, e, TxOptions{ReadOnly: true})
	defer func() {
		require.NoError(t, tx.Rollback())
		require.NoError(t, e.Check(context.Background()))
		require.NoError(t, e.Close())
	}()
	held := map[string][]byte{}
	for key := range want {
		v, ok, err := tx.Get([]byte(key))
		require.NoError(t, err)
		require.True(t, ok)
		held[key] = v
	}
	require.True(t, e.Redoing())
	e.checkpoints.mu.Lock()
	require.NoError(t, e.flusher.flush())
	e.checkpoints.mu.Unlock()
	require.False(t, e.Redoing())
	for key, w := range want { // read from the tree as it was before the redo
		require.True(t, w == get(t, tx, key), "%.20q", key)
	}
	for range 40 {
		require.NoError(t, e.Checkpoint())
		w := begin(t, e, TxOptions{})
		for n := range 300 {
			require.NoError(t, w.Put(fmt.Appendf(nil, "other%04d", n), bytes.Repeat([]byte{0xEE}, 500)))
		}
		require.NoError(t, w.Commit())
	}
	for key, v := range held {
		require.True(t, want[key] == string(v), "%.20q", key)
	}
}

// TestRedoInPieces redoes with so little memory that pages are written early, in many pieces. A reader from before the
// redo, and the next Open after a kill at the end, see the same records.
func TestRedoInPieces(t *testing.T) {
	image, want := killedWithRedo(t)
	defer image.Release()
	e := openOn(t, image, Options{Manual: true, Thresholds: Thresholds{RedoBehind: 3}, Shares: MemoryShares{Batch: 8 << 10}, MemoryLimit: 64 << 10})
	early := begin(t, e, TxOptions{ReadOnly: true})
	lookEverywhere(t, want, getter(t, early))
	require.True(t, e.Redoing())
	inside := 0
	image.OnOp(func(op vfs.Op) error {
		if e.Redoing() { // once the redo is merged, readers read the tree
			inside++
			require.Less(t, e.readers.views.Load(), uint64(redoSeq), "the tree has part of it")
		}
		return nil
	})
	tx := begin(t, e, TxOptions{ReadOnly: true})
	require.NoError(t, e.tree.mergeAll())
	require.Equal(t, want, collect(t, tx))
	require.NoError(t, tx.Rollback())
	image.OnOp(nil)
	require.Positive(t, inside)
	s, err := e.Stats()
	require.NoError(t, err)
	require.Greater(t, s.Log.FlushGroups, uint64(3))
	killed := image.Clone()
	defer killed.Release()
	require.NoError(t, e.Checkpoint())
	require.NoError(t, e.Checkpoint())
	require.Equal(t, want, collect(t, early))
	require.NoError(t, early.Rollback())
	require.NoError(t, e.Check(context.Background()))
	require.NoError(t, e.Close())
	e = openOn(t, killed, Options{Manual: true})
	tx = begin(t, e, TxOptions{ReadOnly: true})
	require.Equal(t, want, collect(t, tx))
	require.NoError(t, tx.Rollback())
	require.NoError(t, e.Check(context.Background()))
	require.NoError(t, e.Close())
}

// TestCloseOverRedo: Close merges and writes unmerged redo. In a read-only engine Close leaves the redo as it is.
func TestCloseOverRedo(t *testing.T) {
	image, want := killedWithRedo(t)
	defer image.Release()
	for _, manual := range []bool{false, true} {
		mem := image.Clone()
		e := openOn(t, mem, Options{Manual: manual, Thresholds: Thresholds{RedoBehind: 3}, Store: logstore.Options{ReadOnly: true}})
		require.NoError(t, e.Close())
		e = openOn(t, mem, Options{Manual: manual, Thresholds: Thresholds{RedoBehind: 3}})
		require.NoError(t, e.Close())
		e = openOn(t, mem, Options{Manual: true, Thresholds: Thresholds{RedoBehind: 1}})
		require.False(t, e.Redoing())
		require.Zero(t, e.recovery.stats.Records)
		tx := begin(t, e, TxOptions{ReadOnly: true})
		require.Equal(t, want, collect(t, tx))
		require.NoError(t, tx.Rollback())
		require.NoError(t, e.Check(context.Background()))
		require.NoError(t, e.Close())
		mem.Release()
	}
}

// TestRedoFailsBehindOpen damages a page that the redo needs. Every call that waits for the redo gets the error, no
// commit succeeds any more, and lookups of undamaged records succeed.
func TestRedoFailsBehindOpen(t *testing.T) {
	image, want := killedAfter(t, 2)
	defer image.Release()
	for _, readOnly := range []bool{false, true} {
		for _, manual := range []bool{false, true} {
			t.Run(fmt.Sprintf("read-only %v, manual %v", readOnly, manual), func(t *testing.T) {
				mem := image.Clone()
				defer mem.Release()
				damageLeaf(t, mem)
				e := openOn(t, mem, Options{Manual: manual, Thresholds: Thresholds{RedoBehind: 3}, Store: logstore.Options{ReadOnly: readOnly}})
				within(t, func() {
					tx := begin(t, e, TxOptions{ReadOnly: true})
					c := tx.Cursor()
					for c.Next() {
					}
					require.ErrorIs(t, c.Err(), logstore.ErrCorrupt)
					_, err := tx.Len()
					require.ErrorIs(t, err, logstore.ErrCorrupt)
					require.NoError(t, tx.Rollback())
					_, err = e.Len()
					require.ErrorIs(t, err, logstore.ErrCorrupt)
					require.ErrorIs(t, e.tree.mergeAll(), logstore.ErrCorrupt)
					require.ErrorIs(t, e.Check(context.Background()), logstore.ErrCorrupt)
					require.True(t, e.Redoing())
					found, damaged := 0, 0
					for key, w := range want {
						v, ok, err := e.GetCopy([]byte(key))
						if err != nil {
							require.ErrorIs(t, err, logstore.ErrCorrupt)
							damaged++
							continue
						}
						require.True(t, ok)
						require.Equal(t, w, string(v))
						found++
					}
					require.NotZero(t, damaged)
					require.Greater(t, found, damaged)
					require.ErrorIs(t, e.Failed(), logstore.ErrFailed)
					if readOnly {
						require.ErrorIs(t, e.Close(), logstore.ErrFailed)
						return
					}
					require.ErrorIs(t, e.Sync(), logstore.ErrFailed)
					require.ErrorIs(t, e.Checkpoint(), logstore.ErrFailed)
					_, err = e.Begin(TxOptions{})
					require.ErrorIs(t, err, logstore.ErrFailed)
					require.ErrorIs(t, e.Close(), logstore.ErrFailed)
				})
			})
		}
	}
}

// damageLeaf flips a bit of a leaf of the checkpoint's tree that recovery itself does not read.
func damageLeaf(t testing.TB, mem *vfs.Mem) {
	t.Helper()
	look := mem.Clone()
	defer look.Release()
	e := openOn(t, look, Options{Manual: true, Thresholds: Thresholds{RedoBehind: 3}})
	snap := e.pages.At(baseSeq)
	root, err := snap.Node(override.Root)
	require.NoError(t, err)
	id := root.Child(root.Count() / 2)
	n, err := snap.Node(id)
	require.NoError(t, err)
	require.True(t, n.IsLeaf())
	require.True(t, logstore.IsAddr(id))
	require.NoError(t, e.Close())
	f, err := mem.Open("a.fdbm", os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	b := make([]byte, 1)
	at := int64(id)*logstore.PageSize + 2000
	_, err = f.ReadAt(b, at)
	require.NoError(t, err)
	b[0] ^= 4
	_, err = f.WriteAt(b, at)
	require.NoError(t, err)
	require.NoError(t, f.Datasync())
}

// TestReadersDuringRedo begins transactions of all kinds during the redo and after it.
func TestReadersDuringRedo(t *testing.T) {
	image, want := killedWithRedo(t)
	defer image.Release()
	var keys []string
	for key := range want {
		keys = append(keys, key)
	}
	for round := range 8 {
		mem := image.Clone()
		e := openOn(t, mem, Options{Thresholds: Thresholds{RedoBehind: 3}, Durability: []Durability{Durable, Buffered}[round%2]})
		var over, after, commits atomic.Int32
		stop := time.Now().Add(50 * time.Millisecond)
		var wg sync.WaitGroup
		for g := range 6 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(g), uint64(round)))
				for time.Now().Before(stop) {
					key := keys[rng.IntN(len(keys))]
					switch {
					case g == 0: // writes its own keys
						err := update(e, TxOptions{Serializable: rng.IntN(2) == 0}, func(tx *Tx) error {
							if v, ok, err := tx.Get([]byte(key)); err != nil || !ok || string(v) != want[key] {
								return fmt.Errorf("%.20q: %.20q %v", key, v, err)
							}
							return tx.Put(fmt.Appendf(nil, "own%d", rng.IntN(50)), nil)
						})
						if err != nil {
							t.Error(err)
						}
						commits.Add(1)
					case g == 1:
						if v, ok, err := e.GetCopy([]byte(key)); err != nil || !ok || string(v) != want[key] {
							t.Errorf("%.20q: %.20q %v", key, v, err)
						}
					default:
						tx, err := e.Begin(TxOptions{ReadOnly: g%2 == 0})
						if err != nil {
							t.Error(err)
							return
						}
						if tx.Snapshot() == redoSeq {
							over.Add(1)
						} else {
							after.Add(1)
						}
						for range 3 {
							key := keys[rng.IntN(len(keys))]
							if v, ok, err := tx.Get([]byte(key)); err != nil || !ok || string(v) != want[key] {
								t.Errorf("%.20q: %.20q %v", key, v, err)
							}
						}
						if rng.IntN(4) == 0 {
							c := tx.Cursor()
							if !c.Seek([]byte(key)) || string(c.Key()) != key {
								t.Errorf("cursor: %.20q %v", key, c.Err())
							}
						}
						if err := tx.Rollback(); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
		wg.Wait()
		t.Logf("%d transactions over the redo, %d after it, %d commits", over.Load(), after.Load(), commits.Load())
		require.Eventually(t, func() bool { return e.readers.registry.Count() == 0 }, patience, time.Millisecond, "but for a flush in the background")
		require.NoError(t, e.Check(context.Background()))
		require.NoError(t, errors.Join(e.Failed(), e.Close()))
		mem.Release()
	}
}
