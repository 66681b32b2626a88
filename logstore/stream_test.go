package logstore

import (
	"bytes"
	"testing"

	"flashdbm/logstore/vfs"

	"github.com/stretchr/testify/require"
)

// TestLongStream writes a group of many times the size of the builder's buffers, across segments, and reads it
// back. If it is cut short anywhere, nothing of it is accepted.
func TestLongStream(t *testing.T) {
	inTurn(t)
	const pages = 3*streamPages + 7
	mem := vfs.NewMem(64 << 20)
	defer mem.Release()
	opts := Options{SegmentPages: 64, ChunkPages: 1 << 12}
	s, _, err := Open(mem, "a", opts)
	require.NoError(t, err)
	require.NoError(t, s.Reserve(20, false))
	for range 2 {
		c := s.BeginCheckpoint([]byte("table"))
		for done := false; !done; {
			done, err = c.WritePart()
			require.NoError(t, err)
		}
		require.NoError(t, c.Finish())
	}
	require.NoError(t, s.Reserve(2*pages, false))
	var cuts []*vfs.Mem
	mem.OnOp(func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite || op.Kind == vfs.OpWriteVec {
			cuts = append(cuts, mem.Clone())
		}
		return nil
	})
	g := s.Begin(RecordGroup)
	piece := bytes.Repeat([]byte("0123456789abcdef"), 100)
	for i := 0; i < pages*BodySize; i += len(piece) {
		g.Write(KindRecord, piece)
		require.LessOrEqual(t, len(g.slabs)*slabPages, streamPages+slabPages)
	}
	no, err := g.Commit(42)
	require.NoError(t, err)
	mem.OnOp(nil)
	require.NoError(t, s.Close())

	s, rec, err := Open(mem, "a", opts)
	require.NoError(t, err)
	require.Len(t, rec.Groups, 1)
	found := rec.Groups[0]
	require.Equal(t, no, found.No)
	require.EqualValues(t, 42, found.Count)
	var stream []byte
	for _, p := range found.Pages {
		body, err := s.Body(p)
		require.NoError(t, err)
		stream = append(stream, body...)
	}
	for i := 0; i+len(piece) <= pages*BodySize; i += len(piece) {
		require.True(t, bytes.Equal(piece, stream[i:i+len(piece)]), "at %d", i)
	}
	require.NoError(t, s.Close())

	require.Greater(t, len(cuts), 3)
	for _, cut := range cuts {
		s, rec, err := Open(cut, "a", opts)
		require.NoError(t, err)
		require.Empty(t, rec.Groups)
		require.NoError(t, s.Close())
		cut.Release()
	}
}
