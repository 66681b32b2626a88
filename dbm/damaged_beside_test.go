package dbm

import (
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
)

// opens counts how often a file is opened.
type opens struct {
	vfs.FS
	n int
}

func (o *opens) Open(name string, flag int, perm os.FileMode) (vfs.File, error) {
	o.n++
	return o.FS.Open(name, flag, perm)
}

// TestDamagedBeside: a reader beside a writer checks apparent damage again, as the writer may be changing the file.
// Once it is known that this does not help, each transaction reads the file only once, until there is a new
// checkpoint.
func TestDamagedBeside(t *testing.T) {
	s := tall(t, true)
	mem := s.mem(len(s.file))
	defer mem.Release()
	o := s.load.options(rand.New(rand.NewPCG(1, 1)))
	write := func() {
		db, err := openEngine(mem, crashPath, o)
		require.NoError(t, err)
		require.NoError(t, db.Put([]byte("key"), nil))
		require.NoError(t, db.Checkpoint())
		require.NoError(t, db.Close())
	}
	fs := &opens{FS: mem}
	reader, err := openBeside(fs, crashPath, o)
	require.NoError(t, err)
	defer reader.Close()
	look := func() (n int, err error) {
		before := fs.n
		_, err = reader.Get([]byte("key"))
		return fs.n - before, err
	}
	write() // its recovery makes the reader load the file again
	file := content(mem, 0, fileSize(mem))
	h := &hostile{sealer: newSealer(file, int(s.load.segmentPages))}
	h.survey()
	at := int64(h.newestMap())*logstore.PageSize + 1000
	overwrite(mem, at, []byte{^file[at]})

	often, err := look()
	require.ErrorIs(t, err, ErrCorrupt)
	require.Greater(t, often, 2)
	for range 3 {
		n, err := look()
		require.ErrorIs(t, err, ErrCorrupt)
		require.Equal(t, 2, n) // once for the number of the newest checkpoint, once for everything
	}
	overwrite(mem, at, file[at:at+1])
	_, err = look()
	require.NoError(t, err)
}
