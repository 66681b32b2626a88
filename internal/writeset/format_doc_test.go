package writeset

import (
	"bytes"
	"testing"

	"flashdbm/internal/formatdoc"
	"flashdbm/logstore"
	"flashdbm/logstore/vfs"

	"github.com/stretchr/testify/require"
)

// newStore opens a log in memory.
func newStore(t *testing.T) *logstore.Store {
	t.Helper()
	mem := vfs.NewMem(0)
	s, rec, err := logstore.Open(mem, "log", logstore.Options{SegmentPages: 32, ChunkPages: 1 << 14})
	require.NoError(t, err)
	require.NoError(t, s.EndRecovery(rec))
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		mem.Release()
	})
	return s
}

// TestFormatLayers compares the codes of layers with docs/format.md.
func TestFormatLayers(t *testing.T) {
	require.Equal(t, map[string]uint64{
		"put": layerPut, "delete": layerDelete, "put of a value in a run": layerRun, "put of a value in extents": layerList,
		"delete of a long key": layerLong,
	}, formatdoc.Open(t).Table("Layer entries").Numbers("layer entry", "code"))
}

// TestFormatLayerPage compares a page of a layer with docs/format.md.
func TestFormatLayerPage(t *testing.T) {
	require.Equal(t, []string{"0", "2", "4096 - 2n"}, formatdoc.Open(t).Table("Layer").Column("offset"))
	w := newLayerWriter(newStore(t), logstore.ForWrites)
	for _, r := range []layerRecord{
		{code: layerPut, key: []byte("a"), keyLen: 1, value: []byte("one")}, {code: layerDelete, key: []byte("bb"), keyLen: 2},
		{code: layerRun, key: []byte("c"), keyLen: 1, valLen: 300, addr: 77},
	} {
		require.NoError(t, w.add(&r, r.key))
	}
	l, err := w.finish()
	require.NoError(t, err)
	defer l.private.Discard()
	p := l.page(0)
	records := "\x01\x01\x03aone" + "\x02\x02bb" + "\x03\x01\xac\x02\x4d\x00\x00\x00\x00\x00\x00\x00c"
	require.Equal(t, "\x03\x00"+records, string(p[:2+len(records)]))
	require.Equal(t, []byte{13, 0, 9, 0, 2, 0}, p[4096-6:])
	require.Empty(t, bytes.Trim(p[2+len(records):4096-6], "\x00"))
}
