package logstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

func FuzzSuperblock(f *testing.F) {
	p := make([]byte, PageSize)
	sb := testSuperblock()
	sb.put(p)
	f.Add(p[:superblockSize])
	f.Fuzz(func(t *testing.T, p []byte) {
		if len(p) >= superblockSize {
			p = bytes.Clone(p)
			copy(p, superblockMagic[:])
			binary.LittleEndian.PutUint32(p[superblockCRC:], crc32.Checksum(p[:superblockCRC], castagnoli))
		}
		sb, err := getSuperblock(p)
		if err != nil {
			return
		}
		q := make([]byte, PageSize)
		sb.put(q)
		again, err := getSuperblock(q)
		require.NoError(t, err)
		require.Equal(t, sb, again)
	})
}

func FuzzHeader(f *testing.F) {
	p := make([]byte, PageSize)
	h := header{segment: 3, successor: 4, salt: 5, sequence: 6, predecessor: 7, group: 8, index: 9, digest: 10}
	h.put(p)
	f.Add(p[:headerSize], uint32(3))
	f.Fuzz(func(t *testing.T, b []byte, segment uint32) {
		p := make([]byte, PageSize)
		copy(p, b)
		binary.LittleEndian.PutUint32(p, crc32.Checksum(p[4:headerSize], castagnoli))
		var uuid [16]byte
		copy(uuid[:], p[56:])
		h, ok := getHeader(p, segment, uuid)
		if !ok {
			return
		}
		require.Equal(t, segment, h.segment)
		q := make([]byte, PageSize)
		h.put(q)
		again, ok := getHeader(q, segment, uuid)
		require.True(t, ok)
		require.Equal(t, h, again)
	})
}

func FuzzSplitStream(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 'a', 'b', 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		table, space, err := splitStream(b)
		if err == nil && len(table)+len(space)+streamHeader > len(b) {
			t.Fatal("more came out than went in")
		}
	})
}

func FuzzExtents(f *testing.F) {
	f.Add(binary.LittleEndian.AppendUint32(make([]byte, extentSize), 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		if extents, err := GetExtents(b); err == nil && len(extents)*extentSize+4 > len(b) {
			t.Fatal("more extents than bytes")
		}
	})
}

// A hostile is a whole file whose bytes a fuzzer may change. All its checksums and digests are corrected
// afterwards.
type hostile struct {
	file  []byte
	uuid  [16]byte
	chain []Addr // headers and pages of the log in order, from the earlier of the older superblock's checkpoint and scan start
	from  Position
}

func newHostile(t testing.TB) *hostile {
	mem, _ := toyFile(t, 6)
	defer mem.Release()
	opts := modelOptions()
	opts.ReadOnly = true
	s, _, err := Open(mem, toyPath, opts)
	require.NoError(t, err)
	defer s.Close()
	f, err := mem.Open(toyPath, os.O_RDONLY, 0)
	require.NoError(t, err)
	defer f.Close()
	size, err := f.Size()
	require.NoError(t, err)
	h := &hostile{file: make([]byte, size), uuid: s.uuid}
	f.ReadAt(h.file, 0)
	for _, sb := range s.supers {
		for _, p := range []Position{sb.run, sb.start} {
			if h.from.Group == 0 || p.Group < h.from.Group {
				h.from = p
			}
		}
	}
	sc := s.newScanner()
	require.NoError(t, sc.seek(h.from))
	h.chain = append(h.chain, s.firstPage(sc.segment)+headerPage(sc.segment))
	for {
		var headers []Addr
		g, ok, err := sc.next(func(hd header) { headers = append(headers, s.firstPage(hd.segment)+headerPage(hd.segment)) })
		require.NoError(t, err)
		if !ok {
			return h
		}
		for _, p := range g.Pages {
			for len(headers) > 0 && s.segmentOf(headers[0]) == s.segmentOf(p.Addr) {
				h.chain, headers = append(h.chain, headers[0]), headers[1:]
			}
			h.chain = append(h.chain, p.Addr)
		}
	}
}

// mutate applies a program of changes of 5 bytes each: page u16, offset u16, value. Offsets count from the end
// of the bytes that seal sets anyway.
func (h *hostile) mutate(program []byte) []byte {
	file := bytes.Clone(h.file)
	pages := len(file) / PageSize
	for ; len(program) >= 5; program = program[5:] {
		page, at := int(binary.LittleEndian.Uint16(program)), int(binary.LittleEndian.Uint16(program[2:]))
		if page >= 1<<15 { // a page of the log
			page = int(h.chain[page%len(h.chain)])
		}
		file[page%pages*PageSize+at%PageSize] = program[4]
	}
	h.seal(file)
	return file
}

// seal corrects all checksums and digests of a file.
func (h *hostile) seal(file []byte) {
	le := binary.LittleEndian
	page := func(a Addr) []byte { return file[a*PageSize : (a+1)*PageSize] }
	sums := map[Addr]uint32{} // digest before a page
	digest, salt := h.from.Digest, uint64(0)
	for _, a := range h.chain {
		p := page(a)
		sums[a] = digest
		if a%8 == headerPage(uint32(a/8)) {
			if a != h.chain[0] {
				le.PutUint32(p[52:], digest)
			}
			salt = le.Uint64(p[16:])
			le.PutUint32(p, crc32.Checksum(p[4:headerSize], castagnoli))
			copy(p[headerCopyAt:headerCopyAt+headerSize], p)
			continue
		}
		if Kind(p[4]) == KindRun {
			from := a*PageSize + runPayloadAt
			if n := le.Uint64(p[MuxSize:]); n <= uint64(len(file))-from {
				le.PutUint32(p[MuxSize+8:], crc32.Checksum(file[from:from+n], castagnoli))
			}
		}
		le.PutUint32(p[36:], digest)
		crc := pageCRC(salt, a, p)
		if p[5]&flagGrows != 0 && crc == ^getMux(p).crc { // no checksum is correct
			crc = ^crc
		}
		putCRC(p, crc)
		digest = chain(digest, crc)
	}
	for slot := range 2 {
		p := page(Addr(slot))
		for _, at := range []int{56, 80} {
			pos := getPosition(p[at:])
			if sum, ok := sums[Addr(pos.Segment)*8+Addr(pos.Page)]; ok {
				pos.Digest = sum
				pos.put(p[at:])
			}
		}
		le.PutUint32(p[superblockCRC:], crc32.Checksum(p[:superblockCRC], castagnoli))
	}
}

// open makes all calls on a file that a caller can make without reading pages. They must neither panic nor hang.
func (h *hostile) open(t *testing.T, file []byte) (accepted int) {
	mem := vfs.NewMem(4 << 20)
	defer mem.Release()
	f, err := mem.Open(toyPath, os.O_RDWR|os.O_CREATE, 0o600)
	require.NoError(t, err)
	f.WriteAt(file, 0)
	f.Close()
	s, rec, err := Open(mem, toyPath, modelOptions())
	if err != nil {
		require.True(t, errors.Is(err, ErrCorrupt) || errors.Is(err, ErrFormat), "%v", err)
		return 0
	}
	defer s.Close()
	if rec.Created {
		return 0
	}
	for _, g := range rec.Groups {
		for _, p := range g.Pages {
			switch p.Kind {
			case KindTree:
				s.Page(p.Addr)
			case KindRun:
				require.True(t, s.InFile(p.Addr, p.Run))
				s.MarkLive(p.Addr, p.Run, 0)
				if extents, err := s.ListAt(p.Addr); err == nil && s.NoteListed(extents, g.No) == nil {
					for _, e := range extents {
						s.Raw(e)
					}
				}
			default:
				s.Body(p)
			}
			s.Run(p.Name)
		}
	}
	s.RebaseRecovered(rec, rec.super.start.Group)
	require.NoError(t, s.EndRecovery(rec))
	if s.Reserve(2, false) == nil {
		g := s.Begin(PageGroup)
		g.Page(BornBit)
		g.Page(BornBit)
		_, err := g.Commit(2)
		require.NoError(t, err)
		require.NoError(t, s.Sync())
	}
	return len(rec.Groups)
}

func FuzzOpen(f *testing.F) {
	h := newHostile(f)
	f.Add([]byte{})
	f.Add([]byte{0, 0, 90, 0, 3})
	f.Add([]byte{1, 0x80, 41, 0, 200, 2, 0x80, 60, 0, 1})
	f.Fuzz(func(t *testing.T, program []byte) { h.open(t, h.mutate(program)) })
}

// The fuzzer's sealing must not itself make an open fail.
func TestHostileSeal(t *testing.T) {
	h := newHostile(t)
	all := h.open(t, h.mutate(nil))
	require.GreaterOrEqual(t, all, 5)
	body := uint16(1<<15 + len(h.chain) - 1)
	program := []byte{byte(body), byte(body >> 8), 0xF0, 0x0F, 0xAB}
	require.Equal(t, all, h.open(t, h.mutate(program)), "a changed body is accepted")
	require.NotEqual(t, h.file, h.mutate(program))
}
