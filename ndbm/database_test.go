//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"flashdbm/dbm"
	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
	"flashdbm/mvcc"
)

// patience is how long a test waits for something that must happen. No machine is so busy that it takes longer, so
// after that something hangs.
const patience = time.Minute

// openTest opens a separate description of the file, as another process would. Its times are so long that it is
// never idle and never gives up a reader, even on a busy machine.
func openTest(t *testing.T, path string, s settings) *database {
	t.Helper()
	flags := unix.O_RDWR | unix.O_CREAT
	if s.readOnly {
		flags = unix.O_RDONLY
	}
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o600)
	require.NoError(t, err)
	d, err := open(uintptr(fd), s)
	require.NoError(t, err)
	d.idle, d.shown.wait = time.Hour, time.Hour
	t.Cleanup(func() { d.close() })
	return d
}

// wait repeats fn while another process holds the database, as the C library does.
func wait(t *testing.T, fn func() error) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		err := fn()
		if err != errBusy {
			require.NoError(t, err)
			return
		}
		require.True(t, time.Now().Before(end), "the lock was never let go")
	}
}

func put(t *testing.T, d *database, key, value string) {
	t.Helper()
	wait(t, func() error {
		_, err := d.store([]byte(key), []byte(value), false)
		return err
	})
}

func look(d *database, t *testing.T, key string) (value string, ok bool) {
	t.Helper()
	reply := make([]byte, 1<<20)
	wait(t, func() error {
		n, found, err := d.fetch([]byte(key), reply)
		value, ok = string(reply[:n]), found
		return err
	})
	return value, ok
}

// TestTurns: two processes that write in turn both make progress, and each sees at once what the other has stored.
func TestTurns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db.pag")
	a, b := openTest(t, path, settings{}), openTest(t, path, settings{posix: false})
	for i := range 6 {
		writer, reader := a, b
		if i%2 == 1 {
			writer, reader = b, a
		}
		put(t, writer, "turn", fmt.Sprint(i))
		value, ok := look(reader, t, "turn")
		assert.True(t, ok)
		assert.Equal(t, fmt.Sprint(i), value)
	}
}

// TestTurnsAtOnce: two processes write all the time, and nothing is lost.
func TestTurnsAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db.pag")
	a, b := openTest(t, path, settings{}), openTest(t, path, settings{})
	const each = 50
	var both sync.WaitGroup
	for name, d := range map[string]*database{"a": a, "b": b} {
		both.Go(func() {
			for i := range each {
				put(t, d, fmt.Sprint(name, i), name)
				time.Sleep(200 * time.Microsecond)
			}
		})
	}
	both.Wait()
	n := 0
	reply := make([]byte, 100)
	var key []byte
	for first := true; ; first = false {
		var size int
		var ok bool
		wait(t, func() (err error) {
			size, ok, err = a.after(key, first, reply)
			return err
		})
		if !ok {
			break
		}
		key = bytes.Clone(reply[:size])
		n++
	}
	assert.Equal(t, 2*each, n)
}

// TestIdle: a process that makes no calls releases the database without being asked, and its next call works.
func TestIdle(t *testing.T) {
	t.Parallel() // it mostly waits
	path := filepath.Join(t.TempDir(), "db.pag")
	d := openTest(t, path, settings{})
	d.idle = idleAfter
	other, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer other.Close()
	lock := fileLock{fd: other.Fd(), exclusive: true}
	called := time.Now()
	put(t, d, "k", "v")
	require.Eventually(t, func() bool { return lock.try() == nil }, patience, 10*time.Millisecond)
	assert.GreaterOrEqual(t, time.Since(called), idleAfter)
	require.NoError(t, lock.release())
	value, ok := look(d, t, "k")
	assert.True(t, ok)
	assert.Equal(t, "v", value)
}

func TestTruncate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db.pag")
	d := openTest(t, path, settings{})
	put(t, d, "k", "v")
	wait(t, d.truncate)
	_, ok := look(d, t, "k")
	assert.False(t, ok)
	put(t, d, "k2", "v2")
	require.NoError(t, d.close())
	value, ok := look(openTest(t, path, settings{}), t, "k2")
	assert.True(t, ok)
	assert.Equal(t, "v2", value)
}

// TestPosixLock: a lock that belongs to the process excludes locks of descriptions.
func TestPosixLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	a, err := os.Create(path)
	require.NoError(t, err)
	defer a.Close()
	b, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer b.Close()
	posix, own := fileLock{fd: a.Fd(), posix: true, exclusive: true}, fileLock{fd: b.Fd(), exclusive: true}
	require.NoError(t, posix.acquire())
	assert.Equal(t, errBusy, own.acquire())
	assert.True(t, posix.asked())
	own.withdraw()
	assert.False(t, posix.asked())
	require.NoError(t, posix.release())
	require.NoError(t, own.acquire())
	assert.Equal(t, errBusy, posix.acquire())
	posix.withdraw()
	require.NoError(t, own.release())
}

func TestLongKeys(t *testing.T) {
	d := openTest(t, filepath.Join(t.TempDir(), "db.pag"), settings{})
	for _, n := range []int{storedKeyMax - 1, storedKeyMax, storedKeyMax + 1, 3 * storedKeyMax} {
		key := bytes.Repeat([]byte("k"), n)
		put(t, d, string(key), fmt.Sprint(n))
		value, ok := look(d, t, string(key))
		assert.True(t, ok)
		assert.Equal(t, fmt.Sprint(n), value)
		reply := make([]byte, n)
		size, ok, err := d.after(nil, true, reply)
		require.NoError(t, err)
		assert.True(t, ok)
		assert.Equal(t, n, size)
		assert.Equal(t, key, reply)
		found, err := d.remove(key)
		require.NoError(t, err)
		assert.True(t, found)
	}
	_, _, err := splitStored(make([]byte, storedKeyMax), []byte("\xff\xff\xff\xff\xff\xff\xff\xff of another program"))
	assert.Error(t, err)
}

// TestReplyTooSmall: a result that does not fit is not copied, because the key may be in the same place.
func TestReplyTooSmall(t *testing.T) {
	d := openTest(t, filepath.Join(t.TempDir(), "db.pag"), settings{})
	put(t, d, "k", "a longer value")
	reply := []byte("k   ")
	n, ok, err := d.fetch(reply[:1], reply)
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Equal(t, len("a longer value"), n)
	assert.Equal(t, "k   ", string(reply))
}

// TestReaderBesideWriter: a process that only reads sees the changes of a writer at once, and shares the lock after
// the writer has released it.
func TestReaderBesideWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db.pag")
	w := openTest(t, path, settings{})
	put(t, w, "k", "0")
	r := openTest(t, path, settings{readOnly: true})
	for i := range 50 {
		put(t, w, "k", fmt.Sprint(i))
		reply := make([]byte, 10)
		n, ok, err := r.fetch([]byte("k"), reply)
		require.NoError(t, err)
		assert.True(t, ok)
		assert.Equal(t, fmt.Sprint(i), string(reply[:n]))
	}
	following := func() bool {
		r.mu.RLock()
		defer r.mu.RUnlock()
		return r.beside != nil
	}
	assert.True(t, following())
	_, err := r.store([]byte("k"), nil, false)
	assert.ErrorIs(t, err, logstore.ErrReadOnly)
	require.NoError(t, w.close())
	require.Eventually(t, func() bool { return !following() }, patience, 10*time.Millisecond)
	value, ok := look(r, t, "k")
	assert.True(t, ok)
	assert.Equal(t, "49", value)
	locked := func() bool {
		look(r, t, "k") // it may have released the lock since
		r.mu.RLock()
		defer r.mu.RUnlock()
		return r.engine != nil
	}
	require.Eventually(t, locked, patience, 10*time.Millisecond)

	w = openTest(t, path, settings{}) // a reader releases its lock as well
	put(t, w, "k", "again")
	value, _ = look(r, t, "k")
	assert.Equal(t, "again", value)
	assert.True(t, following())
}

// TestKeyspaces: of a file with keyspaces, ndbm sees only the default one, with the same contents as in package
// dbm.
func TestKeyspaces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.pag")
	long, edge := strings.Repeat("\xff", storedKeyMax+9), strings.Repeat("\xff", storedKeyMax-1)
	d := openTest(t, path, settings{})
	put(t, d, long, "long")
	put(t, d, "\xff\x01", "of before")
	require.NoError(t, d.close())

	db, err := dbm.Open(path, nil)
	require.NoError(t, err)
	require.NoError(t, db.CreateKeyspace("other"))
	for _, s := range []interface{ Put(key, value []byte) error }{db, db.Keyspace("other")} {
		for _, key := range []string{"", "a", "\xff", "\xff\x00", edge} {
			require.NoError(t, s.Put([]byte(key), []byte("dbm")))
		}
	}
	require.NoError(t, db.Close())

	want := []string{"", "a", "b", "\xff", "\xff\x00", "\xff\x01", long, edge} // long is stored under its beginning and a digest
	d = openTest(t, path, settings{})
	put(t, d, "b", "ndbm")
	put(t, d, edge, "ndbm")
	for range 2 {
		var found []string
		reply := make([]byte, 1<<20)
		for n, ok := 0, true; ok && len(found) <= len(want); {
			wait(t, func() (err error) {
				n, ok, err = d.after(bytes.Clone(reply[:n]), len(found) == 0, reply)
				return err
			})
			if ok {
				found = append(found, string(reply[:n]))
			}
		}
		require.True(t, slices.Equal(want, found), "%d keys", len(found))
		for _, key := range want {
			value, ok := look(d, t, key)
			require.True(t, ok, "%q", key)
			require.Contains(t, []string{"dbm", "ndbm", "long", "of before"}, value)
		}
		require.NoError(t, d.close())
		d = openTest(t, path, settings{readOnly: true})
	}
	require.NoError(t, d.close())

	d = openTest(t, path, settings{})
	for _, key := range want {
		wait(t, func() error {
			found, err := d.remove([]byte(key))
			require.True(t, found || err != nil, "%q", key)
			return err
		})
	}
	stored, err := d.store([]byte("\xff"), []byte("new"), true)
	require.True(t, stored && err == nil, "%v", err)
	require.NoError(t, d.close())
	db, err = dbm.Open(path, nil)
	require.NoError(t, err)
	defer db.Close()
	n, err := db.Len()
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	v, err := db.Get([]byte("\xff"))
	require.NoError(t, err)
	require.Equal(t, "new", string(v))
	n, err = db.Keyspace("other").Len()
	require.NoError(t, err)
	require.EqualValues(t, 5, n)
}

// TestKeyspacesCutShort: the superblock says that there may be keyspaces, but no mark says that there are any. The
// keys are as before.
func TestKeyspacesCutShort(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.pag")
	e, err := mvcc.Open(vfs.OS(), path, mvcc.Options{MemoryLimit: 64 << 20, RedoLimit: 1 << 20, Manual: true})
	require.NoError(t, err)
	require.NoError(t, mvcc.SetKeyspaces(e))
	require.NoError(t, e.WriteOne([]byte("\xff"), []byte("v"), false))
	require.NoError(t, e.Close())
	d := openTest(t, path, settings{})
	value, ok := look(d, t, "\xff")
	require.True(t, ok)
	require.Equal(t, "v", value)
}

// TestRefusesExpiry: if values may begin with a time of expiry, ndbm returns an error and changes nothing.
func TestRefusesExpiry(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.pag")
	db, err := dbm.Open(path, nil)
	require.NoError(t, err)
	require.NoError(t, db.EnableExpiry())
	require.NoError(t, db.Close())
	for _, readOnly := range []bool{true, false} {
		d := openTest(t, path, settings{readOnly: readOnly})
		_, _, err := d.fetch([]byte("k"), nil)
		require.ErrorIs(t, err, logstore.ErrFormat)
		require.ErrorContains(t, err, "expire")
	}
}
