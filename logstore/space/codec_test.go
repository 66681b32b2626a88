package space

import (
	"bytes"
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/format"
)

// TestRecoveryMakesNoFileShorter: the older checkpoint may know segments that the newest does not, and a
// recovery may have to start there. So what recovery takes out of use stays in the file until both superblocks
// are of later checkpoints.
func TestRecoveryMakesNoFileShorter(t *testing.T) {
	older := New(8, 0, nil)
	older.pages = 9 * 8
	older.extendTo(9)
	for n := range older.segments {
		older.segments[n] = segment{salt: 1, sequence: 2, written: 3, state: segmentUsed}
	}
	older.MarkLive(7*8+1, 1, 0)
	stream := older.Encode(nil)

	sp := New(8, 0, nil)
	sp.pages = 9 * 8
	sp.tail, sp.successor = 1, 2
	sp.extendTo(3)
	for n := range sp.segments {
		sp.segments[n] = older.segments[n]
	}
	require.EqualValues(t, 3, sp.Adopt())
	require.Equal(t, [][2]uint32{{3, 4}}, sp.KeepTail(3, 1))
	twoCheckpoints(sp, 20, 19)
	sp.Recovered()

	again := New(8, 0, nil)
	again.pages = sp.End()
	require.NoError(t, again.Decode(stream), "the checkpoint before")
	require.EqualValues(t, 1, again.livePages)

	twoCheckpoints(sp, 21, 20)
	left, _ := sp.CutTo()
	require.Zero(t, left, "one of the superblocks is of checkpoint 20")
	twoCheckpoints(sp, 21, 22)
	left, cut := sp.CutTo()
	require.EqualValues(t, []uint64{4, 5 * 8}, []uint64{uint64(left), cut})
	again = New(8, 0, nil)
	again.pages = sp.End()
	require.ErrorIs(t, again.Decode(stream), format.ErrCorrupt)

	sp.pages = 9 * 8
	sp.Adopt()
	sp.segments[8].written = 25
	require.Equal(t, [][2]uint32{{8, 9}}, sp.KeepTail(4, 1), "the log behind the checkpoint is in segment 8, and takes the space that there is")
	require.Equal(t, segmentUsed, sp.segments[8].state)
}

// TestManySegmentsBecomeFree: the time for segments that become free together grows with their number, not with its square.
// Those of a file of 384 GiB take some milliseconds, and took many seconds when each moved all those before it.
func TestManySegmentsBecomeFree(t *testing.T) {
	const segments = 3 << 17
	sp := New(8, 0, nil)
	sp.pages = segments * 8
	sp.tail, sp.successor = 0, 1
	sp.extendTo(segments)
	for n := range sp.segments {
		sp.segments[n].state, sp.segments[n].dead = segmentUsed, true
	}
	begin := time.Now()
	twoCheckpoints(sp, 20, 19)
	sp.Recovered()
	took := time.Since(begin)
	require.Len(t, sp.free, segments-2)
	require.True(t, slices.IsSortedFunc(sp.free, func(a, b uint32) int { return cmp.Compare(b, a) }))
	require.Less(t, took, 2*time.Second)
}

func TestSpaceMapCodec(t *testing.T) {
	for _, segmentPages := range []uint32{8, 64, 256} {
		sp := New(segmentPages, 0, nil)
		sp.pages = 5 * uint64(segmentPages)
		sp.extendTo(8)
		sp.tail, sp.successor = 1, 5
		sp.segments[0] = segment{salt: 1, sequence: 2, written: 3, state: segmentUsed}
		sp.segments[1] = segment{salt: 4, sequence: 5, written: 6, state: segmentUsed}
		sp.segments[2] = segment{salt: 7, state: segmentPrivate}
		sp.segments[3] = segment{salt: 8, sequence: 9, written: 10, state: segmentFree}
		sp.MarkLive(uint64(segmentPages)+1, 1, 0)
		sp.MarkLive(2*uint64(segmentPages)-1, 1, 0)
		b := sp.Encode([]byte("before"))
		require.Equal(t, "before", string(b[:6]))
		b = b[6:]

		got := New(segmentPages, 0, nil)
		got.pages = sp.pages
		require.NoError(t, got.Decode(b))
		require.Len(t, got.segments, 6, "up to the log's successor")
		require.EqualValues(t, 2, got.livePages)
		require.NoError(t, got.checkCounts())
		require.Equal(t, segment{salt: 1, sequence: 2, written: 3, state: segmentUsed, dead: true}, got.segments[0])
		require.Equal(t, segment{salt: 4, sequence: 5, written: 6, state: segmentUsed, live: 2, liveMap: sp.segments[1].liveMap}, got.segments[1])
		require.Equal(t, segment{salt: 7, state: segmentUsed, dead: true}, got.segments[2], "private segments come back free")
		require.Equal(t, segment{salt: 8, sequence: 9, written: 10, state: segmentUsed, dead: true}, got.segments[3])
		require.Equal(t, segment{dead: true}, got.segments[4], "never allocated as far as the map knows")
		require.EqualValues(t, 4, got.Adopt())
		require.Equal(t, segment{dead: true, state: segmentUsed}, got.segments[4], "but it is in the file")
		require.Equal(t, segment{dead: true}, got.segments[5], "and this is not")

		for n := range b {
			cut := New(segmentPages, 0, nil)
			cut.pages = sp.pages
			require.ErrorIs(t, cut.Decode(b[:n]), format.ErrCorrupt, "cut to %d bytes", n)
		}
		for name, edit := range map[string]func(b []byte) []byte{
			"bytes behind it":       func(b []byte) []byte { return append(b, 0) },
			"too many segments":     func(b []byte) []byte { return append([]byte{255, 255, 255, 255}, b[4:]...) },
			"unknown state":         func(b []byte) []byte { b[4] = byte(segmentStates); return b },
			"unknown form":          func(b []byte) []byte { b[5] = 2; return b },
			"page past its segment": func(b []byte) []byte { b[4+2*EntrySize+int(segmentPages)/8] = 1; return b },
		} {
			if name == "page past its segment" && segmentPages%64 == 0 {
				continue
			}
			bad := New(segmentPages, 0, nil)
			bad.pages = sp.pages
			require.ErrorIs(t, bad.Decode(edit(bytes.Clone(b))), format.ErrCorrupt, name)
		}
		short := New(segmentPages, 0, nil)
		short.pages = 2*uint64(segmentPages) - 1
		require.ErrorIs(t, short.Decode(b), format.ErrCorrupt, "a live page beyond the end of the file")
	}
}

func FuzzSpaceMap(f *testing.F) {
	sp := New(64, 0, nil)
	sp.pages = 256
	sp.extendTo(4)
	for n := range sp.segments {
		sp.segments[n] = segment{salt: 1, sequence: 2, written: 3, state: segmentUsed}
	}
	sp.MarkLive(70, 3, 0)
	f.Add(sp.Encode(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		sp := New(64, 0, nil)
		sp.pages = 256
		if err := sp.Decode(b); err != nil {
			require.ErrorIs(t, err, format.ErrCorrupt)
			return
		}
		require.NoError(t, sp.checkCounts())
		again := New(64, 0, nil)
		again.pages = 256
		once := sp.Encode(nil)
		require.NoError(t, again.Decode(once))
		require.Equal(t, once, again.Encode(nil))
		sp.Adopt()
		sp.collect()
		sp.available()
	})
}
