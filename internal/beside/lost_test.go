package beside

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
	"flashdbm/mvcc"
)

// A reader has seen a commit whose sync then failed, and the system has dropped all that was written for it. The
// next writer commits something else with the same number and in the same place. The reader shows one or the other,
// never both.
func TestLostCommitBeside(t *testing.T) {
	mem := vfs.NewMem(64 << 20)
	defer mem.Release()
	e, err := mvcc.Open(mem, "db", options)
	require.NoError(t, err)
	put(t, e, "base", "0")
	require.NoError(t, e.Checkpoint())
	before := mem.Clone()
	defer before.Release()
	put(t, e, "lost", "1")
	f, err := Open(mem, "db", options)
	require.NoError(t, err)
	defer f.Close()
	has := func(key string) bool {
		_, ok, _, err := f.GetCopy([]byte(key))
		require.NoError(t, err)
		return ok
	}
	require.True(t, has("base"))
	require.True(t, has("lost"))

	killed := errors.New("killed")
	_ = e.Fail(killed)
	require.ErrorIs(t, e.Close(), killed)
	was, err := before.Open("db", os.O_RDWR, 0)
	require.NoError(t, err)
	defer was.Close()
	is, err := mem.Open("db", os.O_RDWR, 0)
	require.NoError(t, err)
	defer is.Close()
	size, err := was.Size()
	require.NoError(t, err)
	p, q := make([]byte, logstore.PageSize), make([]byte, logstore.PageSize)
	dropped := 0
	for at := int64(0); at < size; at += logstore.PageSize {
		_, err = was.ReadAt(p, at)
		require.NoError(t, err)
		_, err = is.ReadAt(q, at)
		require.NoError(t, err)
		if !bytes.Equal(p, q) {
			dropped++
			_, err = is.WriteAt(p, at)
			require.NoError(t, err)
		}
	}
	require.Equal(t, 1, dropped)

	e, err = mvcc.Open(mem, "db", options)
	require.NoError(t, err)
	defer e.Close()
	for _, key := range []string{"new", "newer", "newest"} {
		put(t, e, key, "2")
		require.True(t, has("base"))
		require.True(t, has(key))
		require.False(t, has("lost"))
	}
}
