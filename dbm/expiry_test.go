package dbm

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/mvcc"
)

// testClock is a clock that stands still until it is set.
type testClock struct{ at atomic.Int64 }

func (c *testClock) pass(d time.Duration) { c.at.Add(d.Milliseconds()) }

// newClock gives a database that was not used yet a clock of its own. Nothing is deleted in the background then.
func newClock(db *DB) *testClock {
	c := &testClock{}
	c.at.Store(1_000_000)
	c.has(db)
	return c
}

func (c *testClock) has(db *DB) {
	db.expirer.over = true
	db.expiry.now = c.at.Load
}

func newExpiring(t testing.TB, opts *Options) (*DB, *testClock) {
	t.Helper()
	db := newWith(t, openUnsynced, opts)
	clock := newClock(db)
	require.NoError(t, db.EnableExpiry())
	return db, clock
}

// indexOf returns the entries of the index of times. Every record in the tree that expires must have one.
func indexOf(t *testing.T, db *DB) (entries []string) {
	t.Helper()
	require.NoError(t, db.View(func(tx *Tx) error {
		if !tx.spaced {
			return nil
		}
		all := tx.whole()
		for key := range all.Keys(catalogKey(catalogTimes, nil), catalogKey(catalogTimes+1, nil)) {
			entries = append(entries, string(key))
		}
		for key, stored := range all.All() {
			if _, at := tx.stamp.timeOf(stored); at != 0 {
				require.True(t, slices.Contains(entries, string(timeKey(at, key))), "the record %q has no entry", key)
			}
		}
		return tx.Err()
	}))
	return entries
}

// TestStamp: a value with a stamp can be separated again, and a value without one is left as it is.
func TestStamp(t *testing.T) {
	s := stamp(0x0123456789abcdef)
	for _, at := range []int64{0, 1, 255, 1 << 40, mostTime} {
		value, found := s.timeOf(append(s.head(nil, at), "value"...))
		require.Equal(t, "value", string(value))
		require.Equal(t, at, found)
		value, found = s.timeOf(s.head(nil, at))
		require.NotNil(t, value)
		require.Empty(t, value)
		require.Equal(t, at, found)
		found, key, ok := splitTimeKey(timeKey(at, []byte("key")))
		require.True(t, ok)
		require.Equal(t, "key", string(key))
		require.Equal(t, at, found)
	}
	require.Negative(t, bytes.Compare(timeKey(255, []byte("z")), timeKey(256, nil)), "in the order of times")
	stored := s.head(nil, 5)
	for _, other := range []stamp{0, s + 1} {
		value, at := other.timeOf(stored)
		require.Equal(t, stored, value)
		require.Zero(t, at)
	}
	_, at := s.timeOf(stored[:stampedBytes-1])
	require.Zero(t, at)
	require.True(t, s.begins(stored[:stampBytes]))
	require.False(t, s.begins(stored[:stampBytes-1]))
	require.False(t, stamp(0).begins(make([]byte, 20)))
	_, at = stamp(0).timeOf(make([]byte, 20))
	require.Zero(t, at)
	for _, form := range [][]byte{nil, {}, {2}, {3}, {1, 0}, {2, 0, 0, 0, 0, 0, 0, 0, 0}, append(formOf(s), 0)} {
		_, known := stampOf(form)
		require.False(t, known, "%x", form)
	}
	found, known := stampOf(formOf(s))
	require.True(t, known)
	require.Equal(t, s, found)
	found, known = stampOf(spaceForm)
	require.True(t, known)
	require.Zero(t, found)
}

// timedValue is a record in the model of TestExpiryModel.
type timedValue struct {
	value string
	at    int64 // 0: it does not expire
}

// timedModel has records by their keys, some of them expired.
type timedModel map[string]timedValue

func (m timedModel) at(now int64) map[string]string {
	there := map[string]string{}
	for k, v := range m {
		if v.at == 0 || v.at > now {
			there[k] = v.value
		}
	}
	return there
}

// requireTimed compares all ways of reading with the model.
func requireTimed(t *testing.T, tx *Tx, model timedModel, rng *rand.Rand) {
	t.Helper()
	want := model.at(tx.now)
	require.True(t, sameRecords(want, tx))
	require.Len(t, keysByAll(t, tx), len(want))
	for range 8 {
		k := fmt.Sprint(rng.IntN(40))
		v, there := want[k]
		got, err := tx.Get([]byte(k))
		has, herr := tx.Has([]byte(k))
		left, expires, terr := tx.TTL([]byte(k))
		_, length, rerr := tx.ValueReader([]byte(k))
		require.NoError(t, herr)
		require.Equal(t, there, has)
		if !there {
			for _, err := range []error{err, terr, rerr} {
				require.Equal(t, ErrNotFound, err)
			}
			continue
		}
		for _, err := range []error{err, terr, rerr} {
			require.NoError(t, err)
		}
		require.Equal(t, v, string(got))
		require.EqualValues(t, len(v), length)
		require.Equal(t, model[k].at != 0, expires)
		if expires {
			require.Equal(t, time.Duration(model[k].at-tx.now)*time.Millisecond, left)
		}
		c := tx.Cursor()
		require.True(t, c.Seek([]byte(k)))
		require.Equal(t, k, string(c.Key()))
		require.Equal(t, v, string(c.Value()))
		left2, expires2, err := c.TTL()
		require.NoError(t, err)
		require.Equal(t, left, left2)
		require.Equal(t, expires, expires2)
	}
	require.NoError(t, tx.Err())
}

// TestExpiryModel compares records with and without a time of expiry, in several keyspaces, with maps. Meanwhile
// the clock goes forward and sometimes back, expired records are deleted or not, and snapshots are held. It also
// compares them after reopening and after a restore.
func TestExpiryModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		path := filepath.Join(t.TempDir(), "a.fdbm")
		opts := &Options{Durability: Durability(seed % 3)}
		if seed == 3 {
			opts.MaxSnapshotAge = time.Hour
		}
		db, err := openUnsynced(path, opts)
		require.NoError(t, err)
		clock := newClock(db)
		require.NoError(t, db.EnableExpiry())
		require.NoError(t, db.CreateKeyspace("a"))
		rng := rand.New(rand.NewPCG(seed, 5))
		models := map[string]timedModel{"": {}, "a": {}}
		type held struct {
			s      *Snapshot
			models map[string]timedModel
		}
		var snapshots []held
		look := func(view func(func(*Tx) error) error, models map[string]timedModel) {
			require.NoError(t, view(func(tx *Tx) error {
				requireTimed(t, tx, models[""], rng)
				in, err := tx.Keyspace("a")
				require.NoError(t, err)
				requireTimed(t, in, models["a"], rng)
				return nil
			}))
		}
		for round := range scaled(150) {
			next := map[string]timedModel{}
			require.NoError(t, db.Update(func(tx *Tx) error {
				for name, m := range models {
					next[name] = maps.Clone(m)
				}
				in, err := tx.Keyspace("a")
				require.NoError(t, err)
				for range 1 + rng.IntN(8) {
					if rng.IntN(2) == 0 {
						changeTimed(t, tx, next[""], rng)
					} else {
						changeTimed(t, in, next["a"], rng)
					}
				}
				requireTimed(t, tx, next[""], rng)
				requireTimed(t, in, next["a"], rng)
				return nil
			}))
			models = next
			require.NoError(t, db.Sync())
			look(db.View, models)
			switch rng.IntN(10) {
			case 0, 1, 2:
				clock.pass(time.Duration(rng.IntN(40)) * time.Millisecond)
			case 3:
				clock.pass(-time.Duration(rng.IntN(10)) * time.Millisecond)
			case 4, 5:
				now := clock.at.Load()
				n, err := db.DeleteExpired(t.Context())
				require.NoError(t, err)
				gone := 0
				for name, m := range models {
					models[name] = maps.Clone(m)
					for k, v := range m {
						if v.at != 0 && v.at <= now {
							delete(models[name], k)
							gone++
						}
					}
				}
				require.EqualValues(t, gone, n)
				for _, e := range indexOf(t, db) {
					at, _, _ := splitTimeKey([]byte(e))
					require.Greater(t, at, now)
				}
			case 6:
				s, err := db.Snapshot()
				require.NoError(t, err)
				snapshots = append(snapshots, held{s, models})
			case 7:
				for _, h := range snapshots {
					require.NoError(t, h.s.View(func(tx *Tx) error { requireTimed(t, tx, h.models[""], rng); return nil }))
					require.NoError(t, h.s.Close())
				}
				snapshots = nil
			case 8:
				if round%2 == 0 {
					break
				}
				for _, h := range snapshots {
					require.NoError(t, h.s.Close())
				}
				snapshots = nil
				require.NoError(t, db.Close())
				if round%3 == 0 {
					path = copyByBackup(t, path)
				}
				db, err = openUnsynced(path, opts)
				require.NoError(t, err)
				clock.has(db)
			}
			indexOf(t, db)
			look(db.View, models)
		}
		for _, h := range snapshots {
			require.NoError(t, h.s.Close())
		}
		require.NoError(t, db.Check(t.Context()))
		clock.pass(time.Hour)
		_, err = db.DeleteExpired(t.Context())
		require.NoError(t, err)
		require.Empty(t, indexOf(t, db), "no entry outlives its time")
		require.NoError(t, db.Close())
	}
}

func copyByBackup(t *testing.T, path string) string {
	t.Helper()
	db, err := openUnsynced(path, nil)
	require.NoError(t, err)
	db.expirer.over = true
	var backup bytes.Buffer
	_, err = db.Backup(t.Context(), &backup)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	to := filepath.Join(t.TempDir(), "copy.fdbm")
	_, err = Restore(t.Context(), to, &backup)
	require.NoError(t, err)
	return to
}

// changeTimed runs one of all operations that change records.
func changeTimed(t *testing.T, tx *Tx, m timedModel, rng *rand.Rand) {
	t.Helper()
	k := fmt.Sprint(rng.IntN(40))
	key := []byte(k)
	is, there := m[k]
	if there = there && (is.at == 0 || is.at > tx.now); !there {
		is = timedValue{}
	}
	value := fmt.Sprint(rng.IntN(1000))
	switch rng.IntN(12) {
	case 0:
		value = string(randomBytes(rng, 300+rng.IntN(9000)))
	case 1:
		value = string(tx.stamp.head(nil, rng.Int64N(1<<40))) + value
	case 2:
		value = string(tx.stamp.head(nil, 0)[:stampBytes])
	case 3:
		value = ""
	}
	switch rng.IntN(12) {
	case 0, 1, 2:
		ttl := time.Duration(1+rng.IntN(60)) * time.Millisecond
		require.NoError(t, tx.PutTTL(key, []byte(value), ttl))
		m[k] = timedValue{value, tx.db.expiry.now() + ttl.Milliseconds()}
	case 3:
		require.NoError(t, tx.Put(key, []byte(value)))
		m[k] = timedValue{value: value}
	case 4:
		require.NoError(t, tx.Delete(key))
		delete(m, k)
	case 5:
		to := fmt.Sprint(k, "9")
		require.NoError(t, tx.DeleteRange(key, []byte(to)))
		maps.DeleteFunc(m, func(other string, _ timedValue) bool { return other >= k && other < to })
	case 6:
		err := tx.Insert(key, []byte(value))
		require.Equal(t, there, errors.Is(err, ErrExists))
		if !there {
			m[k] = timedValue{value: value}
		}
	case 7:
		n, err := strconv.ParseInt(is.value, 10, 64)
		got, gerr := tx.Increment(key, 5)
		if there && (err != nil || is.value != fmt.Sprint(n)) {
			require.ErrorIs(t, gerr, ErrNotNumber)
			break
		}
		require.NoError(t, gerr)
		require.Equal(t, n+5, got)
		m[k] = timedValue{fmt.Sprint(n + 5), is.at}
	case 8:
		require.NoError(t, tx.Append(key, []byte(value)))
		m[k] = timedValue{is.value + value, is.at}
	case 9:
		old, err := tx.GetAndPut(key, []byte(value))
		require.NoError(t, err)
		require.Equal(t, is.value, string(old))
		require.Equal(t, there, old != nil)
		m[k] = timedValue{value: value}
	case 10:
		var old []byte
		if there {
			old = []byte(is.value)
		}
		swapped, err := tx.CompareAndSwap(key, old, []byte(value))
		require.NoError(t, err)
		require.True(t, swapped)
		m[k] = timedValue{value: value}
	case 11:
		r := strings.NewReader(value)
		size := int64(UnknownSize)
		if rng.IntN(2) == 0 {
			size = int64(len(value))
		}
		require.NoError(t, tx.PutReader(key, r, size))
		m[k] = timedValue{value: value}
	}
}

// TestExpiryOfLargeValues: values in runs and private segments expire like others, can be appended to, and can be
// read in pieces.
func TestExpiryOfLargeValues(t *testing.T) {
	db, clock := newExpiring(t, nil)
	for _, size := range []int{100, 3000, appendInMemory + 1, 1 << 20, 3 << 20} {
		key := fmt.Append(nil, size)
		value := sized(size, 1)
		require.NoError(t, db.PutTTL(key, value, time.Minute))
		require.NoError(t, db.Append(key, []byte("behind")))
		got, err := db.Get(key)
		require.NoError(t, err)
		require.True(t, bytes.Equal(append(value, "behind"...), got))
		require.NoError(t, db.View(func(tx *Tx) error {
			c := tx.Cursor()
			require.True(t, c.Seek(key))
			r, length, err := c.ValueReader()
			require.NoError(t, err)
			require.EqualValues(t, size+6, length)
			read := new(bytes.Buffer)
			_, err = read.ReadFrom(r)
			require.NoError(t, err)
			require.True(t, bytes.Equal(got, read.Bytes()))
			return nil
		}))
		left, expires, err := db.TTL(key)
		require.NoError(t, err)
		require.True(t, expires)
		require.Equal(t, time.Minute, left)
		stamped := append(stamp(db.expiry.stamp.Load()).head(nil, 5), value...)
		require.NoError(t, db.Put([]byte("stamped"), stamped))
		got, err = db.Get([]byte("stamped"))
		require.NoError(t, err)
		require.True(t, bytes.Equal(stamped, got))
	}
	clock.pass(time.Minute)
	n, err := db.Len()
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	deleted, err := db.DeleteExpired(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 5, deleted)
	require.NoError(t, db.Check(t.Context()))
}

// TestExpiryByEveryPut: a value that begins with the bytes of a stamp is read as it was put, whichever operation
// puts it.
func TestExpiryByEveryPut(t *testing.T) {
	db, _ := newExpiring(t, nil)
	value := append(stamp(db.expiry.stamp.Load()).head(nil, 7), "value"...)
	done := make(chan error, 1)
	b := db.Batch()
	require.NoError(t, b.Put([]byte("batch"), value))
	require.NoError(t, b.PutTTL([]byte("batch ttl"), value, time.Second))
	require.NoError(t, b.Commit())
	require.NoError(t, b.PutTTL([]byte("batch async"), value, time.Second))
	require.NoError(t, b.CommitAsync(func(err error) { done <- err }))
	require.NoError(t, <-done)
	require.NoError(t, db.Put([]byte("put"), value))
	require.NoError(t, db.PutAsync([]byte("put async"), value, func(err error) { done <- err }))
	require.NoError(t, <-done)
	require.NoError(t, db.PutTTL([]byte("put ttl"), value, time.Second))
	require.NoError(t, db.Load(t.Context(), func(yield func(k, v []byte) bool) { yield([]byte("load"), value) }, LoadOptions{}))
	require.NoError(t, db.Update(func(tx *Tx) error {
		return errors.Join(tx.Insert([]byte("insert"), value), tx.PutReader([]byte("reader"), bytes.NewReader(value), UnknownSize))
	}))
	n := 0
	require.NoError(t, db.View(func(tx *Tx) error {
		for k, v := range tx.All() {
			require.Equal(t, value, v, "%s", k)
			n++
		}
		return nil
	}))
	require.Equal(t, 9, n)
	for _, k := range []string{"put", "put ttl"} {
		v, err := db.Get([]byte(k))
		require.NoError(t, err)
		require.Equal(t, value, v)
		ok, err := db.Has([]byte(k))
		require.NoError(t, err)
		require.True(t, ok)
	}
}

// TestPutTTLAgain: a record that is put again before it expires does not leave an entry in the index for each time.
func TestPutTTLAgain(t *testing.T) {
	db, clock := newExpiring(t, nil)
	for i := range 100 {
		require.NoError(t, db.PutTTL([]byte("session"), fmt.Append(nil, i), time.Minute))
		if i%10 == 0 {
			require.NoError(t, db.PutTTL([]byte("session"), []byte("at the same time"), time.Minute))
		}
		require.NoError(t, db.Sync())
		require.Len(t, indexOf(t, db), 1)
		clock.pass(time.Second)
	}
	_, err := db.Get([]byte("session"))
	require.NoError(t, err)
	clock.pass(time.Minute)
	_, err = db.Get([]byte("session"))
	require.Equal(t, ErrNotFound, err)
}

// TestEnableExpiry: Update and DB.PutTTL enable expiry by themselves, a transaction from Begin returns an error
// that says what to do, and programs from before expiry refuse the file.
func TestEnableExpiry(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.fdbm")
	db, err := openUnsynced(path, nil)
	require.NoError(t, err)
	require.NoError(t, db.Put([]byte("\xffkey"), []byte("value")))
	_, expires, err := db.TTL([]byte("\xffkey"))
	require.NoError(t, err)
	require.False(t, expires)
	before, err := db.Begin(TxOptions{})
	require.NoError(t, err)
	require.ErrorIs(t, before.PutTTL([]byte("k"), nil, time.Minute), ErrNoExpiry)
	require.ErrorContains(t, before.PutTTL([]byte("k"), nil, 0), "above 0")
	require.NoError(t, before.Put([]byte("b"), []byte("before")))

	runs := 0
	require.NoError(t, db.Update(func(tx *Tx) error {
		runs++
		return tx.PutTTL([]byte("k"), []byte("v"), math.MaxInt64)
	}))
	require.Equal(t, 2, runs)
	other := newDB(t, nil)
	require.ErrorIs(t, other.Update(func(*Tx) error { return before.PutTTL([]byte("k"), nil, time.Minute) }), ErrNoExpiry)
	require.False(t, mvcc.Keyspaces(other.engine), "the error is of another database")
	require.NoError(t, before.Commit())
	for k, want := range map[string]string{"k": "v", "b": "before", "\xffkey": "value"} {
		v, err := db.Get([]byte(k))
		require.NoError(t, err)
		require.Equal(t, want, string(v))
	}
	left, expires, err := db.TTL([]byte("k"))
	require.NoError(t, err)
	require.True(t, expires)
	require.Greater(t, left, 290*365*24*time.Hour)
	long := bytes.Repeat([]byte("k"), maxKey)
	require.ErrorIs(t, db.PutTTL(long, nil, time.Minute), ErrKeyTooLarge)
	require.NoError(t, db.PutTTL(long[:maxKey-6], nil, time.Minute))
	require.NoError(t, db.CreateKeyspace("a"))
	require.NoError(t, db.Keyspace("a").PutTTL(long[:maxKey-6], nil, time.Minute))
	_, expires, err = db.Keyspace("a").TTL(long[:maxKey-6])
	require.NoError(t, err)
	require.True(t, expires)
	require.NoError(t, db.View(func(tx *Tx) error {
		form, err := tx.whole().Get(spaceMark)
		require.NoError(t, err)
		require.NotEqual(t, spaceForm, form, "by this programs of before refuse it")
		require.ErrorIs(t, tx.PutTTL([]byte("k"), nil, time.Minute), ErrTxReadOnly)
		return nil
	}))
	require.NoError(t, db.Update(func(tx *Tx) error { return tx.whole().Put(spaceMark, []byte{3}) }))
	require.NoError(t, db.Close())
	_, err = openUnsynced(path, nil)
	require.ErrorIs(t, err, ErrFormat)
}

// TestExpiryConflicts: what deletes expired records never deletes one that is put concurrently, whichever commits
// first.
func TestExpiryConflicts(t *testing.T) {
	db, clock := newExpiring(t, nil)
	key := []byte("k")
	for _, put := range []func() error{
		func() error { return db.Put(key, []byte("new")) },
		func() error { return db.PutTTL(key, []byte("new"), time.Hour) },
		func() error {
			return db.Update(func(tx *Tx) error {
				_, err := tx.Increment(key, 7)
				return err
			})
		},
	} {
		require.NoError(t, db.Delete(key))
		require.NoError(t, db.PutTTL(key, []byte("old"), time.Second))
		clock.pass(time.Second)
		beside := false
		db.expiry.now = func() int64 { // by now the transaction that deletes has its snapshot
			if !beside {
				beside = true
				require.NoError(t, put())
			}
			return clock.at.Load()
		}
		n, err := db.DeleteExpired(t.Context())
		require.NoError(t, err)
		require.Zero(t, n)
		clock.has(db)
		v, err := db.Get(key)
		require.NoError(t, err)
		require.NotEqual(t, "old", string(v))
		indexOf(t, db)
		require.NoError(t, db.Delete(key))

		require.NoError(t, db.PutTTL(key, []byte("old"), time.Second))
		clock.pass(time.Second)
		runs := 0
		require.NoError(t, db.Update(func(tx *Tx) error {
			runs++
			if _, err := tx.Get(key); err != ErrNotFound {
				return fmt.Errorf("found: %v", err)
			}
			if runs == 1 {
				n, err := db.DeleteExpired(t.Context())
				if err != nil || n != 1 {
					return fmt.Errorf("%d deleted: %v", n, err)
				}
			}
			return tx.PutTTL(key, []byte("mine"), time.Hour)
		}))
		v, err = db.Get(key)
		require.NoError(t, err)
		require.Equal(t, "mine", string(v))
		indexOf(t, db)
	}
}

// TestExpiryInTheBackground: expired records are deleted without any call, by the system's clock. After an open
// this continues with the first commit.
func TestExpiryInTheBackground(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.fdbm")
	db, err := openUnsynced(path, nil)
	require.NoError(t, err)
	db.expirer.longest = time.Hour
	waits := make(chan signal, 1)
	db.expiry.now = func() int64 {
		if calledBy("deleteInTime") { // it has decided by now how long it waits
			select {
			case waits <- signal{}:
			default:
			}
		}
		return time.Now().UnixMilli()
	}
	require.NoError(t, db.PutTTL([]byte("long"), nil, time.Hour))
	<-waits
	require.NoError(t, db.Update(func(tx *Tx) error {
		for i := range 2500 {
			if err := tx.PutTTL(fmt.Append(nil, i), []byte("v"), 20*time.Millisecond); err != nil {
				return err
			}
		}
		return nil
	}))
	tx, err := db.Begin(TxOptions{})
	require.NoError(t, err)
	require.NoError(t, tx.PutTTL([]byte("async"), nil, 10*time.Millisecond))
	require.NoError(t, tx.CommitAsync(nil))
	left := func(n int) func() bool {
		return func() bool {
			_ = db.Sync()
			return len(indexOf(t, db)) == n
		}
	}
	require.Eventually(t, left(1), patience, 5*time.Millisecond)
	n, err := db.Len()
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	require.NoError(t, db.PutTTL([]byte("short"), nil, 50*time.Millisecond))
	require.NoError(t, db.Close())
	time.Sleep(60 * time.Millisecond)
	db, err = openUnsynced(path, nil)
	require.NoError(t, err)
	defer db.Close()
	time.Sleep(5 * time.Millisecond)
	require.Len(t, indexOf(t, db), 2, "nothing is deleted before the first commit")
	require.NoError(t, db.Put([]byte("k"), nil))
	require.Eventually(t, left(1), patience, 5*time.Millisecond)
}

// calledBy reports whether a method of that name is on the caller's stack.
func calledBy(method string) bool {
	pcs := make([]uintptr, 16)
	for frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)]); ; {
		frame, more := frames.Next()
		if strings.HasSuffix(frame.Function, "."+method) {
			return true
		}
		if !more {
			return false
		}
	}
}
