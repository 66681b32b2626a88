package dbm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// TestBackupSince changes a database at random, in all ways that move pages, and takes increments from the last token
// and from older ones. After each increment a copy has the same records as the database. So has a copy that is
// restored from all increments.
func TestBackupSince(t *testing.T) {
	seeds := []uint64{0, 1, 2, 3, 4, 5}
	if testing.Short() {
		seeds = []uint64{0, 4}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 1))
			dir := t.TempDir()
			path := filepath.Join(dir, "source")
			opts := &Options{Durability: []Durability{Durable, WriteThrough, Buffered}[seed%3], MemoryLimit: 16 << 20}
			open := openCuttingBy(0, -1) // so that changes are found from the pages of the tree
			if seed >= 3 {
				open = Open
			}
			db, err := open(path, opts)
			require.NoError(t, err)
			defer func() { db.Close() }()
			model := map[string][]byte{}
			step := func() {
				switch r.IntN(12) {
				case 0:
					require.NoError(t, db.Checkpoint())
				case 1:
					require.NoError(t, db.Compact(t.Context(), nil))
				case 2:
					require.NoError(t, db.Close())
					db, err = open(path, opts)
					require.NoError(t, err)
				case 3: // a range is deleted, and leaves with it
					require.NoError(t, db.Update(func(tx *Tx) error {
						from := fmt.Sprintf("key %04d", r.IntN(3000))
						for k := range maps.Clone(model) {
							if k >= from && k < from+"~" || r.IntN(3) == 0 && k > from {
								delete(model, k)
								if err := tx.Delete([]byte(k)); err != nil {
									return err
								}
							}
						}
						return nil
					}))
				default:
					require.NoError(t, db.Update(func(tx *Tx) error {
						at, most := r.IntN(3000), 1+r.IntN(300)
						for i := range r.IntN(most) + 1 {
							k := fmt.Sprintf("key %04d", (at+i)%3000)
							if r.IntN(20) == 0 {
								k += string(bytes.Repeat([]byte("long"), r.IntN(400)))
							}
							n := []int{0, 10, 100, 100, 300, 900, 2500, 20_000}[r.IntN(8)]
							if r.IntN(300) == 0 {
								n = 1_500_000
							}
							v := randomBytes(r, n)
							model[k] = v
							if err := tx.Put([]byte(k), v); err != nil {
								return err
							}
						}
						return nil
					}))
				}
			}
			for range 10 {
				step()
			}
			var full bytes.Buffer
			first, err := db.Backup(t.Context(), &full)
			require.NoError(t, err)
			tokens := []Token{first}
			copied := filepath.Join(dir, "copy")
			have, err := Restore(t.Context(), copied, bytes.NewReader(full.Bytes()))
			require.NoError(t, err)
			require.Equal(t, first, have)
			standby, err := Open(copied, nil)
			require.NoError(t, err)
			defer func() { standby.Close() }()
			requireSame(t, model, readAll(t, standby))
			var chain []io.Reader
			end := first
			for range 12 {
				for range r.IntN(4) {
					step()
				}
				var one bytes.Buffer
				token, err := db.BackupSince(t.Context(), end, &one)
				require.NoError(t, err)
				end = token
				chain = append(chain, bytes.NewReader(one.Bytes()))
				use := one.Bytes()
				if r.IntN(2) == 0 { // from an older token
					var older bytes.Buffer
					token, err = db.BackupSince(t.Context(), tokens[r.IntN(len(tokens))], &older)
					require.NoError(t, err)
					use = older.Bytes()
				}
				have, err = standby.ApplyBackup(t.Context(), have, bytes.NewReader(use))
				require.NoError(t, err)
				require.Equal(t, token, have)
				requireSame(t, model, readAll(t, standby))
				tokens = append(tokens, token)
				parsed, err := ParseToken(token.String())
				require.NoError(t, err)
				require.Equal(t, token, parsed)
			}
			require.NoError(t, standby.Check(t.Context()))
			restored := filepath.Join(dir, "restored")
			_, err = Restore(t.Context(), restored, bytes.NewReader(full.Bytes()), chain...)
			require.NoError(t, err)
			again, err := Open(restored, nil)
			require.NoError(t, err)
			defer again.Close()
			requireSame(t, model, readAll(t, again))
		})
	}
}

// TestBackupSinceIsSmall compares the length of increments with the amount of changes.
func TestBackupSinceIsSmall(t *testing.T) {
	for _, c := range []struct {
		name           string
		value, changed int
		near           bool // the changed records are next to each other
		most           float64
		pages          bool // changes are found from the pages of the tree
	}{
		{"large values at random", 1000, 300, false, 1.5, false},
		{"large values at random, by pages", 1000, 300, false, 1.5, true},
		{"small values in a row, by pages", 100, 3000, true, 1.5, true},
		{"small values at random", 100, 300, false, 1.5, false},
		{"nothing", 100, 0, true, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			keys := int64(0)
			if c.pages {
				keys = -1
			}
			db, err := openCuttingBy(0, keys)(filepath.Join(t.TempDir(), "db"), &Options{Durability: Buffered})
			require.NoError(t, err)
			defer db.Close()
			const n = 30_000
			key := func(i int) []byte { return fmt.Appendf(nil, "%016d", i) }
			require.NoError(t, db.Update(func(tx *Tx) error {
				for i := range n {
					if err := tx.Put(key(i), make([]byte, c.value)); err != nil {
						return err
					}
				}
				return nil
			}))
			token, err := db.Backup(t.Context(), io.Discard)
			require.NoError(t, err)
			r := rand.New(rand.NewPCG(1, 1))
			for i := range c.changed {
				at := i + 10_000
				if !c.near {
					at = r.IntN(n)
				}
				require.NoError(t, db.Put(key(at), randomBytes(r, c.value)))
			}
			w := &counting{}
			_, err = db.BackupSince(t.Context(), token, w)
			require.NoError(t, err)
			changed := float64(c.changed * (16 + c.value))
			t.Logf("%d bytes for %.0f that changed", w.n, changed)
			require.LessOrEqual(t, float64(w.n), c.most*changed+1000)
		})
	}
}

// TestBackupSinceAfterReopen: the first increment after a reopen is small, also if most records were only in memory
// when the backup was taken.
func TestBackupSinceAfterReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	db, err := openUnsynced(path, nil)
	require.NoError(t, err)
	key := func(i int) []byte { return fmt.Appendf(nil, "%016d", i) }
	require.NoError(t, db.Update(func(tx *Tx) error {
		for i := range 50_000 {
			if err := tx.Put(key(i), make([]byte, 100)); err != nil {
				return err
			}
		}
		return nil
	}))
	token, err := db.Backup(t.Context(), io.Discard)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	db, err = openUnsynced(path, nil)
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.Put(key(5000), make([]byte, 100)))
	w := &counting{}
	_, err = db.BackupSince(t.Context(), token, w)
	require.NoError(t, err)
	require.Less(t, w.n, int64(1<<20)) // the whole database if the backup had made no flush; records that Close moves count as changed
}

// TestTokensThatDoNotFit: increments for another state are refused and change nothing.
func TestTokensThatDoNotFit(t *testing.T) {
	db, err := OpenMemory(nil)
	require.NoError(t, err)
	defer db.Close()
	other, err := OpenMemory(nil)
	require.NoError(t, err)
	defer other.Close()
	require.NoError(t, db.Put([]byte("a"), []byte("1")))
	var full, first, second bytes.Buffer
	t0, err := db.Backup(t.Context(), &full)
	require.NoError(t, err)
	require.NoError(t, db.Put([]byte("b"), []byte("2")))
	t1, err := db.BackupSince(t.Context(), t0, &first)
	require.NoError(t, err)
	require.NoError(t, db.Put([]byte("c"), []byte("3")))
	t2, err := db.BackupSince(t.Context(), t1, &second)
	require.NoError(t, err)
	require.NotEqual(t, t1, t2)

	_, err = other.BackupSince(t.Context(), t0, io.Discard)
	require.ErrorIs(t, err, ErrToken)
	_, err = db.BackupSince(t.Context(), Token{}, io.Discard)
	require.ErrorIs(t, err, ErrToken)
	later := t2
	later.is.Group += 1000
	_, err = db.BackupSince(t.Context(), later, io.Discard)
	require.ErrorIs(t, err, ErrToken)

	dir := t.TempDir()
	restore := func(increments ...io.Reader) error {
		_, err := Restore(t.Context(), filepath.Join(dir, "db"), bytes.NewReader(full.Bytes()), increments...)
		return err
	}
	require.ErrorIs(t, restore(bytes.NewReader(second.Bytes())), ErrToken, "one is left out")
	require.ErrorIs(t, restore(bytes.NewReader(first.Bytes()), bytes.NewReader(second.Bytes()), bytes.NewReader(first.Bytes())), ErrToken, "an old one behind a new one")
	require.ErrorIs(t, restore(bytes.NewReader(full.Bytes())), ErrBackup, "a full one where an increment belongs")
	_, err = Restore(t.Context(), filepath.Join(dir, "db"), bytes.NewReader(first.Bytes()))
	require.ErrorIs(t, err, ErrBackup, "an increment where a full one belongs")
	for n := 0; n < first.Len(); n += 17 {
		require.ErrorIs(t, restore(bytes.NewReader(first.Bytes()[:n])), ErrBackup)
		b := bytes.Clone(first.Bytes())
		b[n] ^= 4
		require.Error(t, restore(bytes.NewReader(b)), "byte %d", n)
	}
	_, err = other.ApplyBackup(t.Context(), t0, bytes.NewReader(first.Bytes()))
	require.NoError(t, err, "who says that it is a copy is believed")
	got := readAll(t, other)
	require.Contains(t, got, "b")
	for _, bad := range []string{"", "x", t0.String()[1:], t0.String() + "a", "a" + t0.String()[1:]} {
		if bad != t0.String() {
			_, err := ParseToken(bad)
			require.Error(t, err, bad)
		}
	}
}

// TestBackupSinceOfRemovedLeaves deletes exactly the records of one leaf or of several, so that the leaves on both
// sides are unchanged. The increment must contain an interval without records.
func TestBackupSinceOfRemovedLeaves(t *testing.T) {
	db, err := openCuttingBy(0, -1)(filepath.Join(t.TempDir(), "db"), &Options{})
	require.NoError(t, err)
	defer db.Close()
	const n = 3000
	key := func(i int) []byte { return fmt.Appendf(nil, "%016d", i) }
	require.NoError(t, db.Load(t.Context(), func(yield func(k, v []byte) bool) {
		for i := range n {
			if !yield(key(i), make([]byte, 100)) {
				return
			}
		}
	}, LoadOptions{Sorted: true}))
	var full bytes.Buffer
	token, err := db.Backup(t.Context(), &full)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "copy")
	_, err = Restore(t.Context(), path, &full)
	require.NoError(t, err)
	standby, err := Open(path, nil)
	require.NoError(t, err)
	defer standby.Close()
	least := int64(1 << 30)
	for _, size := range []int{32, 33, 34} { // possible numbers of records in a leaf
		for _, leaves := range [][2]int{{3, 4}, {10, 17}, {40, 41}} {
			require.NoError(t, db.Update(func(tx *Tx) error {
				for i := leaves[0] * size; i < leaves[1]*size; i++ {
					if err := tx.Delete(key(i)); err != nil {
						return err
					}
				}
				return nil
			}))
			require.NoError(t, db.Checkpoint())
			var one bytes.Buffer
			end, err := db.BackupSince(t.Context(), token, &one)
			require.NoError(t, err)
			least = min(least, int64(one.Len()))
			token, err = standby.ApplyBackup(t.Context(), token, &one)
			require.NoError(t, err)
			require.Equal(t, end, token)
			requireSame(t, readAll(t, db), readAll(t, standby))
		}
	}
	require.Less(t, least, int64(2000), "an increment without a leaf was among them")
}

// TestBackupSinceOfWhatIsNoBatch: an increment contains changes that were not made by ordinary commits: loads, loads
// into a keyspace, the deletion of a range, a transaction that is larger than memory. It also contains the ordinary
// commits before and after them.
func TestBackupSinceOfWhatIsNoBatch(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, db *DB){
		"load": func(t *testing.T, db *DB) {
			require.NoError(t, db.DeleteRange(nil, nil))
			_, records := rowRecords('b', 300, true, func() {})
			require.NoError(t, db.Load(t.Context(), records, LoadOptions{Sorted: true}))
		},
		"keyspace": func(t *testing.T, db *DB) {
			require.NoError(t, db.CreateKeyspace("other"))
			_, records := rowRecords('b', 1500, true, func() {})
			require.NoError(t, db.Keyspace("other").Load(t.Context(), records, LoadOptions{Sorted: true}))
		},
		"range": func(t *testing.T, db *DB) {
			require.NoError(t, db.DeleteRange([]byte("key 00000100"), []byte("key 00000200")))
		},
		"spilled": func(t *testing.T, db *DB) {
			_, records := rowRecords('b', 1000, true, func() {})
			require.NoError(t, db.Update(func(tx *Tx) (err error) {
				for k, v := range records {
					err = errors.Join(err, tx.Put(k, append(v, make([]byte, 2000)...)))
				}
				return err
			}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem(0)
			defer mem.Release()
			opts := compacting(Buffered)
			opts.Manual, opts.CutFrom, opts.Shares.WriteSets = true, 10, 1<<18
			db, err := openEngine(mem, "db", opts)
			require.NoError(t, err)
			db.drops.row = 64 << 10
			if name == "keyspace" {
				require.NoError(t, db.EnableKeyspaces())
			}
			_, records := rowRecords('a', 300, true, func() {})
			require.NoError(t, db.Load(t.Context(), records, LoadOptions{}))
			var full bytes.Buffer
			token, err := db.Backup(t.Context(), &full)
			require.NoError(t, err)
			require.NoError(t, db.Put([]byte("before"), nil))
			change(t, db)
			require.NoError(t, db.Put([]byte("after"), nil))
			require.NoError(t, db.FinishDrops(t.Context())) // nothing changes any more
			var increment, whole bytes.Buffer
			_, err = db.BackupSince(t.Context(), token, &increment)
			require.NoError(t, err)
			_, err = db.Backup(t.Context(), &whole)
			require.NoError(t, err)
			require.NoError(t, db.Close())
			all := func(file string, backup *bytes.Buffer, increments ...io.Reader) map[string][]byte {
				path := filepath.Join(t.TempDir(), file)
				_, err = Restore(t.Context(), path, backup, increments...)
				require.NoError(t, err)
				restored, err := Open(path, nil)
				require.NoError(t, err)
				defer restored.Close()
				tx, err := restored.Begin(TxOptions{ReadOnly: true})
				require.NoError(t, err)
				defer tx.Rollback()
				records := map[string][]byte{}
				for k, v := range tx.whole().All() {
					records[string(k)] = bytes.Clone(v)
				}
				return records
			}
			requireSame(t, all("whole", &whole), all("restored", &full, &increment))
		})
	}
}

// TestIncrementOfLongestKeys: the longest keys that a keyspace and the index of expiry times have in the tree are
// longer than the longest key of a user.
func TestIncrementOfLongestKeys(t *testing.T) {
	db, err := OpenMemory(nil)
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.CreateKeyspace("some"))
	some := db.Keyspace("some")
	require.NoError(t, some.PutTTL([]byte("short"), nil, time.Hour))
	var full, increment bytes.Buffer
	since, err := db.Backup(t.Context(), &full)
	require.NoError(t, err)
	key := bytes.Repeat([]byte{'k'}, maxKey)
	require.NoError(t, some.Put(key, []byte("long")))
	expires := key[:mostTimedKey-2]
	require.NoError(t, some.PutTTL(expires, []byte("for an hour"), time.Hour))
	_, err = db.BackupSince(t.Context(), since, &increment)
	require.NoError(t, err)

	path := filepath.Join(t.TempDir(), "restored")
	_, err = Restore(t.Context(), path, &full, &increment)
	require.NoError(t, err)
	restored, err := Open(path, nil)
	require.NoError(t, err)
	defer restored.Close()
	value, err := restored.Keyspace("some").Get(key)
	require.NoError(t, err)
	require.Equal(t, "long", string(value))
	_, expiring, err := restored.Keyspace("some").TTL(expires)
	require.NoError(t, err)
	require.True(t, expiring)
}
