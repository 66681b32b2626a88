package vfs

import (
	"os"
	"slices"
	"syscall"
)

// inode is a file of a Mem, independent of its names and handles. Mem.mu guards it, except the bytes of the
// arena, which mappings show without the mutex.
//
//  1. Bytes of blocks not in alloc, and bytes from size on, are zero.
//  2. A block that the arena has touched and that is not zero is in alloc.
type inode struct {
	mem   *Mem
	id    int // in order of creation
	arena *arena
	size  int64
	alloc bitset // blocks that have space on disk
	perm  os.FileMode

	history history

	linked  bool // has a name
	handles int  // number of open handles

	exclusive *memFile // holder of the exclusive lock, nil if none
	shared    int      // number of handles with a shared lock
}

func (m *Mem) newInode(perm os.FileMode) (*inode, error) {
	a, err := newArena(m.maxFileBytes)
	if err != nil {
		return nil, err
	}
	m.lastID++
	ino := &inode{mem: m, id: m.lastID, arena: a, perm: perm}
	m.inodes = append(m.inodes, ino)
	return ino, nil
}

// write writes p at off, up to the first block for which there is no space.
func (ino *inode) write(p []byte, off int64) (n int, err error) {
	if off+int64(len(p)) > int64(len(ino.arena.buf)) {
		return 0, syscall.EFBIG
	}
	end := off + int64(len(p))
	for at := off; at < end; {
		if !ino.allocate(at / blockSize) {
			return int(at - off), syscall.ENOSPC
		}
		stop := min((at/SectorSize+1)*SectorSize, end)
		ino.change(at / SectorSize)
		copy(ino.arena.buf[at:stop], p[at-off:stop-off])
		ino.arena.touched.add(at / blockSize)
		if stop > ino.size {
			ino.resized()
			ino.size = stop
		}
		at = stop
	}
	return len(p), nil
}

// change records in the history that the sector is about to change.
func (ino *inode) change(sector int64) {
	ino.mem.seq++
	if ino.mem.noCrash {
		return
	}
	var before []byte
	if ino.arena.touched.has(sector / sectorsPerBlock) {
		before = ino.sector(sector)
	}
	ino.history.changed(ino.mem.seq, sector, before)
}

func (ino *inode) sector(n int64) []byte {
	return ino.arena.buf[n*SectorSize:][:SectorSize]
}

// allocate gives the block space, and reports whether there was any.
func (ino *inode) allocate(block int64) bool {
	if ino.alloc.has(block) {
		return true
	}
	m := ino.mem
	if m.maxBytes > 0 && (m.usedBlocks+1)*blockSize > m.maxBytes {
		return false
	}
	m.usedBlocks++
	ino.alloc.add(block)
	return true
}

// allocateRange reserves space from the front of the range, up to the first block for which there is none.
func (ino *inode) allocateRange(off, n int64) error {
	if off+n > int64(len(ino.arena.buf)) {
		return syscall.EFBIG
	}
	end := off + n
	var err error
	for b := off / blockSize; b*blockSize < end; b++ {
		if !ino.allocate(b) {
			end, err = b*blockSize, syscall.ENOSPC
			break
		}
	}
	if end > ino.size && end > off {
		ino.resize(end)
	}
	return err
}

// resize changes the size and nothing else.
func (ino *inode) resize(size int64) {
	ino.mem.seq++
	ino.resized()
	ino.size = size
}

// resized records in the history that the size is about to change.
func (ino *inode) resized() {
	if !ino.mem.noCrash {
		ino.history.resized(ino.mem.seq, ino.size)
	}
}

func (ino *inode) truncate(size int64) error {
	if size > int64(len(ino.arena.buf)) {
		return syscall.EFBIG
	}
	if size < ino.size {
		end := int64(len(ino.alloc)) * 64 * blockSize
		ino.zero(size, max(end, size))
	}
	if size != ino.size {
		ino.resize(size)
	}
	return nil
}

// zero zeroes a range and frees the blocks that lie wholly within it.
func (ino *inode) zero(off, end int64) {
	for b := ino.alloc.next(off/blockSize, (end+blockSize-1)/blockSize, true); b*blockSize < end; {
		lo, hi := max(off, b*blockSize), min(end, (b+1)*blockSize)
		if ino.arena.touched.has(b) {
			for at := lo; at < hi; {
				stop := min((at/SectorSize+1)*SectorSize, hi)
				ino.change(at / SectorSize)
				clear(ino.arena.buf[at:stop])
				at = stop
			}
		}
		if hi-lo == blockSize {
			ino.alloc.remove(b)
			ino.mem.usedBlocks--
		}
		b = ino.alloc.next(b+1, (end+blockSize-1)/blockSize, true)
	}
}

// clone copies the file into another Mem, without handles and locks. Unless withHistory is set, everything in
// the copy is durable.
func (ino *inode) clone(m *Mem, withHistory bool) (*inode, error) {
	a, err := copyArena(ino.arena)
	if err != nil {
		return nil, err
	}
	c := &inode{mem: m, id: ino.id, arena: a, size: ino.size, alloc: slices.Clone(ino.alloc), perm: ino.perm}
	if withHistory {
		c.history = ino.history.clone()
	} else {
		c.history.syncedAlloc = slices.Clone(ino.alloc)
	}
	if ino.linked {
		c.linked = true
		m.usedBlocks += c.alloc.count()
	}
	m.inodes = append(m.inodes, c)
	return c, nil
}

// setLinked gives the file a name or takes it away.
func (ino *inode) setLinked(linked bool) {
	ino.linked = linked
	ino.freeIfGone()
}

// freeIfGone frees the space of a file that has neither a name nor a handle. The bytes stay, because a crash
// may bring the name back.
func (ino *inode) freeIfGone() {
	if !ino.linked && ino.handles == 0 {
		ino.mem.usedBlocks -= ino.alloc.count()
	}
}
