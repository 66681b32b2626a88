//go:build unix

package mvcc

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
)

// fragileFS is the real file system in one directory. Its mappings can be made unreadable, as if the file had been
// truncated. Pages that are written later become readable again.
type fragileFS struct {
	vfs.FS
	dir      string
	mappings [][]byte
}

func (f *fragileFS) Open(name string, flag int, perm os.FileMode) (vfs.File, error) {
	file, err := f.FS.Open(filepath.Join(f.dir, name), flag, perm)
	return &fragileFile{file, f}, err
}

func (f *fragileFS) SyncDir(name string) error { return f.FS.SyncDir(filepath.Join(f.dir, name)) }

func (f *fragileFS) breakMappings(t *testing.T) {
	for _, m := range f.mappings {
		require.NoError(t, unix.Mprotect(m, unix.PROT_NONE))
	}
}

type fragileFile struct {
	vfs.File
	fs *fragileFS
}

func (f *fragileFile) Map(off, n int64) ([]byte, error) {
	m, err := f.File.Map(off, n)
	f.fs.mappings = append(f.fs.mappings, m)
	return m, err
}

// TestFaults: background work or a commit reads a mapped page that cannot be read. The result is an error and a
// poisoned engine. No goroutine waits for ever, and the engine can be closed.
func TestFaults(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	fill := func(t *testing.T, e *Engine, records int) {
		for i := 0; i < records; i += 100 {
			tx := begin(t, e, TxOptions{})
			for j := i; j < min(i+100, records); j++ {
				require.NoError(t, tx.Put(fmt.Appendf(nil, "k%05d", j), []byte(strings.Repeat("v", 100))))
			}
			require.NoError(t, tx.Commit())
		}
		require.NoError(t, e.Checkpoint())
	}
	for _, c := range []struct {
		name   string
		before func(t *testing.T, e *Engine)
		after  func(e *Engine) error
	}{
		{"fold", func(t *testing.T, e *Engine) { fill(t, e, 5000) }, (*Engine).Checkpoint},
		{"encode", func(t *testing.T, e *Engine) { // a version in memory has cells in the page before it
			fill(t, e, 20)
			put(t, e, "k00001", "changed")
		}, (*Engine).Checkpoint},
		{"deaths", func(t *testing.T, e *Engine) {
			put(t, e, "a", long)
			fill(t, e, 1)
			put(t, e, "a", "short")
		}, (*Engine).Checkpoint},
		{"commit", func(t *testing.T, e *Engine) { fill(t, e, 5000) }, func(e *Engine) error {
			tx, err := e.Begin(TxOptions{})
			if err != nil {
				return err
			}
			tx.Put([]byte("k00001"), nil)
			if err := tx.Commit(); err != nil {
				return err
			}
			return e.tree.mergeAll() // otherwise the tree may lack it
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := &fragileFS{FS: vfs.OS(), dir: t.TempDir()}
			e := openOn(t, fs, Options{Durability: Buffered, Manual: true})
			c.before(t, e)
			within(t, func() {
				defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
				fs.breakMappings(t)
				require.ErrorIs(t, c.after(e), logstore.ErrFailed)
				_, err := e.Begin(TxOptions{})
				require.ErrorIs(t, err, logstore.ErrFailed)
				require.ErrorIs(t, e.Checkpoint(), logstore.ErrFailed)
				_, err = e.Stats()
				require.NoError(t, err)
				require.ErrorIs(t, e.Close(), logstore.ErrFailed)
			})
		})
	}
}
