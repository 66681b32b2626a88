package vfs

import "slices"

// image makes the Mem that a crash leaves. The caller holds the mutex.
func (m *Mem) image(k keep) *Mem {
	img := m.copy(false)
	byID := make(map[int]*inode, len(img.inodes))
	for _, ino := range img.inodes {
		byID[ino.id] = ino
	}
	for _, ino := range m.inodes {
		if to := byID[ino.id]; to != nil {
			ino.revert(to, k)
		}
	}
	m.revertLinks(img, byID, k)
	img.dropUnlinked()
	return img
}

// revert turns to, a copy of ino, into what the disk has of the file.
func (ino *inode) revert(to *inode, k keep) {
	h := &ino.history
	if !k.alloc(ino) {
		to.alloc = append(to.alloc[:0], h.syncedAlloc...)
	}
	for i, c := range h.entries {
		if h.newest[c.sector] == int32(i+1) {
			ino.revertSector(to, int32(i), k)
		}
	}
	to.setEnd(ino.keptSize(k))
	to.history.syncedAlloc = slices.Clone(to.alloc)
}

// revertSector undoes the changes of a sector, from its newest entry back to one that is kept.
func (ino *inode) revertSector(to *inode, newest int32, k keep) {
	h := &ino.history
	sector, cell, undone := h.entries[newest].sector, int32(zeroCell), false
	for i := newest; i >= 0 && !k.sector(ino, h.entries[i]); i = h.entries[i].older {
		cell, undone = h.entries[i].before, true
	}
	content := to.sector(sector)
	if undone && cell == zeroCell {
		clear(content)
	} else if undone {
		copy(content, h.cell(cell))
	}
	if !isZero(content) {
		to.alloc.add(sector / sectorsPerBlock)
	}
}

func isZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

func (ino *inode) keptSize(k keep) int64 {
	size := ino.size
	for _, c := range slices.Backward(ino.history.sizes) {
		if k.size(ino, c) {
			break
		}
		size = c.before
	}
	return size
}

// setEnd sets the size and removes what lies beyond it.
func (ino *inode) setEnd(size int64) {
	ino.size = size
	end := (size + blockSize - 1) / blockSize
	ino.alloc.cut(end)
	touched := &ino.arena.touched
	last := int64(len(*touched)) * 64
	for b := touched.next(size/blockSize, last, true); b < last; b = touched.next(b+1, last, true) {
		clear(ino.arena.buf[max(size, b*blockSize) : (b+1)*blockSize])
	}
}

// revertLinks sets the names of an image: each shows its newest change that is kept, or otherwise its state
// before all changes.
func (m *Mem) revertLinks(img *Mem, byID map[int]*inode, k keep) {
	done := make(map[string]bool)
	for _, c := range slices.Backward(m.linkLog) {
		switch {
		case done[c.name]:
		case k.link(c):
			done[c.name] = true
		case c.before == nil:
			delete(img.links, c.name)
		default:
			img.links[c.name] = byID[c.before.id]
		}
	}
	img.linkLog = nil
}

// dropUnlinked frees the files of an image that no name leads to, and counts
// the space of the others.
func (m *Mem) dropUnlinked() {
	for _, ino := range m.inodes {
		ino.linked = false
	}
	for _, ino := range m.links {
		ino.linked = true
	}
	m.usedBlocks = 0
	m.inodes = slices.DeleteFunc(m.inodes, func(ino *inode) bool {
		if !ino.linked {
			ino.arena.release()
			return true
		}
		m.usedBlocks += ino.alloc.count()
		return false
	})
}
