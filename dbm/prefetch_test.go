package dbm

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
)

// askedFS notes which pages of its files the system is asked to read ahead.
type askedFS struct {
	vfs.FS
	mu    sync.Mutex
	pages map[int64]bool
	calls int
	most  int64 // pages of one call
}

type askedFile struct {
	vfs.File
	fs *askedFS
}

func (fs *askedFS) Open(name string, flag int, perm os.FileMode) (vfs.File, error) {
	f, err := fs.FS.Open(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &askedFile{f, fs}, nil
}

func (f *askedFile) Advise(off, n int64, a vfs.Advice) error {
	if a != vfs.WillNeed {
		return nil
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	f.fs.calls++
	f.fs.most = max(f.fs.most, n/logstore.PageSize)
	for p := off / logstore.PageSize; p < (off+n)/logstore.PageSize; p++ {
		f.fs.pages[p] = true
	}
	return nil
}

// asked returns the pages for which the system was asked since the last call.
func (fs *askedFS) asked() (pages map[int64]bool, calls int, most int64) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	pages, calls, most = fs.pages, fs.calls, fs.most
	fs.pages, fs.calls, fs.most = map[int64]bool{}, 0, 0
	return pages, calls, most
}

// TestReadsAskForTheirPages: after Open, the first read of a page asks the system for this page and those that belong
// to it. Later reads do not. Prefetch asks for all pages that reads of its keys need.
func TestReadsAskForTheirPages(t *testing.T) {
	const records = 4000
	path := filepath.Join(t.TempDir(), "db")
	key := func(i int) []byte { return fmt.Appendf(nil, "key %05d", i) }
	value := func(i int) string { return fmt.Sprintf("%05d%0700d", i, 0) }
	began := time.Now()
	db, err := Open(path, &Options{Durability: Buffered})
	require.NoError(t, err)
	locked := db.Stats().Recovery.Locked
	require.True(t, !locked.Before(began) && !locked.After(time.Now()))
	require.NoError(t, db.Update(func(tx *Tx) error {
		for i := range records { // neighbours in the log are not neighbours in the tree
			if err := tx.Put(key(i*7919%records), []byte(value(i*7919%records))); err != nil {
				return err
			}
		}
		return tx.Put([]byte{0xFF, 'x'}, []byte("its key is stored as another one"))
	}))
	require.NoError(t, db.Close())

	fs := &askedFS{FS: vfs.OS(), pages: map[int64]bool{}}
	db, err = open(fs, path, &Options{Durability: Buffered})
	require.NoError(t, err)
	defer db.Close()
	get := func(i int) {
		v, err := db.Get(key(i))
		require.NoError(t, err)
		require.Equal(t, value(i), string(v))
	}
	fs.asked()
	get(0)
	pages, _, most := fs.asked()
	require.NotEmpty(t, pages)
	require.LessOrEqual(t, most, int64(logstore.MaxSpan))
	require.LessOrEqual(t, len(pages), 3+logstore.MaxSpan, "a path of the tree, and the page of the value")
	get(0)
	pages, _, _ = fs.asked()
	require.Empty(t, pages)

	var keys [][]byte
	for i := 1; i < 200; i++ {
		keys = append(keys, key(i*17))
	}
	require.NoError(t, db.Prefetch(append(keys, []byte{0xFF, 'x'}, []byte("absent"), nil)))
	told, _, _ := fs.asked()
	require.Greater(t, len(told), 200)
	for i := 1; i < 200; i++ {
		get(i * 17)
	}
	pages, _, _ = fs.asked()
	for p := range pages {
		require.True(t, told[p], "page %d", p)
	}
	require.NoError(t, db.Prefetch(keys))
	pages, _, _ = fs.asked()
	require.Empty(t, pages, "all were read")

	require.NoError(t, db.View(func(tx *Tx) error { // a scan asks for the others
		for k, v := range tx.Range(key(0), key(records)) {
			require.Equal(t, string(k[4:]), string(v[:5]))
		}
		return tx.Err()
	}))
	for i := range records {
		get(i)
	}
	v, err := db.Get([]byte{0xFF, 'x'})
	require.NoError(t, err)
	require.Equal(t, "its key is stored as another one", string(v))
	require.NoError(t, db.Close())
	require.ErrorIs(t, db.Prefetch(keys), ErrClosed)
}
