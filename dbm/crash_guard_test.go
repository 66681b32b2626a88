package dbm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
)

// A guardian checks that durable pages are not changed until their segment is reused, and that no segment is reused
// that either superblock needs. It interprets the file by the documented format and does not use the engine's code.
type guardian struct {
	r      *runner
	synced bool           // the last operation was a Datasync
	needed map[int64]bool // segments that can be reached from the durable superblocks
	before []saved        // durable pages that the current write touches
}

type saved struct {
	page int64
	data []byte
}

// superview is the content of a superblock.
type superview struct {
	valid        bool
	segmentPages int64
	number       uint64
	runSegment   uint32
	runLast      uint64 // group
	startSegment uint32
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func viewSuperblock(p []byte) (v superview) {
	le := binary.LittleEndian
	if string(p[:8]) != "FLASHDBM" || le.Uint32(p[508:]) != crc32.Checksum(p[:508], castagnoli) {
		return v
	}
	return superview{
		valid: true, segmentPages: int64(le.Uint32(p[12:])), number: le.Uint64(p[48:]),
		runSegment: le.Uint32(p[56:]), startSegment: le.Uint32(p[80:]), runLast: le.Uint64(p[112:]),
	}
}

// content reads the file as the system shows it, without an operation that a hook would see.
func content(mem *vfs.Mem, off, n int64) []byte {
	b := make([]byte, n)
	if f, err := mem.Open(crashPath, os.O_RDONLY, 0); err == nil {
		f.ReadAt(b, off)
		f.Close()
	}
	return b
}

// view returns the file as the system shows it. It must not be changed, nor used after the next operation.
func view(mem *vfs.Mem) []byte {
	f, err := mem.Open(crashPath, os.O_RDONLY, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	size, _ := f.Size()
	if size == 0 {
		return nil
	}
	b, err := f.Map(0, size)
	if err != nil {
		panic(err)
	}
	return b[:size]
}

func fileSize(mem *vfs.Mem) int64 {
	f, err := mem.Open(crashPath, os.O_RDONLY, 0)
	if err != nil {
		return 0
	}
	defer f.Close()
	n, _ := f.Size()
	return n
}

// seen is called before each operation is carried out, and after the previous one was.
func (g *guardian) seen(op vfs.Op) {
	mem := g.r.mem
	for _, s := range g.before {
		now := content(mem, s.page*logstore.PageSize, logstore.PageSize)
		if !bytes.Equal(s.data, now) && (g.r.opened || !g.voids(s.data, now)) {
			g.r.fail(g.r, fmt.Errorf("%v: page %d was durable and of the present life of its segment, and was changed", op, s.page))
		}
	}
	g.before = nil
	g.refresh()
	g.synced = op.Kind == vfs.OpDatasync
}

// voids reports whether a page was changed to what recovery writes over the pages of an incomplete group: zero
// except for a number, which is newer than what either checkpoint needs.
func (g *guardian) voids(before, after []byte) bool {
	group := binary.LittleEndian.Uint64(before[16:])
	for slot := range int64(2) {
		if v := viewSuperblock(content(g.r.mem, slot*logstore.PageSize, 512)); v.valid && group <= v.runLast {
			return false
		}
	}
	void := make([]byte, logstore.PageSize)
	binary.LittleEndian.PutUint64(void[16:], group)
	return bytes.Equal(after, void)
}

// refresh finds the segments in which the durable superblocks have a checkpoint or the start of a scan.
func (g *guardian) refresh() {
	if !g.synced && g.needed != nil {
		return
	}
	g.needed, g.synced = map[int64]bool{}, false
	for slot := range int64(2) {
		if v := viewSuperblock(content(g.r.mem, slot*logstore.PageSize, 512)); v.valid {
			g.needed[int64(v.runSegment)], g.needed[int64(v.startSegment)] = true, true
		}
	}
}

// check is called before each write.
func (g *guardian) check(name string, off, n int64) error {
	g.refresh()
	mem, size := g.r.mem, int64(g.r.load.segmentPages)
	for page := off / logstore.PageSize; page*logstore.PageSize < off+n; page++ {
		first := page / size * size
		header := first
		if first == 0 {
			header = 2
		}
		switch {
		case page < 2:
		case page == header:
			if g.needed[page/size] && g.r.opened {
				g.r.fail(g.r, fmt.Errorf("segment %d, which a superblock leads to, is reused", page/size))
			}
		case mem.Synced(name, page*logstore.PageSize, logstore.PageSize):
			p := content(mem, page*logstore.PageSize, logstore.PageSize)
			salt := binary.LittleEndian.Uint64(content(mem, header*logstore.PageSize+16, 8))
			if salt != 0 && validPage(p, salt, page) {
				g.before = append(g.before, saved{page, p})
			}
		}
	}
	return nil
}

// validPage reports whether a page of the log has the right checksum.
func validPage(p []byte, salt uint64, page int64) bool {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], salt)
	binary.LittleEndian.PutUint64(b[8:], uint64(page))
	crc := crc32.Checksum(b[:], castagnoli)
	if p[5]&4 == 0 {
		return crc32.Update(crc, castagnoli, p[4:]) == binary.LittleEndian.Uint32(p)
	}
	end := binary.LittleEndian.Uint16(p[12:]) // of a page that is still being filled
	if end < 40 || end > logstore.PageSize {
		return false
	}
	for _, part := range [][]byte{p[4:8], p[16:end], p[12:16]} {
		crc = crc32.Update(crc, castagnoli, part)
	}
	return crc == binary.LittleEndian.Uint32(p[8:])
}

// damageSuperblock flips a bit of one superblock, if both are intact, and returns a description.
func damageSuperblock(mem *vfs.Mem, rng *rand.Rand) string {
	for slot := range int64(2) {
		if !viewSuperblock(content(mem, slot*logstore.PageSize, 512)).valid {
			return ""
		}
	}
	slot := rng.Int64N(2)
	flip(mem, slot*logstore.PageSize*8+rng.Int64N(512*8))
	return fmt.Sprintf(" superblock %d damaged", slot)
}

// flip flips one bit of the file durably.
func flip(mem *vfs.Mem, bit int64) {
	b := content(mem, bit/8, 1)
	b[0] ^= 1 << (bit % 8)
	overwrite(mem, bit/8, b)
}

func overwrite(mem *vfs.Mem, off int64, b []byte) {
	f, err := mem.Open(crashPath, os.O_RDWR, 0)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, off); err != nil {
		panic(err)
	}
	if err := f.Datasync(); err != nil {
		panic(err)
	}
}
