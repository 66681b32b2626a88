package logstore

import (
	"bytes"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// TestPrivateIsSyncedBeforeItIsRead: a transaction may read what it has written into private segments before it
// commits. It gets slices of the mapping, so the pages are synced first. If that sync fails, the read is an error, and
// no data of an earlier life of the segment is returned.
func TestPrivateIsSyncedBeforeItIsRead(t *testing.T) {
	for _, fails := range []bool{false, true} {
		x := newScript(t)
		p := x.s.NewPrivate()
		value := bytes.Repeat([]byte("value "), 2000)
		_, err := p.Write(value)
		require.NoError(t, err)
		extents, err := p.Finish()
		require.NoError(t, err)
		syncs := 0
		x.mem.OnOp(func(op vfs.Op) error {
			if op.Kind == vfs.OpDatasync {
				if syncs++; fails {
					return syscall.EIO
				}
			}
			return nil
		})
		var got []byte
		for range 2 {
			got = got[:0]
			for _, e := range extents {
				b, err := x.s.Raw(e)
				if fails {
					require.ErrorIs(t, err, ErrFailed)
					continue
				}
				require.NoError(t, err)
				require.True(t, x.mem.Synced(toyPath, int64(e.Addr)*PageSize, int64(e.Bytes)))
				got = append(got, b...)
			}
		}
		require.Equal(t, 1, syncs, "once, and never again")
		require.Equal(t, !fails, bytes.Equal(value, got))
		x.mem.OnOp(nil)
		p.Discard()
	}
}

// TestListedSegmentIsNotCleaned: if recovery finds that a segment holds a large value, the segment has no page
// of the log any more, whatever the space map says. Otherwise the cleaner could find bytes of the value that
// look like nodes, and they would outlive the value.
func TestListedSegmentIsNotCleaned(t *testing.T) {
	x := newScript(t)
	for x.s.tail.header.segment < 20 {
		x.append(5)
	}
	x.checkpoint()
	x.checkpoint()
	const n = 5
	a := x.s.firstPage(n) + 2
	x.s.enter(header{segment: n, sequence: 3})
	x.s.MarkLive(a, 3, 0)
	victim := func() bool {
		victims, _ := x.s.Victims(nil, false)
		return slices.ContainsFunc(victims, func(v Victim) bool { return v.Segment == n })
	}
	require.True(t, victim())
	x.s.space.Listed(a, 1)
	require.False(t, victim())
}

// TestOnlyVerifiedPagesAreNodes: in a damaged file a parent may refer to a page of a large value that begins like a
// node. That page fails verification. It must not be counted as a node, because such pages become dead only with their
// node, and so it would outlive the value.
func TestOnlyVerifiedPagesAreNodes(t *testing.T) {
	x := newScript(t)
	require.NoError(t, x.s.Close())
	x.opts.CheckNode = func([]byte) error { return nil }
	x.open()
	p := x.s.NewPrivate()
	_, err := p.Write(bytes.Repeat([]byte{byte(KindTree)}, 3*PageSize))
	require.NoError(t, err)
	extents, err := p.Finish()
	require.NoError(t, err)
	require.Len(t, extents, 1)
	p.Publish(x.s.LastGroup(), 0)
	a := extents[0].Addr
	_, err = x.s.Page(a)
	require.ErrorIs(t, err, ErrCorrupt)
	_, _, err = x.s.KindAt(a + 1)
	require.ErrorIs(t, err, ErrCorrupt)
	x.s.Kill(a, extents[0].Pages(), 1)
	for i := range Addr(3) {
		require.False(t, x.s.IsLive(a+i), "page %d", i)
	}
}
