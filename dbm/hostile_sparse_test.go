package dbm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// occupied returns how many bytes a file takes on disk.
func occupied(t *testing.T, path string) int64 {
	f, err := vfs.OS().Open(path, os.O_RDONLY, 0)
	require.NoError(t, err)
	defer f.Close()
	n, err := f.Blocks()
	require.NoError(t, err)
	return n
}

// TestSparseFile: a file that was made much longer takes no more memory, time and disk space than its contents
// need, whoever opens it.
func TestSparseFile(t *testing.T) {
	const patience, memory, disk = 30 * time.Second, 64 << 20, 64 << 20 // far below what its length would need
	lengths := []int64{1 << 33, 1 << 40}
	if testing.Short() {
		lengths = lengths[1:]
	}
	for _, closed := range []bool{true, false} {
		s := tall(t, closed)
		for _, length := range lengths {
			for _, mode := range []string{"read-only", "beside", "writing"} {
				t.Run(fmt.Sprintf("%v/%d/%s", closed, length, mode), func(t *testing.T) {
					path := filepath.Join(t.TempDir(), "a.fdbm")
					require.NoError(t, os.WriteFile(path, s.file, 0o600))
					if err := os.Truncate(path, length); err != nil {
						t.Skipf("no such length here: %v", err)
					}
					o := s.load.options(rand.New(rand.NewPCG(1, 1)))
					o.Store.ReadOnly, o.Store.Beside, o.Store.ChunkPages = mode != "writing", mode == "beside", 0
					var before, after runtime.MemStats
					runtime.ReadMemStats(&before)
					begin := time.Now()
					db, err := openEngine(vfs.OS(), path, o)
					require.NoError(t, err)
					assert.Less(t, occupied(t, path), int64(len(s.file)+disk), "before anything gives space back")
					require.NoError(t, db.Check(context.Background()))
					if mode == "writing" {
						require.NoError(t, db.Put([]byte("key"), make([]byte, 200<<10)))
					}
					require.NoError(t, db.Close())
					took := time.Since(begin)
					runtime.ReadMemStats(&after)
					require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(s.load.memoryLimit+memory))
					require.Less(t, took, patience)
					require.Less(t, occupied(t, path), int64(len(s.file)+disk))
				})
			}
		}
	}
}

// TestSparseFileOpenedAgain: a file that was made much longer does not take more disk space each time that it is
// opened for writing and its process dies or cannot close it.
func TestSparseFileOpenedAgain(t *testing.T) {
	s := tall(t, true)
	mem := s.mem(len(s.file))
	defer func() { mem.Release() }()
	f, err := mem.Open(crashPath, os.O_RDWR, 0)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(int64(len(s.file))+100<<20))
	require.NoError(t, errors.Join(f.Datasync(), f.Close()))
	o := s.load.options(rand.New(rand.NewPCG(1, 1)))
	o.Manual = true
	before := mem.Used()
	for range 5 {
		db, err := openEngine(mem, crashPath, o)
		require.NoError(t, err)
		killed := mem.Clone()
		require.NoError(t, db.Close())
		mem.Release()
		mem = killed
		assert.LessOrEqual(t, mem.Used(), before+4*int64(s.load.segmentPages)*4096)
	}
}
