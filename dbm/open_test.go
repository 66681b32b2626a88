package dbm

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOpenMissing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.fdbm")
	_, err := Open(path, &Options{ReadOnly: true})
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = Open(filepath.Join(dir, "no", "such", "directory"), nil)
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = Open("", nil)
	require.Error(t, err)
	db, err := Open(path, nil)
	require.NoError(t, err)
	require.True(t, db.Stats().Recovery.Created)
	require.NoError(t, db.Close())
	db, err = Open(path, nil)
	require.NoError(t, err)
	require.False(t, db.Stats().Recovery.Created)
	require.NoError(t, db.Close())
}

func TestFileMode(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes mean little there")
	}
	for _, c := range []struct{ ask, want os.FileMode }{{0, 0o600}, {0o640, 0o640}} {
		path := filepath.Join(t.TempDir(), "a.fdbm")
		db, err := Open(path, &Options{FileMode: c.ask})
		require.NoError(t, err)
		require.NoError(t, db.Close())
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, c.want, info.Mode().Perm())
	}
}

// TestZeroLengthFile: a file of length zero is an empty database, even for readers.
func TestZeroLengthFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.fdbm")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	db, err := Open(path, &Options{ReadOnly: true})
	require.NoError(t, err)
	_, err = db.Get([]byte("k"))
	require.ErrorIs(t, err, ErrNotFound)
	require.NoError(t, db.View(func(tx *Tx) error {
		require.False(t, tx.Cursor().First())
		n, err := tx.Len()
		require.Zero(t, n)
		return err
	}))
	require.NoError(t, db.Check(t.Context()))
	require.NoError(t, db.Close())
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Zero(t, info.Size())

	db, err = Open(path, nil)
	require.NoError(t, err)
	require.NoError(t, db.Put([]byte("k"), []byte("v")))
	require.NoError(t, db.Close())
}

// TestReadOnlyOpen: readers share the file, and get an error when they write.
func TestReadOnlyOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.fdbm")
	db, err := Open(path, nil)
	require.NoError(t, err)
	require.NoError(t, db.Put([]byte("k"), []byte("v")))
	require.NoError(t, db.Close())
	before, err := os.ReadFile(path)
	require.NoError(t, err)

	var readers []*DB
	for range 2 {
		db, err := Open(path, &Options{ReadOnly: true})
		require.NoError(t, err)
		readers = append(readers, db)
	}
	_, err = Open(path, nil)
	require.ErrorIs(t, err, ErrLocked)
	for _, db := range readers {
		require.Equal(t, "v", value(t, db, "k"))
		require.ErrorIs(t, db.Put([]byte("k"), nil), ErrReadOnly)
		require.ErrorIs(t, db.Delete([]byte("k")), ErrReadOnly)
		require.ErrorIs(t, db.Update(func(*Tx) error { return nil }), ErrReadOnly)
		_, err := db.Begin(TxOptions{})
		require.ErrorIs(t, err, ErrReadOnly)
		tx, err := db.Begin(TxOptions{ReadOnly: true})
		require.NoError(t, err)
		require.ErrorIs(t, tx.Put([]byte("k"), nil), ErrReadOnly)
		require.NoError(t, tx.Commit())
		require.NoError(t, db.Sync())
		require.NoError(t, db.Checkpoint())
		require.NoError(t, db.Check(t.Context()))
		require.EqualValues(t, 1, db.Stats().Records)
		require.NoError(t, db.Close())
	}
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, bytes.Equal(before, after))
}

// TestOneHandle: the file is locked, under whatever name and by whichever handle it is opened.
func TestOneHandle(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.fdbm")
	symlink, hard := filepath.Join(dir, "symlink"), filepath.Join(dir, "hard")
	db, err := Open(path, nil)
	require.NoError(t, err)
	require.NoError(t, os.Symlink(path, symlink))
	require.NoError(t, os.Link(path, hard))
	for _, name := range []string{path, symlink, hard} {
		_, err := Open(name, nil)
		require.ErrorIs(t, err, ErrLocked, name)
		_, err = Open(name, &Options{ReadOnly: true})
		require.ErrorIs(t, err, ErrLocked, name)
	}
	began := time.Now()
	_, err = Open(path, &Options{LockTimeout: 50 * time.Millisecond})
	require.ErrorIs(t, err, ErrLocked)
	require.GreaterOrEqual(t, time.Since(began), 50*time.Millisecond)
	require.NoError(t, db.Put([]byte("k"), []byte("v")), "the refused ones did no harm")

	time.AfterFunc(20*time.Millisecond, func() { db.Close() })
	for _, name := range []string{path, symlink, hard} {
		db, err := Open(name, &Options{LockTimeout: patience})
		require.NoError(t, err)
		require.Equal(t, "v", value(t, db, "k"))
		require.NoError(t, db.Close())
	}
	require.NoError(t, db.Close())
}

// TestReplacedWhileWaiting: if a file is replaced while Open waits for its lock, Open returns the new file. Commits to
// the old file would be lost, as it has no name any more.
func TestReplacedWhileWaiting(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("an open file cannot be replaced there")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "a.fdbm")
	for _, readOnly := range []bool{false, true} {
		holder, err := Open(path, nil)
		require.NoError(t, err)
		other, err := Open(filepath.Join(dir, "b.fdbm"), nil)
		require.NoError(t, err)
		require.NoError(t, other.Put([]byte("new"), nil))
		require.NoError(t, other.Close())
		waiting := make(chan error)
		go func() {
			db, err := Open(path, &Options{LockTimeout: patience, ReadOnly: readOnly})
			if err == nil {
				_, err = db.Get([]byte("new"))
				db.Close()
			}
			waiting <- err
		}()
		time.Sleep(30 * time.Millisecond) // until it waits; if it does not yet, it finds the right file anyway
		require.NoError(t, os.Rename(other.Path(), path))
		require.NoError(t, holder.Close())
		require.NoError(t, <-waiting)
		require.NoError(t, os.Remove(path))
	}
}

// TestSymlinks: a link to a file is followed. With a link to nothing, a new database is either created at its
// target or refused, and the link is never replaced.
func TestSymlinks(t *testing.T) {
	dir := t.TempDir()
	link, target := filepath.Join(dir, "link"), filepath.Join(dir, "target")
	require.NoError(t, os.Symlink("target", link))
	_, err := Open(link, nil)
	require.Error(t, err, "dangling")
	require.NoFileExists(t, target)
	db, err := Open(target, nil)
	require.NoError(t, err)
	require.NoError(t, db.Put([]byte("k"), []byte("v")))
	require.NoError(t, db.Close())
	db, err = Open(link, nil)
	require.NoError(t, err)
	require.Equal(t, "v", value(t, db, "k"))
	require.NoError(t, db.Close())
	info, err := os.Lstat(link)
	require.NoError(t, err)
	require.Equal(t, fs.ModeSymlink, info.Mode().Type())
}

// TestCreationRace: many goroutines open a file that does not exist, one after another, and all get the same
// database.
func TestCreationRace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.fdbm")
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			db, err := Open(path, &Options{LockTimeout: patience})
			if err != nil {
				t.Error(err)
				return
			}
			if err := db.Put([]byte{byte(g)}, nil); err != nil {
				t.Error(err)
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	db, err := Open(path, nil)
	require.NoError(t, err)
	n, err := db.Len()
	require.NoError(t, err)
	require.EqualValues(t, 8, n)
	require.NoError(t, db.Close())
}

// TestNotADatabase: files that are not databases are refused and not changed.
func TestNotADatabase(t *testing.T) {
	dir := t.TempDir()
	_, err := Open(dir, nil)
	require.Error(t, err)
	_, err = Open(dir, &Options{ReadOnly: true})
	require.Error(t, err)
	database := filepath.Join(dir, "database")
	db, err := Open(database, nil)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	whole, err := os.ReadFile(database)
	require.NoError(t, err)
	newer := bytes.Clone(whole)
	for _, superblock := range [][]byte{newer[:512], newer[4096:4608]} {
		superblock[8]++ // the format version
		binary.LittleEndian.PutUint32(superblock[508:], crc32.Checksum(superblock[:508], crc32.MakeTable(crc32.Castagnoli)))
	}
	for name, c := range map[string]struct {
		content []byte
		want    error
	}{
		"one byte":       {[]byte("x"), ErrFormat},
		"text":           {bytes.Repeat([]byte("not a database\n"), 10_000), ErrFormat},
		"zeros":          {make([]byte, 1<<20), ErrFormat},
		"half of a page": {whole[:2048], nil},
		"one page":       {whole[:4096], nil},
		"no segments":    {whole[:8192], nil},
		"newer version":  {newer, ErrFormat},
		"only damage":    {bytes.Repeat([]byte{0xA5}, len(newer)), ErrFormat},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, name)
			require.NoError(t, os.WriteFile(path, c.content, 0o600))
			for _, readOnly := range []bool{false, true} {
				_, err := Open(path, &Options{ReadOnly: readOnly})
				require.Error(t, err)
				if c.want != nil {
					require.ErrorIs(t, err, c.want)
				}
				require.ErrorContains(t, err, path)
			}
			after, err := os.ReadFile(path)
			require.NoError(t, err)
			require.True(t, bytes.Equal(c.content, after))
		})
	}
}

func TestOptions(t *testing.T) {
	dir := t.TempDir()
	_, err := Open(filepath.Join(dir, "a"), &Options{Durability: Buffered + 1})
	require.Error(t, err)
	require.NoFileExists(t, filepath.Join(dir, "a"))
	for name, opts := range map[string]Options{
		"Durability":     {Durability: Buffered + 1},
		"FileMode":       {FileMode: os.ModeDir | 0o700},
		"FlushInterval":  {FlushInterval: -1},
		"LockTimeout":    {LockTimeout: -1},
		"MaxFileSize":    {MaxFileSize: -1},
		"MaxFileSize is": {MaxFileSize: MinMaxFileSize - 1},
		"MaxSnapshotAge": {MaxSnapshotAge: -1},
		"MemoryLimit":    {MemoryLimit: -1},
		"MemoryLimit is": {MemoryLimit: math.MaxInt64},
		"RedoLimit":      {RedoLimit: math.MinInt64},
		"RedoLimit is":   {RedoLimit: math.MaxInt64},
	} {
		for _, beside := range []bool{false, true} {
			opts.Beside = beside
			_, err := Open(filepath.Join(dir, "a"), &opts)
			require.ErrorContains(t, err, "Options."+name)
			require.NoFileExists(t, filepath.Join(dir, "a"))
		}
	}
	opts := Options{MaxFileSize: MinMaxFileSize, MemoryLimit: 1, RedoLimit: 1}
	db, err := Open(filepath.Join(dir, "b"), &opts)
	require.NoError(t, err, "small limits are raised to what is needed")
	opts = Options{}
	require.NoError(t, db.Put([]byte("k"), nil))
	require.NoError(t, db.Close())
}
