package dbm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// rowRecords are records of all kinds, in order or not. meanwhile is called before the last one.
func rowRecords(seed byte, n int, sorted bool, meanwhile func()) (records map[string]string, seq iter.Seq2[[]byte, []byte]) {
	records = map[string]string{}
	at := func(i int) (key, value []byte) {
		key, size := fmt.Appendf(nil, "key %08d", i), i%300
		switch {
		case i%100 == 50:
			size = 9000
		case i%700 == 600:
			size = 200_000 // longer than a run can be in segments of 32 pages
		case i%250 == 7:
			key = append(key, bytes.Repeat([]byte{'l'}, 2500)...)
		}
		return key, bytes.Repeat([]byte{seed + byte(i)}, size)
	}
	for i := range n {
		k, v := at(i)
		records[string(k)] = string(v)
	}
	return records, func(yield func(k, v []byte) bool) {
		for i := range n {
			if i == n-1 {
				meanwhile()
			}
			j := i
			if !sorted {
				j = i * 7919 % n
			}
			if !yield(at(j)) {
				return
			}
		}
	}
}

// openForRows opens a database without background work, whose loads have rows of that many bytes.
func openForRows(t *testing.T, fs *vfs.Mem, durability Durability, row int) *DB {
	opts := compacting(durability)
	opts.Manual = true
	db, err := openEngine(fs, "db", opts)
	require.NoError(t, err)
	require.NoError(t, db.keyspaces.ready())
	db.drops.row = row
	return db
}

// TestLoadRows loads keyspaces row by row: one whose records are replaced, and one that is empty. They lie between two
// others that are written meanwhile, as the default one is. A standby follows. At the end, older snapshots, the
// standby and the next open have exactly the records that they should have.
func TestLoadRows(t *testing.T) {
	for _, sorted := range []bool{true, false} {
		t.Run(fmt.Sprintf("sorted=%v", sorted), func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "db")
			db, err := openUnsynced(path, &Options{Durability: Buffered})
			require.NoError(t, err)
			db.drops.row = 64 << 10
			model := map[string]map[string]string{"": {}, "a": {}, "empty": {}, "old": {}, "z": {}}
			for name := range model {
				if name != "" {
					require.NoError(t, db.CreateKeyspace(name))
				}
			}
			model["old"], _ = rowRecords(1, 500, true, nil)
			for k, v := range model["old"] {
				require.NoError(t, db.Keyspace("old").Put([]byte(k), []byte(v)))
			}
			reader, err := Open(path, &Options{ReadOnly: true, Beside: true})
			require.NoError(t, err)
			standby, token := copyOf(t, reader)
			ctx, stop := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() {
				err := reader.Follow(ctx, token, time.Millisecond, func(have Token, r io.Reader) error {
					_, err := standby.ApplyBackup(ctx, have, r)
					return err
				})
				if ctx.Err() == nil {
					t.Error(err)
				}
			})
			before, err := db.Snapshot()
			require.NoError(t, err)
			was := model["old"]
			writing, enough := context.WithCancel(t.Context())
			written := map[string]map[string]string{"": model[""], "a": model["a"], "z": model["z"]}
			var writer sync.WaitGroup
			writer.Go(func() {
				for i := 0; writing.Err() == nil && i < 20_000; i++ {
					k, v := fmt.Sprintf("%d", i%5000), fmt.Sprint(i)
					for name, records := range written {
						err := db.Update(func(tx *Tx) error {
							in, err := inSpace(tx, name)
							return cmpErr(err, in.Put([]byte(k), []byte(v)))
						})
						if err != nil {
							t.Error(err)
							return
						}
						records[k] = v
					}
				}
			})
			for _, name := range []string{"old", "empty"} {
				spared := 0
				var records iter.Seq2[[]byte, []byte]
				model[name], records = rowRecords(byte(len(name)), 6000, sorted, func() {
					db.drops.mu.Lock()
					spared = len(db.drops.loads)
					db.drops.mu.Unlock()
				})
				require.NoError(t, db.Keyspace(name).Load(t.Context(), records, LoadOptions{Sorted: sorted, Replace: name == "old"}))
				require.Equal(t, sorted, spared == 1, "rows while the records come")
				require.NoError(t, db.Keyspace(name).Put([]byte("key 00000100"), []byte("after")))
				model[name]["key 00000100"] = "after"
			}
			enough()
			writer.Wait() // or it would write after "last", which is to be the last record that the standby gets
			require.NoError(t, before.View(func(tx *Tx) error {
				in, err := tx.Keyspace("old")
				require.NoError(t, err)
				require.True(t, sameRecords(was, in), "what a snapshot of before has")
				return nil
			}))
			require.NoError(t, before.Close())
			require.Eventually(t, func() bool {
				n, err := db.Keyspace("empty").Len()
				m, merr := standby.Keyspace("empty").Len()
				return err == nil && merr == nil && n == m && m > 0
			}, patience, time.Millisecond)
			require.NoError(t, db.Put([]byte("last"), nil))
			require.NoError(t, db.Sync())
			require.Eventually(t, func() bool { return has(standby, "last") }, patience, time.Millisecond)
			stop()
			wg.Wait()
			model[""]["last"] = ""
			requireSpaces(t, db, model)
			require.NoError(t, reader.Close())
			requireSpaces(t, standby, model)
			require.NoError(t, standby.Check(t.Context()))
			require.NoError(t, db.FinishDrops(t.Context()))
			require.Zero(t, db.Dropping())
			require.NoError(t, db.Check(t.Context()))
			total := int64(2 + 4) // the mark, the serial, the names
			for _, records := range model {
				total += int64(len(records))
			}
			require.Equal(t, total, db.Stats().Records, "nothing is left of what was replaced")
			require.NoError(t, db.Close())
			db, err = Open(path, nil)
			require.NoError(t, err)
			requireSpaces(t, db, model)
			require.NoError(t, db.Check(t.Context()))
			require.NoError(t, db.Close())
		})
	}
}

func has(db *DB, key string) (ok bool) {
	_ = db.View(func(tx *Tx) (err error) {
		ok, err = tx.Has([]byte(key))
		return err
	})
	return ok
}

// TestLoadRowsMeanwhile makes other changes to a keyspace while it is loaded row by row. A load that fails leaves no
// records.
func TestLoadRowsMeanwhile(t *testing.T) {
	stopped := errors.New("stopped")
	for name, c := range map[string]struct {
		do   func(db *DB) error
		want error
	}{
		"stopped":          {want: stopped},
		"renamed":          {func(db *DB) error { return db.RenameKeyspace("a", "b") }, ErrConflict},
		"dropped":          {func(db *DB) error { return db.DropKeyspace("a") }, ErrConflict},
		"another":          {func(db *DB) error { return cmpErr(db.CreateKeyspace("c"), db.DropKeyspace("other")) }, nil},
		"drops go on":      {func(db *DB) error { return cmpErr(db.DropKeyspace("other"), db.FinishDrops(context.Background())) }, nil},
		"put a new key":    {func(db *DB) error { return db.Keyspace("a").Put([]byte("new"), []byte("n")) }, nil},
		"put a loaded one": {func(db *DB) error { return db.Keyspace("a").Put([]byte("key 00000003"), []byte("n")) }, nil},
	} {
		for _, replace := range []bool{false, true} {
			db := newSpaced(t, nil)
			db.drops.row = 64 << 10
			require.NoError(t, cmpErr(db.CreateKeyspace("a"), db.CreateKeyspace("other"), db.Keyspace("other").Put([]byte("k"), nil)))
			ctx, cancel := context.WithCancelCause(t.Context())
			records, seq := rowRecords(1, 2000, true, func() {
				for !db.drops.spares([]byte{spaceByte, 3}) && ctx.Err() == nil { // until the load has its number
					time.Sleep(time.Millisecond)
				}
				if c.do == nil {
					cancel(stopped)
					return
				}
				require.NoError(t, c.do(db))
			})
			err := db.Keyspace("a").Load(ctx, seq, LoadOptions{Sorted: true, Replace: replace})
			want := c.want
			if replace && want == ErrConflict { // the keyspace need not exist
				want = nil
			}
			require.ErrorIs(t, err, want, name)
			if want != nil {
				records = nil
			} else if !replace && name == "put a new key" {
				records["new"] = "n"
			}
			require.Eventually(t, func() bool { // background work deletes them
				n := int64(0)
				err := db.View(func(tx *Tx) (err error) {
					n, err = tx.whole().Len()
					return err
				})
				return err == nil && n < int64(len(records)+10)
			}, patience, time.Millisecond, "%s: records of a load in vain", name)
			require.NoError(t, db.FinishDrops(t.Context()))
			require.NoError(t, db.View(func(tx *Tx) error {
				in, err := tx.Keyspace("a")
				if err != nil {
					require.ErrorIs(t, err, ErrNoKeyspace)
					require.Nil(t, records)
					return nil
				}
				require.True(t, sameRecords(records, in), name)
				return nil
			}))
			require.NoError(t, db.Check(t.Context()))
			require.NoError(t, db.Close())
		}
	}
}

// TestLoadRowsAndDrops: background work has seen the number of a running load in the list of dropped keyspaces, but
// not that the load has reserved it. It deletes nothing once the load has ended.
func TestLoadRowsAndDrops(t *testing.T) {
	db := newSpaced(t, nil)
	require.NoError(t, db.CreateKeyspace("a"))
	l := &spaceLoad{db: db, name: "a"}
	done, err := l.begin()
	require.NoError(t, err)
	require.True(t, done)
	records, seq := rowRecords(1, 500, true, func() {})
	source := startLoad(t.Context(), db.engine, seq, 64<<10)
	defer source.stop()
	chunks, whole, err := source.row(64 << 10)
	require.NoError(t, err)
	require.NoError(t, l.rows(source, chunks, whole))
	require.NoError(t, db.View(func(tx *Tx) error {
		entry, _, err := db.firstDropped(tx)
		require.Nil(t, entry, "spared")
		return err
	}))
	db.drops.spare(l, nil)
	db.drops.piece = 100
	tx, err := db.Begin(TxOptions{})
	require.NoError(t, err)
	more, gone, err := db.dropParts(tx, dropSpaces)
	require.NoError(t, err)
	require.True(t, more && gone == 0)
	db.drops.spare(l, l.prefix)
	require.NoError(t, db.Update(l.finish))
	require.ErrorIs(t, tx.Commit(), ErrConflict)
	require.NoError(t, db.FinishDrops(t.Context()))
	requireSpaces(t, db, map[string]map[string]string{"": {}, "a": records})
	require.NoError(t, db.Close())
}

// TestLoadRowsFinish: the commit that ends a load of an empty keyspace conflicts with a put that comes between its
// snapshot and the commit. A put that comes later conflicts itself. With Replace only the later one conflicts.
func TestLoadRowsFinish(t *testing.T) {
	for _, replace := range []bool{false, true} {
		for _, first := range []bool{false, true} { // the put commits before the load
			db := newSpaced(t, nil)
			require.NoError(t, db.CreateKeyspace("a"))
			l := &spaceLoad{db: db, name: "a", opts: LoadOptions{Replace: replace}}
			done, err := l.begin()
			require.NoError(t, err)
			require.True(t, done)
			put, err := db.Begin(TxOptions{})
			require.NoError(t, err)
			in, err := put.Keyspace("a")
			require.NoError(t, err)
			require.NoError(t, in.Put([]byte("k"), []byte("v")))
			tx, err := db.Begin(TxOptions{})
			require.NoError(t, err)
			require.NoError(t, l.finish(tx))
			if first {
				require.NoError(t, put.Commit())
				requireLost(t, !replace, tx.Commit())
			} else {
				require.NoError(t, tx.Commit())
				require.ErrorIs(t, put.Commit(), ErrConflict)
			}
			require.NoError(t, db.Close())
		}
	}
}

// TestLoadRowsPowerCut simulates a power failure at every operation of the file system while a keyspace is loaded row
// by row and others commit in between. Afterwards the keyspace has its old records or all of the new ones, every
// commit that had returned is there, and the file is intact. The records of a load that did not end are deleted, and
// can be loaded again.
func TestLoadRowsPowerCut(t *testing.T) {
	n := 900
	if testing.Short() {
		n = 450
	}
	mem := vfs.NewMem(0)
	defer mem.Release()
	open := func(fs *vfs.Mem) *DB { return openForRows(t, fs, Durable, 24<<10) }
	db := open(mem)
	db.drops.stop()
	require.NoError(t, cmpErr(db.EnableKeyspaces(), db.CreateKeyspace("a"), db.CreateKeyspace("z"), db.Keyspace("z").Put([]byte("k"), make([]byte, 500))))
	old := map[string]string{"was": "here"}
	require.NoError(t, db.Keyspace("a").Put([]byte("was"), []byte("here")))
	require.NoError(t, db.Checkpoint())

	var acked atomic.Int64
	done := false
	records, seq := rowRecords(3, n, true, func() {})
	beside := func(yield func(k, v []byte) bool) {
		i := 0
		for k, v := range seq {
			if i++; i%20 == 0 {
				if err := db.Keyspace("z").Put(fmt.Append(nil, i/20), []byte("commit")); err != nil {
					t.Error(err)
				}
				acked.Store(int64(i / 20))
			}
			if !yield(k, v) {
				return
			}
		}
	}
	var mu sync.Mutex
	ops, olds, news, parts := 0, 0, 0, 0
	look := func(image *vfs.Mem, acked int64, done bool) {
		db := open(image)
		is := "old"
		require.NoError(t, db.View(func(tx *Tx) error {
			in, err := tx.Keyspace("a")
			require.NoError(t, err)
			if !sameRecords(old, in) {
				require.True(t, sameRecords(records, in), "neither old nor new")
				is = "new"
			}
			z, err := tx.Keyspace("z")
			require.NoError(t, err)
			for i := range acked {
				v, err := z.Get(fmt.Append(nil, i+1))
				require.NoError(t, err, "a commit that had returned")
				require.Equal(t, "commit", string(v))
			}
			return tx.Err()
		}))
		require.NoError(t, db.Check(t.Context()))
		if db.Dropping() > 0 {
			parts++
		}
		if is == "new" {
			news++
		} else {
			require.False(t, done, "a load that has returned is durable")
			olds++
		}
		if ops%16 == 0 {
			require.NoError(t, db.FinishDrops(t.Context()))
			_, seq := rowRecords(3, n, true, func() {})
			require.NoError(t, db.Keyspace("a").Load(t.Context(), seq, LoadOptions{Sorted: true, Replace: true}))
			require.NoError(t, db.FinishDrops(t.Context()))
			require.NoError(t, db.Check(t.Context()))
			require.NoError(t, db.View(func(tx *Tx) error {
				in, err := tx.Keyspace("a")
				require.NoError(t, err)
				require.True(t, sameRecords(records, in))
				return nil
			}))
		}
		require.NoError(t, db.Close())
	}
	mem.OnOp(func(op vfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if ops++; op.Kind == vfs.OpMap {
			return nil
		}
		had := acked.Load()
		image := mem.Crash(vfs.Policies()[ops%len(vfs.Policies())], uint64(ops))
		defer image.Release()
		look(image, had, done)
		return nil
	})
	require.NoError(t, db.Keyspace("a").Load(t.Context(), beside, LoadOptions{Sorted: true, Replace: true}))
	done = true
	require.NoError(t, db.FinishDrops(t.Context()))
	require.NoError(t, db.Checkpoint())
	mem.OnOp(nil)
	require.NoError(t, db.Close())
	t.Logf("%d operations: %d old, %d new, %d with something to drop", ops, olds, news, parts)
	require.Greater(t, olds, 20)
	require.Greater(t, news, 5)
	require.Greater(t, parts, 20)
}

// TestLoadRowsFaults makes operations of the file system fail in turn during a load row by row.
func TestLoadRowsFaults(t *testing.T) {
	step := 5
	if testing.Short() {
		step = 17
	}
	for at := 1; ; at += step {
		mem := vfs.NewMem(0)
		open := func(fs *vfs.Mem) *DB { return openForRows(t, fs, Durable, 24<<10) }
		db := open(mem)
		require.NoError(t, cmpErr(db.EnableKeyspaces(), db.CreateKeyspace("a")))
		var ops atomic.Int64
		mem.OnOp(func(op vfs.Op) error {
			if ops.Add(1) == int64(at) {
				return fmt.Errorf("operation %d: %w", at, vfs.ErrNoSpace)
			}
			return nil
		})
		records, seq := rowRecords(5, 300, true, func() {})
		err := db.Keyspace("a").Load(t.Context(), seq, LoadOptions{Sorted: true})
		mem.OnOp(nil)
		_ = db.Close()
		image := mem.Crash(vfs.KeepNone, 1)
		mem.Release()
		db = open(image)
		require.NoError(t, db.FinishDrops(t.Context()))
		n, lerr := db.Keyspace("a").Len()
		require.NoError(t, lerr)
		require.True(t, n == 0 && err != nil || n == int64(len(records)), "operation %d: %d records, %v", at, n, err)
		require.Less(t, db.Stats().Records, n+5)
		require.NoError(t, db.Check(t.Context()))
		require.NoError(t, db.Close())
		image.Release()
		if ops.Load() < int64(at) {
			return
		}
	}
}

// TestLoadOfOneLeaf loads so few records in rows that they fit one leaf: one large value, or one key again and again.
// A tree that is a single leaf then gets a second one, because an inner node has at least two children.
func TestLoadOfOneLeaf(t *testing.T) {
	for what, load := range map[string]struct {
		times, bytes int
		opts         LoadOptions
	}{"a large value": {1, 3 << 20, LoadOptions{Sorted: true}}, "one key": {20_000, 100, LoadOptions{}}} {
		for _, beside := range []int{0, 10, 20_000} {
			t.Run(fmt.Sprint(what, " beside ", beside), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "db")
				db, err := openUnsynced(path, nil)
				require.NoError(t, err)
				require.NoError(t, db.CreateKeyspace("a"))
				require.NoError(t, db.CreateKeyspace("b"))
				require.NoError(t, db.Update(func(tx *Tx) error {
					for i := range beside {
						require.NoError(t, tx.Put(fmt.Appendf(nil, "key %08d", i), []byte("value")))
					}
					return nil
				}))
				value := bytes.Repeat([]byte{'v'}, load.bytes)
				require.NoError(t, db.Keyspace("a").Load(t.Context(), func(yield func(k, v []byte) bool) {
					for range load.times {
						if !yield([]byte("k"), value) {
							return
						}
					}
				}, load.opts))
				require.NoError(t, db.Keyspace("b").Put([]byte("k"), []byte("b")))
				for range 2 {
					got, err := db.Keyspace("a").Get([]byte("k"))
					require.NoError(t, err)
					require.Equal(t, value, got)
					require.NoError(t, db.Check(t.Context()))
					n, err := db.Len()
					require.NoError(t, err)
					require.EqualValues(t, beside, n)
					require.NoError(t, db.Close())
					db, err = openUnsynced(path, nil)
					require.NoError(t, err)
				}
				require.NoError(t, db.Close())
			})
		}
	}
}

// TestLoadsTakeOneNumber: if two loads try to take the same number at once, one of them loses. The records of the
// other one are not deleted.
func TestLoadsTakeOneNumber(t *testing.T) {
	db := newSpaced(t, nil)
	require.NoError(t, cmpErr(db.CreateKeyspace("a"), db.CreateKeyspace("b")))
	a, b := &spaceLoad{db: db, name: "a"}, &spaceLoad{db: db, name: "b"}
	tx, err := db.Begin(TxOptions{})
	require.NoError(t, err)
	done, err := a.take(tx)
	require.NoError(t, err)
	require.True(t, done)
	done, err = b.begin()
	require.NoError(t, err)
	require.True(t, done)
	require.Equal(t, a.prefix, b.prefix)
	require.ErrorIs(t, tx.Commit(), ErrConflict)
	done, err = a.begin()
	require.NoError(t, err)
	require.True(t, done)
	require.NotEqual(t, a.prefix, b.prefix)
	require.True(t, db.drops.spares(a.prefix))
	require.True(t, db.drops.spares(b.prefix), "of the load that has not lost")
	db.drops.spare(b, nil)
	require.False(t, db.drops.spares(b.prefix))
}
