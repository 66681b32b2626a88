package logstore

import (
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// mapHookFS calls mapped before each mapping.
type mapHookFS struct {
	vfs.FS
	mapped func()
}

func (m *mapHookFS) Open(name string, flag int, perm os.FileMode) (vfs.File, error) {
	f, err := m.FS.Open(name, flag, perm)
	return &mapHookFile{f, m}, err
}

type mapHookFile struct {
	vfs.File
	fs *mapHookFS
}

func (f *mapHookFile) Map(off, n int64) ([]byte, error) {
	if f.fs.mapped != nil {
		f.fs.mapped()
	}
	return f.File.Map(off, n)
}

// TestPublishedChunksStay grows a file by several mappings at once and looks between them, like a reader on
// another processor, at the lists that were published so far: neither a list nor what it lists may ever change.
func TestPublishedChunksStay(t *testing.T) {
	const chunkPages = 8
	fs := &mapHookFS{FS: vfs.NewMem(16 << 20)}
	s, rec, err := Open(fs, toyPath, Options{SegmentPages: chunkPages, ChunkPages: chunkPages})
	require.NoError(t, err)
	defer s.Close()
	require.True(t, rec.Created)

	type published struct{ list, was *[]*chunk }
	var seen []published
	fs.mapped = func() {
		p := s.chunks.Load()
		was := slices.Clone(*p)
		seen = append(seen, published{p, &was})
	}
	require.NoError(t, s.mapTo(uint64(len(*s.chunks.Load())+5)*chunkPages))
	require.Len(t, seen, 5)
	for i, p := range seen {
		require.Equal(t, len(*p.was), len(*p.list), "list %d was published with %d chunks and has another number now", i, len(*p.was))
		for j := range *p.was {
			require.Same(t, (*p.was)[j], (*p.list)[j])
		}
	}
}
