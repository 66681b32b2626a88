package dbm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
	"flashdbm/mvcc"
)

func newSpaced(t testing.TB, opts *Options) *DB {
	t.Helper()
	db := newWith(t, openUnsynced, opts)
	require.NoError(t, db.EnableKeyspaces())
	return db
}

// TestSpaceKeys: keys of each keyspace can be stored and read back unchanged, their order is kept, and the
// keyspaces are disjoint ranges.
func TestSpaceKeys(t *testing.T) {
	spaces := []space{defaultSpace}
	for _, n := range []int64{1, 2, longSpaces - 1, longSpaces, longSpaces + 1, longSpaces + 255, 1 << 20, longSpaces + mostLong<<24 - 1} {
		prefix, err := spacePrefix(n)
		require.NoError(t, err)
		require.True(t, isSpacePrefix(prefix), "%x", prefix)
		spaces = append(spaces, spaceOf(prefix))
	}
	_, err := spacePrefix(longSpaces + mostLong<<24)
	require.ErrorIs(t, err, errTooManySpaces)
	keys := []string{"", "\x00", "a", "\xfe", "\xfe\xff", "\xff", "\xff\x00", "\xff\x00\x00", "\xff\x01", "\xff\xef", "\xff\xf0", "\xff\xff", string(spaceMark), "\xff\xff\xff"}
	var last []byte
	for i, s := range spaces {
		for _, key := range keys {
			stored := s.in(nil, []byte(key))
			require.True(t, s.holds(stored), "%q", key)
			require.Equal(t, key, string(s.out(stored)))
			if last != nil {
				require.Negative(t, bytes.Compare(last, stored), "%x before %x", last, stored)
			}
			last = stored
			for j, other := range spaces {
				require.Equal(t, i == j, other.holds(stored), "%q", key)
			}
		}
	}
	require.Negative(t, bytes.Compare(last, catalogKey(0, nil)))
	for _, p := range []string{"", "\xff", "\xff\x00", "\xff\xff", "\xff\x01a", "\xff\xf0", "\xff\xf0abcd", "a\x01", "\xff\xffabc"} {
		require.False(t, isSpacePrefix([]byte(p)), "%q", p)
	}
}

// sameRecords reports whether a transaction sees exactly the records of a map.
func sameRecords(model map[string]string, tx *Tx) bool {
	all := recordsOf(tx)
	slices.Sort(all)
	return slices.Equal(sortedRecords(model), all)
}

// keysByAll returns all keys from an iterator, and requires that cursors in both directions and Keys, Backward and
// Len find the same.
func keysByAll(t *testing.T, tx *Tx) (keys []string) {
	t.Helper()
	for k := range tx.All() {
		keys = append(keys, string(k))
	}
	require.True(t, slices.IsSorted(keys))
	var others, back, stepped, counted []string
	for k := range tx.Keys(nil, nil) {
		others = append(others, string(k))
	}
	for k := range tx.Backward(nil, nil) {
		back = append(back, string(k))
	}
	c := tx.Cursor()
	for c.Next() {
		stepped = append(stepped, string(c.Key()))
	}
	require.False(t, c.Next())
	for ok := c.Prev(); ok; ok = c.Prev() {
		counted = append(counted, string(c.Key()))
	}
	require.False(t, c.Prev())
	require.Equal(t, len(keys) > 0, c.Next())
	if len(keys) > 0 {
		require.Equal(t, keys[0], string(c.Key()))
	}
	require.NoError(t, c.Err())
	slices.Reverse(back)
	slices.Reverse(counted)
	require.Equal(t, keys, others)
	require.Equal(t, keys, back)
	require.Equal(t, keys, stepped)
	require.Equal(t, keys, counted)
	n, err := tx.Len()
	require.NoError(t, err)
	require.EqualValues(t, len(keys), n)
	require.NoError(t, tx.Err())
	return keys
}

// TestKeyspaceModel compares keyspaces that are created, renamed and dropped at random with maps. It uses all ways
// of reading, within and after transactions, moves cursors beyond the ends, and reopens the database.
func TestKeyspaceModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		path := filepath.Join(t.TempDir(), "a.fdbm")
		opts := &Options{Durability: Durability(seed % 3)}
		db, err := openUnsynced(path, opts)
		require.NoError(t, err)
		require.NoError(t, db.EnableKeyspaces())
		rng := rand.New(rand.NewPCG(seed, 4))
		model := map[string]map[string]string{"": {}}
		key := func() string {
			k := fmt.Sprint(rng.IntN(60))
			switch rng.IntN(4) {
			case 0:
				k = "\xff" + k
			case 1:
				k = "\xff\xff" + k[:1]
			}
			if rng.IntN(200) == 0 {
				k += strings.Repeat("l", maxKey-len(k))
			}
			return k
		}
		for round := range scaled(80) {
			next := map[string]map[string]string{}
			require.NoError(t, db.Update(func(tx *Tx) error {
				clear(next)
				for name, records := range model {
					next[name] = map[string]string{}
					for k, v := range records {
						next[name][k] = v
					}
				}
				for range 1 + rng.IntN(6) {
					name := fmt.Sprint("space", rng.IntN(5))
					_, there := next[name]
					switch {
					case !there:
						in, err := tx.CreateKeyspace(name)
						require.NoError(t, err)
						require.Empty(t, keysByAll(t, in))
						next[name] = map[string]string{}
					case rng.IntN(8) == 0:
						require.NoError(t, tx.DropKeyspace(name))
						_, err := tx.Keyspace(name)
						require.ErrorIs(t, err, ErrNoKeyspace)
						delete(next, name)
						continue
					case rng.IntN(8) == 0:
						to := fmt.Sprint("space", rng.IntN(5))
						err := tx.RenameKeyspace(name, to)
						if _, taken := next[to]; taken {
							require.ErrorIs(t, err, ErrExists)
							continue
						}
						require.NoError(t, err)
						next[to] = next[name]
						delete(next, name)
						name = to
					case rng.IntN(3) == 0:
						name = ""
					}
					in := tx
					if name != "" {
						in, err = tx.Keyspace(name)
						require.NoError(t, err)
					}
					records := next[name]
					for range rng.IntN(30) {
						k := key()
						switch rng.IntN(6) {
						case 0:
							require.NoError(t, in.Delete([]byte(k)))
							delete(records, k)
						case 1:
							v, err := in.Get([]byte(k))
							if want, there := records[k]; there {
								require.NoError(t, err)
								require.Equal(t, want, string(v))
							} else {
								require.ErrorIs(t, err, ErrNotFound)
							}
						case 2:
							c := in.Cursor()
							if c.Seek([]byte(k)) && rng.IntN(3) == 0 {
								delete(records, string(c.Key()))
								require.NoError(t, c.Delete())
							}
						default:
							v := randomBytes(rng, rng.IntN(400))
							require.NoError(t, in.Put([]byte(k), v))
							records[k] = string(v)
						}
					}
					if rng.IntN(6) == 0 {
						from := key()
						require.NoError(t, in.DeleteRange([]byte(from), nil))
						for k := range records {
							if k >= from {
								delete(records, k)
							}
						}
					}
					require.True(t, sameRecords(records, in), "seed %d, round %d, within", seed, round)
				}
				return nil
			}))
			model, next = next, model
			require.NoError(t, db.Sync())
			requireSpaces(t, db, model)
			switch rng.IntN(12) {
			case 0:
				require.NoError(t, db.Close())
				db, err = openUnsynced(path, opts)
				require.NoError(t, err)
				requireSpaces(t, db, model)
			case 1:
				require.NoError(t, db.Checkpoint())
				require.NoError(t, db.Check(context.Background()))
			}
		}
		require.NoError(t, db.Close())
	}
}

func requireSpaces(t *testing.T, db *DB, model map[string]map[string]string) {
	t.Helper()
	var want []string
	for name := range model {
		if name != "" {
			want = append(want, name)
		}
	}
	slices.Sort(want)
	require.NoError(t, db.View(func(tx *Tx) error {
		require.Equal(t, want, slices.Collect(tx.Keyspaces()))
		require.True(t, sameRecords(model[""], tx))
		require.Len(t, keysByAll(t, tx), len(model[""]))
		for _, name := range want {
			in, err := tx.Keyspace(name)
			require.NoError(t, err)
			require.True(t, sameRecords(model[name], in), name)
			require.Len(t, keysByAll(t, in), len(model[name]))
		}
		return tx.Err()
	}))
	n, err := db.Len()
	require.NoError(t, err)
	require.EqualValues(t, len(model[""]), n)
}

// TestKeyspacesOfAnOldFile: a file from before keyspaces stays as it is until it is opened with the option that
// enables them. Then all its keys are the same for its users, whatever they are, and the option is no longer
// needed.
func TestKeyspacesOfAnOldFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.fdbm")
	db, err := Open(path, nil)
	require.NoError(t, err)
	model := map[string]string{}
	for _, k := range []string{"", "a", "\xfe", "\xff", "\xff\x00", "\xff\x00\x00", "\xff\x01", "\xff\x01a", "\xff\xff", "\xff\xffn", "\xff\xff\x00", strings.Repeat("\xff", maxKey)} {
		model[k] = "value of " + k
		require.NoError(t, db.Put([]byte(k), []byte(model[k])))
	}
	large := string(sized(3<<20, '\xff'))
	model["\xffl"] = large
	require.NoError(t, db.Put([]byte("\xffl"), []byte(large)))
	require.ErrorContains(t, db.Keyspace("a").Put(nil, nil), "EnableKeyspaces")
	require.ErrorIs(t, db.DropKeyspace("a"), ErrNoKeyspace)
	require.ErrorIs(t, db.Update(func(tx *Tx) error {
		_, err := tx.CreateKeyspace("a")
		return err
	}), ErrNoKeyspace)
	names, err := db.Keyspaces()
	require.NoError(t, err)
	require.Empty(t, names)
	same := func() {
		t.Helper()
		for k, v := range model {
			got, err := db.Get([]byte(k))
			require.NoError(t, err, "%q", k)
			require.Equal(t, v, string(got), "%q", k)
			ok, err := db.Has([]byte(k))
			require.NoError(t, err)
			require.True(t, ok)
		}
		require.NoError(t, db.View(func(tx *Tx) error {
			require.True(t, sameRecords(model, tx))
			keysByAll(t, tx)
			return nil
		}))
		require.NoError(t, db.Check(t.Context()))
	}
	same()
	reopen := func(opts *Options) {
		t.Helper()
		require.NoError(t, db.Close())
		db, err = Open(path, opts)
		require.NoError(t, err)
		same()
	}
	reopen(nil)
	require.False(t, mvcc.Keyspaces(db.engine))
	before, err := db.Begin(TxOptions{ReadOnly: true})
	require.NoError(t, err)
	require.NoError(t, db.EnableKeyspaces())
	require.True(t, mvcc.Keyspaces(db.engine))
	same()
	require.True(t, sameRecords(model, before), "a snapshot of before")
	_, err = before.Keyspace("a")
	require.ErrorContains(t, err, "has none yet")
	require.NoError(t, before.Rollback())
	require.NoError(t, db.EnableKeyspaces(), "again")
	require.NoError(t, db.CreateKeyspace("a"))
	require.NoError(t, db.Keyspace("a").Put([]byte("\xff"), []byte("in a")))
	same()
	for _, k := range []string{"\xff", "\xff\x00"} { // through the methods that DB itself has
		model[k] = "again"
		require.NoError(t, db.Put([]byte(k), []byte("again")))
		done := make(chan error, 1)
		require.NoError(t, db.PutAsync([]byte(k), []byte("again"), func(err error) { done <- err }))
		require.NoError(t, <-done)
	}
	require.NoError(t, db.Delete([]byte("\xff\x01")))
	delete(model, "\xff\x01")
	done := make(chan error, 1)
	require.NoError(t, db.DeleteAsync([]byte("\xff\xff"), func(err error) { done <- err }))
	require.NoError(t, <-done)
	delete(model, "\xff\xff")
	reopen(nil)
	reopen(&Options{ReadOnly: true})
	reopen(&Options{Beside: true})
	v, err := db.Keyspace("a").Get([]byte("\xff"))
	require.NoError(t, err)
	require.Equal(t, "in a", string(v))
	require.NoError(t, db.Close())
}

// TestKeyspaceMarkTaken: an old file with a record that has the key of the mark is refused and not changed.
func TestKeyspaceMarkTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.fdbm")
	db, err := Open(path, nil)
	require.NoError(t, err)
	require.NoError(t, db.Put(spaceMark, spaceForm))
	require.NoError(t, db.Close())
	db, err = Open(path, nil)
	require.NoError(t, err)
	require.ErrorIs(t, db.CreateKeyspace("a"), errMark)
	require.False(t, mvcc.Keyspaces(db.engine))
	v, err := db.Get(spaceMark)
	require.NoError(t, err)
	require.Equal(t, spaceForm, v)
	require.NoError(t, db.Close())
}

// TestKeyspaceShiftCutShort: the superblock says that there are keyspaces, and the mark is missing. Readers see the
// keys as before, and the next open for writing continues.
func TestKeyspaceShiftCutShort(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.fdbm")
	db, err := Open(path, nil)
	require.NoError(t, err)
	require.NoError(t, db.Put([]byte("\xffa"), []byte("1")))
	require.NoError(t, mvcc.SetKeyspaces(db.engine))
	require.NoError(t, db.Close())
	for _, opts := range []*Options{{ReadOnly: true}, {Beside: true}, nil, {ReadOnly: true}} {
		db, err = Open(path, opts)
		require.NoError(t, err)
		same := func() {
			v, err := db.Get([]byte("\xffa"))
			require.NoError(t, err)
			require.Equal(t, "1", string(v))
		}
		same()
		if opts == nil {
			require.NoError(t, db.Put([]byte("\xff\x01"), []byte("2")))
			require.NoError(t, db.CreateKeyspace("a"))
			v, err := db.Get([]byte("\xff\x01"))
			require.NoError(t, err)
			require.Equal(t, "2", string(v))
		} else {
			require.ErrorIs(t, db.CreateKeyspace("b"), ErrReadOnly)
		}
		same()
		require.NoError(t, db.Close())
	}
}

// TestKeyspaceBeside: a reader beside the writer sees how keyspaces are introduced in a file.
func TestKeyspaceBeside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.fdbm")
	db, err := Open(path, nil)
	require.NoError(t, err)
	require.NoError(t, db.Put([]byte("\xff\x01a"), []byte("1")))
	reader, err := Open(path, &Options{Beside: true})
	require.NoError(t, err)
	look := func() {
		t.Helper()
		v, err := reader.Get([]byte("\xff\x01a"))
		require.NoError(t, err)
		require.Equal(t, "1", string(v))
		n, err := reader.Len()
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
	}
	look()
	require.NoError(t, db.Close())
	db, err = Open(path, nil)
	require.NoError(t, err)
	look()
	require.NoError(t, db.CreateKeyspace("a"))
	require.NoError(t, db.Keyspace("a").Put([]byte("\xff\x01a"), []byte("2")))
	look()
	v, err := reader.Keyspace("a").Get([]byte("\xff\x01a"))
	require.NoError(t, err)
	require.Equal(t, "2", string(v))
	require.NoError(t, reader.Close())
	require.NoError(t, db.Close())
}

// TestKeyspaceConflicts: a transaction that writes in a keyspace loses to one that has dropped or renamed it, at
// each isolation level. Commits to different keyspaces with the same keys do not conflict, even if a range that one
// of them has read ends at the first key of the next keyspace.
func TestKeyspaceConflicts(t *testing.T) {
	for _, serializable := range []bool{false, true} {
		for _, c := range []struct {
			name string
			do   func(tx *Tx) error
			lost bool
		}{
			{"dropped", func(tx *Tx) error { return tx.DropKeyspace("a") }, true},
			{"renamed", func(tx *Tx) error { return tx.RenameKeyspace("a", "c") }, true},
			{"another dropped", func(tx *Tx) error { return tx.DropKeyspace("b") }, false},
			{"another created", func(tx *Tx) error {
				_, err := tx.CreateKeyspace("c")
				return err
			}, false},
			{"written in another", func(tx *Tx) error {
				in, err := tx.Keyspace("b")
				return cmpErr(err, in.Put([]byte("k"), []byte("2")), in.Put(nil, nil), tx.Put([]byte("k"), nil), tx.Put([]byte("\xff"), nil))
			}, false},
		} {
			t.Run(fmt.Sprint(c.name, serializable), func(t *testing.T) {
				db := newSpaced(t, nil)
				require.NoError(t, db.CreateKeyspace("a"))
				require.NoError(t, db.CreateKeyspace("b"))
				require.NoError(t, db.Keyspace("b").Put([]byte("k"), nil))
				tx, err := db.Begin(TxOptions{Serializable: serializable})
				require.NoError(t, err)
				in, err := tx.Keyspace("a")
				require.NoError(t, err)
				for range in.All() {
				}
				for range in.Backward(nil, nil) {
				}
				require.NoError(t, in.Put([]byte("k"), []byte("1")))
				require.NoError(t, db.Update(c.do))
				for i := range 3 {
					require.NoError(t, db.Put(fmt.Append(nil, i), nil))
				}
				requireLost(t, c.lost, tx.Commit())
			})
		}
	}
}

// TestKeyspaceTransactions: a transaction on several keyspaces is atomic, can be ended through any of them, and no
// longer sees what it has dropped.
func TestKeyspaceTransactions(t *testing.T) {
	db := newSpaced(t, nil)
	require.NoError(t, db.CreateKeyspace("a"))
	tx, err := db.Begin(TxOptions{})
	require.NoError(t, err)
	a, err := tx.Keyspace("a")
	require.NoError(t, err)
	b, err := a.CreateKeyspace("b") // also through the transaction of a keyspace
	require.NoError(t, err)
	require.NoError(t, a.Put([]byte("k"), []byte("a")))
	require.NoError(t, b.Put([]byte("k"), []byte("b")))
	require.NoError(t, tx.Put([]byte("k"), []byte("default")))
	require.NoError(t, b.Rollback())
	require.ErrorIs(t, tx.Commit(), ErrTxDone)
	_, err = a.Get([]byte("k"))
	require.ErrorIs(t, err, ErrTxDone)
	_, err = db.Get([]byte("k"))
	require.ErrorIs(t, err, ErrNotFound)
	require.ErrorIs(t, db.Keyspace("b").View(func(*Tx) error { return nil }), ErrNoKeyspace)

	require.NoError(t, db.Update(func(tx *Tx) error {
		a, err := tx.Keyspace("a")
		require.NoError(t, err)
		require.NoError(t, a.Put([]byte("k"), nil))
		require.NoError(t, tx.DropKeyspace("a"))
		require.ErrorIs(t, a.Put([]byte("k"), nil), ErrNoKeyspace)
		_, err = a.Get([]byte("k"))
		require.ErrorIs(t, err, ErrNoKeyspace)
		again, err := tx.CreateKeyspace("a")
		require.NoError(t, err)
		require.Empty(t, keysByAll(t, again))
		return again.Put([]byte("new"), nil)
	}))
	require.NoError(t, db.Keyspace("a").View(func(tx *Tx) error {
		require.Equal(t, []string{"new"}, keysByAll(t, tx))
		require.ErrorIs(t, tx.Put(nil, nil), ErrTxReadOnly)
		require.ErrorIs(t, tx.DropKeyspace("a"), ErrTxReadOnly)
		return nil
	}))
	for _, name := range []string{"", strings.Repeat("n", maxSpaceName+1)} {
		require.ErrorContains(t, db.CreateKeyspace(name), "1 to 255 bytes")
		require.ErrorContains(t, db.RenameKeyspace("a", name), "1 to 255 bytes")
	}
	require.NoError(t, db.CreateKeyspace(strings.Repeat("n", maxSpaceName)))
	require.ErrorIs(t, db.CreateKeyspace("a"), ErrExists)
	require.ErrorIs(t, db.DropKeyspace("none"), ErrNoKeyspace)
	require.ErrorIs(t, db.RenameKeyspace("none", "more"), ErrNoKeyspace)
	require.ErrorIs(t, db.Keyspace("a").Put(make([]byte, maxKey+1), nil), ErrKeyTooLarge)
	require.NoError(t, db.Keyspace("a").Put(make([]byte, maxKey), nil))
}

// TestKeyspaceDrop: dropping takes the same time for many records as for few, snapshots still see them, and they
// are deleted afterwards, if necessary by the next open.
func TestKeyspaceDrop(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.fdbm")
	db, err := openUnsynced(path, &Options{Durability: Buffered})
	require.NoError(t, err)
	require.NoError(t, db.EnableKeyspaces())
	const n = 20_000
	require.NoError(t, db.Update(func(tx *Tx) error {
		for _, name := range []string{"a", "b"} {
			in, err := tx.CreateKeyspace(name)
			require.NoError(t, err)
			for i := range n {
				require.NoError(t, in.Put(fmt.Append(nil, i), make([]byte, 100)))
			}
		}
		return nil
	}))
	require.NoError(t, db.Sync())
	old, err := db.Begin(TxOptions{ReadOnly: true})
	require.NoError(t, err)
	db.drops.piece = n / 3
	require.NoError(t, db.DropKeyspace("a"))
	require.Eventually(t, func() bool { return db.Dropping() == 0 }, patience, time.Millisecond)
	in, err := old.Keyspace("a")
	require.NoError(t, err)
	there, err := in.Len()
	require.NoError(t, err)
	require.EqualValues(t, n, there)
	require.NoError(t, old.Rollback())
	require.NoError(t, db.Checkpoint())
	require.EqualValues(t, n+3, db.Stats().Records, "of b, and the mark, the serial, and its name")

	db.drops.stop() // as if the process had been killed
	require.NoError(t, db.DropKeyspace("b"))
	require.Equal(t, 1, db.Dropping())
	require.NoError(t, db.Close())
	db, err = openUnsynced(path, nil)
	require.NoError(t, err)
	require.Equal(t, 1, db.Dropping(), "it waits for a commit")
	require.NoError(t, db.Put([]byte("k"), nil))
	require.Eventually(t, func() bool { return db.Dropping() == 0 }, patience, time.Millisecond)
	require.NoError(t, db.Checkpoint())
	require.EqualValues(t, 3, db.Stats().Records)
	require.NoError(t, db.Check(t.Context()))
	require.NoError(t, db.Close())
}

// TestKeyspacesMany: a database with ten thousand keyspaces opens as fast as one with none.
func TestKeyspacesMany(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.fdbm")
	db, err := openUnsynced(path, &Options{Durability: Buffered})
	require.NoError(t, err)
	require.NoError(t, db.EnableKeyspaces())
	const spaces, each = 10_000, 10
	name := func(i int) string { return fmt.Sprintf("space %05d", i) }
	for i := 0; i < spaces; i += 1000 {
		require.NoError(t, db.Update(func(tx *Tx) error {
			for j := i; j < i+1000; j++ {
				in, err := tx.CreateKeyspace(name(j))
				if err != nil {
					return err
				}
				for k := range each {
					if err := in.Put(fmt.Append(nil, k), fmt.Append(nil, j)); err != nil {
						return err
					}
				}
			}
			return nil
		}))
	}
	require.NoError(t, db.Close())
	begin := time.Now()
	db, err = openUnsynced(path, nil)
	require.NoError(t, err)
	t.Logf("opened in %v", time.Since(begin))
	for _, i := range []int{0, 238, 239, 240, 241, spaces - 1} {
		require.NoError(t, db.Keyspace(name(i)).View(func(tx *Tx) error {
			require.Len(t, keysByAll(t, tx), each)
			v, err := tx.Get([]byte("0"))
			require.Equal(t, fmt.Sprint(i), string(v))
			return err
		}))
	}
	require.NoError(t, db.Close())
}

// TestKeyspaceGuardsNothing: while there are no keyspaces, a transaction that has read nothing has no conflicts,
// even with keys that may change when keyspaces are introduced.
func TestKeyspaceGuardsNothing(t *testing.T) {
	db := newDB(t, nil)
	var txs []*Tx
	for range 2 {
		tx, err := db.Begin(TxOptions{})
		require.NoError(t, err)
		require.NoError(t, tx.Put([]byte("\xff"), nil))
		require.NoError(t, tx.Delete([]byte("\xffa")))
		txs = append(txs, tx)
	}
	for _, tx := range txs {
		require.NoError(t, tx.Commit())
		require.NoError(t, db.Put([]byte("\xff"), nil))
	}
}

// TestPutDuringTheShift: a key that begins with FF and is put while keyspaces are being introduced is converted as
// well: the shift has read the place of the key, loses the conflict and begins again. A transaction that has put
// such a key before, and commits after the shift, loses to the shift.
func TestPutDuringTheShift(t *testing.T) {
	mem := vfs.NewMem(0)
	defer mem.Release()
	opts := compacting(Durable)
	opts.Manual = true
	db, err := openEngine(mem, "db", opts)
	require.NoError(t, err)
	large := string(bytes.Repeat([]byte("v"), 200_000)) // to write it under its new key takes more than one write to the file
	require.NoError(t, db.Put([]byte("\xff\x00large"), []byte(large)))
	before, err := db.Begin(TxOptions{})
	require.NoError(t, err)
	require.NoError(t, before.Put([]byte("\xffbefore"), nil))
	puts := 0
	mem.OnOp(func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite && op.Len > 64<<10 && puts == 0 {
			puts++
			require.NoError(t, db.Put([]byte("\xffmeanwhile"), []byte("v")))
		}
		return nil
	})
	require.NoError(t, db.EnableKeyspaces())
	mem.OnOp(nil)
	require.Equal(t, 1, puts)
	require.ErrorIs(t, before.Commit(), ErrConflict)
	requireSpaces(t, db, map[string]map[string]string{"": {"\xff\x00large": large, "\xffmeanwhile": "v"}})
	require.NoError(t, db.Check(t.Context()))
	require.NoError(t, db.Close())
}

// TestKeyspacesEnabledBeside: keyspaces are introduced in a file while others write keys of all kinds. Afterwards,
// all that they have committed is there under its key, and nothing else is.
func TestKeyspacesEnabledBeside(t *testing.T) {
	t.Parallel()
	for round := range scaled(20) {
		db := newWith(t, openUnsynced, &Options{Durability: Durability(round % 3)})
		var wg sync.WaitGroup
		models := make([]map[string]string, 4)
		stop := make(chan struct{})
		for g := range models {
			models[g] = map[string]string{}
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(g), uint64(round)))
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					k := []string{"\xff", "\xff\x00", "\xff\x00\x00", "\xff\x01", "\xff\xff", "a"}[rng.IntN(6)] + fmt.Sprint(g, rng.IntN(9))
					v := fmt.Sprint(i)
					var err error
					switch rng.IntN(5) {
					case 0:
						err, v = db.Delete([]byte(k)), ""
					case 1:
						err = db.Put([]byte(k), []byte(v))
					case 2:
						done := make(chan error, 1)
						if err = db.PutAsync([]byte(k), []byte(v), func(err error) { done <- err }); err == nil {
							err = <-done
						}
					default:
						err = persist(t, db, TxOptions{}, func(tx *Tx) error { return tx.Put([]byte(k), []byte(v)) })
					}
					if err != nil {
						t.Error(err)
						return
					}
					if models[g][k] = v; v == "" {
						delete(models[g], k)
					}
				}
			})
		}
		err := error(ErrConflict)
		for errors.Is(err, ErrConflict) { // others may win every time
			err = db.CreateKeyspace("a")
		}
		require.NoError(t, err)
		time.Sleep(time.Millisecond)
		close(stop)
		wg.Wait()
		require.NoError(t, db.Sync())
		all := map[string]string{}
		for _, m := range models {
			maps.Copy(all, m)
		}
		requireSpaces(t, db, map[string]map[string]string{"": all, "a": {}})
	}
}
