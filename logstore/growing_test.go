package logstore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// newGrowing returns a growing page with the given records.
func newGrowing(salt uint64, a Addr, records string) []byte {
	p := make([]byte, PageSize)
	m := mux{kind: KindRecord, flags: growingFlags, lag: 2, group: 7, pages: 1, count: uint64(len(records)), digest: 9, end: uint16(MuxSize + len(records))}
	copy(p[MuxSize:], records)
	m.put(p)
	putCRC(p, pageCRC(salt, a, p))
	return p
}

func TestGrowingChecksum(t *testing.T) {
	p := newGrowing(5, 6, "abc")
	m := getMux(p)
	sum := crc32.Checksum(bytes.Join([][]byte{{5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0}, p[4:8], p[16:43], {43, 0, 3, 0}}, nil), castagnoli)
	require.Equal(t, sum, m.crc)
	require.Equal(t, sum, pageCRC(5, 6, p))
	require.NotEqual(t, sum, pageCRC(4, 6, p))
	require.NotEqual(t, sum, pageCRC(5, 7, p))

	// After the change, the page must equal one that was made at once.
	copy(p[43:], "de")
	crc, word := growingEnd(crc32.Update(growingSum(5, 6, p[:43]), castagnoli, []byte("de")), 45, 5)
	putWord(p, word)
	require.Equal(t, newGrowing(5, 6, "abcde"), p)
	require.Equal(t, crc, pageCRC(5, 6, p))

	for at := range PageSize { // which bytes are covered by the checksum
		q := bytes.Clone(p)
		q[at] ^= 1 << (at % 8)
		counts := at >= 4 && at < 45
		require.Equal(t, !counts, getMux(q).crc == pageCRC(5, 6, q), "byte %d", at)
	}
	for _, end := range []int{0, MuxSize - 1, PageSize + 1, 1<<16 - 1} {
		q := bytes.Clone(p)
		binary.LittleEndian.PutUint16(q[12:], uint16(end))
		require.NotEqual(t, getMux(q).crc, pageCRC(5, 6, q), "end %d", end)
		cutGrowing(q)
	}
	for flags := range 256 {
		q := bytes.Clone(p)
		q[5] = byte(flags)
		if flags&flagGrows != 0 && uint8(flags) != growingFlags {
			for range 2 { // unchanged also if sealed a second time
				require.NotEqual(t, getMux(q).crc, pageCRC(5, 6, q), "flags %#x", flags)
				putCRC(q, pageCRC(5, 6, q))
			}
		}
	}
	q := bytes.Clone(p)
	q[4] = byte(KindTree) // its body would not be covered
	require.NotEqual(t, getMux(q).crc, pageCRC(5, 6, q))
	copy(q, p)
	q[45] = 'x'
	cutGrowing(q)
	require.Equal(t, p, q)
}

// TestGrowingPageKilled: after a kill before a store, or in the middle of one, every commit that had returned is
// recovered, and the page that recovery makes of the remains is kept.
func TestGrowingPageKilled(t *testing.T) {
	inTurn(t)
	for cut := int64(0); cut <= 9; cut++ {
		for stop := 0; ; stop++ {
			x := newScript(t)
			x.begun("a")
			var dead *vfs.Mem
			ops := 0
			x.mem.OnOp(func(op vfs.Op) error {
				if dead == nil && ops > stop { // the process died during the previous operation
					dead = x.mem.Clone()
				}
				if ops++; dead == nil && ops > stop {
					switch {
					case op.Kind != vfs.OpStore: // the system gets the whole page or nothing
						return syscall.EINTR
					case op.Len == 8 && op.Off%PageSize == growingAt: // one store
						return syscall.EINTR
					}
					return &vfs.ShortWrite{N: cut, Err: syscall.EINTR}
				}
				return nil
			})
			returned := "a"
			for n := 0; n < 6 && ops <= stop; n++ {
				r := strings.Repeat(string(rune('b'+n)), n+3)
				_, ok, _ := x.s.Extend([]byte(r), uint64(len(r)))
				if ops <= stop {
					require.True(t, ok)
					returned += r
				}
			}
			x.mem.OnOp(nil)
			if ops <= stop {
				break
			}
			if dead == nil { // the process dies in the last operation
				dead = x.mem.Clone()
			}
			x.become(dead)
			x.open()
			got := x.records()
			require.Len(t, got, 1)
			require.True(t, strings.HasPrefix(got[0], returned), "%q of %q, cut %d, operation %d", got[0], returned, cut, stop)
			x.begun("after")
			x.kill()
			x.open()
			require.Equal(t, append(got, "after"), x.records())
		}
	}
}

// TestGrowingPageTorn: a device may have kept any mixture of the page's states. Recovery finds one of these states or
// none.
func TestGrowingPageTorn(t *testing.T) {
	inTurn(t)
	rng := rand.New(rand.NewPCG(1, 2))
	states := [][]byte{newGrowing(5, 6, "")}
	all := ""
	for i := range 30 {
		all += strings.Repeat(string(rune('a'+i%26)), 100+rng.IntN(60))
		if len(all) > BodySize {
			break
		}
		states = append(states, newGrowing(5, 6, all))
	}
	whole := 0
	for range 20_000 {
		piece := []int{8, 64, 512}[rng.IntN(3)]
		from := rng.IntN(len(states))
		p := make([]byte, PageSize)
		for at := 0; at < PageSize; at += piece {
			s := states[min(from+rng.IntN(3), len(states)-1)]
			if rng.IntN(20) == 0 { // an earlier life of the page, or a truncated copy
				s = states[rng.IntN(len(states))]
			}
			copy(p[at:at+piece], s[at:])
		}
		m := getMux(p)
		if m.crc != pageCRC(5, 6, p) {
			continue
		}
		whole++
		cutGrowing(p)
		require.Contains(t, states, p)
	}
	require.Greater(t, whole, 1000)
}

// TestGrowingPageIsStored: on a file system that supports it, records are added without a write; now and then a
// write updates the file's modification time. A file that was cut short is noticed, and no store makes it
// longer again.
func TestGrowingPageIsStored(t *testing.T) {
	inTurn(t)
	path := filepath.Join(t.TempDir(), "db")
	var writes int
	fs := vfs.Faulty(vfs.OS(), func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite {
			writes++
		}
		return nil
	})
	s, rec, err := Open(fs, path, Options{Growing: true})
	require.NoError(t, err)
	defer s.Close()
	require.True(t, rec.Created)
	for range 2 {
		c := s.BeginCheckpoint(nil)
		_, err = c.WritePart()
		require.NoError(t, err)
		require.NoError(t, c.Finish())
	}
	require.NoError(t, s.Reserve(4, true))
	g := s.Begin(RecordGroup)
	g.KeepOpen()
	g.Write(KindRecord, []byte("a"))
	_, err = g.Commit(1)
	require.NoError(t, err)
	if s.last.window == nil {
		t.Skip("this file system has no windows")
	}
	before, stored := writes, 0
	for i := range 1000 {
		_, ok, err := s.Extend([]byte{byte('b' + i%20)}, 1)
		require.NoError(t, err)
		require.True(t, ok)
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		p := b[s.last.at*PageSize:][:PageSize]
		m := getMux(p)
		require.EqualValues(t, i+2, m.count)
		require.Equal(t, m.crc, pageCRC(s.tail.header.salt, s.last.at, p))
		if writes == before {
			stored++
		}
		before = writes
	}
	require.Positive(t, stored)
	require.NoError(t, os.Truncate(path, int64(s.last.at)*PageSize))
	_, _, err = s.Extend([]byte("z"), 1)
	require.ErrorIs(t, err, ErrFailed)
	fi, err := os.Stat(path)
	require.NoError(t, err)
	require.EqualValues(t, s.last.at*PageSize, fi.Size())
}

// TestGrowingPagesAreStated: an older file gets growing pages only after a superblock has the feature flag for them.
// The same holds for even leaves, and for values that stay in the log.
func TestGrowingPagesAreStated(t *testing.T) {
	x := newScript(t)
	x.s.Close()
	for slot := range int64(2) {
		x.file(x.mem, func(f vfs.File) {
			p := make([]byte, PageSize)
			f.ReadAt(p, slot*PageSize)
			require.EqualValues(t, featureGrowing|featureEven|featureLogged, p[24], "a new file that asked for them")
			p[24] = 0
			binary.LittleEndian.PutUint32(p[superblockCRC:], crc32.Checksum(p[:superblockCRC], castagnoli))
			f.WriteAt(p, slot*PageSize)
		})
	}
	x.open()
	require.False(t, x.s.EvenLeaves())
	require.False(t, x.s.LogsValues())
	x.begun("a")
	_, extended := x.share("b")
	require.False(t, extended)
	require.False(t, x.s.last.open)
	x.checkpointFrom()
	require.True(t, x.s.EvenLeaves())
	x.begun("c")
	_, extended = x.share("d")
	require.True(t, extended)
	x.kill()
	x.open()
	records := x.records()
	require.Equal(t, "cd", records[len(records)-1], fmt.Sprint(records))
}
