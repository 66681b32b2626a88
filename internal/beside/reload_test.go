package beside

import (
	"os"
	"runtime/metrics"
	"testing"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
	"flashdbm/mvcc"

	"github.com/stretchr/testify/require"
)

// allocated returns the number of bytes that this process has allocated on the heap so far.
func allocated() int64 {
	sample := [1]metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample[:])
	return int64(sample[0].Value.Uint64())
}

// lengthen extends a file in memory to length, with a hole.
func lengthen(t *testing.T, mem *vfs.Mem, length int64) {
	f, err := mem.Open("db", os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	_, err = f.WriteAt([]byte{0}, length-1)
	require.NoError(t, err)
}

// TestReloadsOfALongFile: a reader reuses the memory that it needs in proportion to the length of the file. It
// allocates as much as for the engines that exist at one time, not again each time that it reopens the file.
func TestReloadsOfALongFile(t *testing.T) {
	if raceEnabled {
		t.Skip("it counts bytes of memory, and more are taken under the race detector")
	}
	const length, reloads = 1 << 28, 8
	const pages = length / logstore.PageSize
	mem := vfs.NewMem(1 << 29)
	defer mem.Release()
	var f *Follower
	reload := func(length int64) int64 {
		e, err := mvcc.Open(mem, "db", options) // its recovery makes the reader reopen the file
		require.NoError(t, err)
		put(t, e, "key", "")
		require.NoError(t, e.Close())
		lengthen(t, mem, length)
		if f == nil {
			f, err = Open(mem, "db", options)
			require.NoError(t, err)
		}
		before, old := allocated(), f.engine
		_, ok, _, err := f.GetCopy([]byte("key"))
		require.NoError(t, err)
		require.True(t, ok)
		n := allocated() - before
		f.retired.Wait()
		if old == f.engine {
			return 0
		}
		return n
	}
	reload(1 << 20)
	reload(1 << 20)
	short := reload(1 << 20)
	first := reload(length) - short
	reload(length)                             // together with the previous engine, which may not be closed yet
	require.Greater(t, first, int64(16*pages)) // 44 bytes a page, or 22 if an engine that is gone has left half of that
	var others int64
	for range reloads {
		n := reload(length)
		require.NotZero(t, n)
		others += n - short
	}
	t.Logf("a reload takes %d bytes of a short file, for the length %d, later %d", short, first, others/reloads)
	require.Less(t, others/reloads, int64(11*pages))
	require.NoError(t, f.Close())
}
